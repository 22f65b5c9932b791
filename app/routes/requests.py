"""Requests: the table, and one request's page with its chain of blocks."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from app.deps import Context
from app.examples import REQUEST_DETAIL, REQUEST_PAGE, example
from app.models import MAX_INTEGER, Problem, RequestDetail, RequestPage, RequestState
from app.queries import chain as chain_queries
from app.queries import requests as queries

router = APIRouter(tags=["requests"])


@router.get("/api/requests", responses=example(200, REQUEST_PAGE))
def get_requests(
    context: Context,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="`next_before` of the page before")] = None,
    state: RequestState | None = None,
    search: Annotated[str | None, Query(max_length=200, description="Part of a request's or a session's id")] = None,
) -> RequestPage:
    """Requests, newest first."""
    with context.snapshot() as conn:
        return queries.read_page(conn, context.now_ns(), context.settings, limit, before, state, search)


@router.get(
    "/api/requests/{request_id:path}",
    responses={**example(200, REQUEST_DETAIL), 404: {"model": Problem, "description": "No such request, or several"}},
)
def get_request(
    context: Context,
    request_id: Annotated[str, Path(min_length=1, max_length=500, description="An id, or the start of just one")],
) -> RequestDetail:
    """One request: where each block of its chain came from, what became of the block since, and its events."""
    with context.snapshot() as conn:
        return chain_queries.read_detail(conn, context.now_ns(), context.settings, request_id)
