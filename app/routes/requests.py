"""Requests: the table, and one request's page with its chain of blocks."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import REQUEST_DETAIL, REQUEST_PAGE, example
from app.models import (
    MAX_INTEGER,
    ChainBlock,
    LaneRow,
    MissedRun,
    Problem,
    RequestDetail,
    RequestPage,
    RequestRow,
    RequestState,
)
from app.queries import chain as chain_queries
from app.queries import requests as queries

router = APIRouter(tags=["requests"])


@router.get("/api/requests", response_model=RequestPage, responses=example(200, REQUEST_PAGE))
def get_requests(
    context: Context,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="`next_before` of the page before")] = None,
    state: RequestState | None = None,
    search: Annotated[str | None, Query(max_length=200, description="Part of a request's or a session's id")] = None,
    format: FormatQuery = "json",
) -> RequestPage | Response:
    """Requests, newest first."""
    with context.snapshot() as conn:
        page = queries.read_page(conn, context.now_ns(), context.settings, limit, before, state, search)
    return page if format == "json" else csv_answer(RequestRow, page.requests, "requests")


@router.get(
    "/api/requests/{request_id:path}",
    response_model=RequestDetail,
    responses={**example(200, REQUEST_DETAIL), 404: {"model": Problem, "description": "No such request, or several"}},
)
def get_request(
    context: Context,
    request_id: Annotated[str, Path(min_length=1, max_length=500, description="An id, or the start of just one")],
    format: FormatQuery = "json",
    table: Annotated[Literal["chain", "lane", "missed"], Query(description="Which table `format=csv` gives")] = "chain",
) -> RequestDetail | Response:
    """One request: where each block of its chain came from, what became of the block since, and its events."""
    index = context.conversations()
    with context.snapshot() as conn:
        found = chain_queries.read_detail(conn, index, context.now_ns(), context.settings, request_id)
    if format == "json":
        return found
    name = f"request-{found.request.request_id}-{table}"
    if table == "lane":
        return csv_answer(LaneRow, found.lane, name)
    if table == "missed":
        return csv_answer(MissedRun, found.missed, name)
    return csv_answer(ChainBlock, found.chain, name)
