"""The switch: what the engines obey, and the one route that changes it."""

import asyncio
import time
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.exc import SQLAlchemyError

from app.context import AppContext
from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.errors import ConflictError
from app.examples import POLICY_APPLIED, POLICY_HISTORY, POLICY_PENDING, example
from app.models import PolicyChange, PolicyHistoryEntry, PolicyState, Problem
from app.queries import policy as queries
from connector import log
from connector.log import LogError

router = APIRouter(tags=["policy"])


@router.get("/api/policy", responses=example(200, POLICY_APPLIED))
def get_policy(context: Context) -> PolicyState:
    """The newest policy and what every live engine answered to it."""
    with context.snapshot() as conn:
        return queries.read_state(conn, context.now_ns(), context.settings)


@router.put(
    "/api/policy",
    responses={
        **example(200, POLICY_APPLIED, "Every live engine obeys it"),
        **example(202, POLICY_PENDING, "Stored, but not every engine obeys it yet, or can", PolicyState),
        400: {"model": Problem, "description": "A body that is no text, or that no parser takes"},
        409: {"model": Problem, "description": "A recorded log with no live engine"},
        415: {"model": Problem, "description": "Not `application/json`"},
        422: {"model": Problem, "description": "An unknown key or a value out of bounds; nothing was applied"},
    },
)
async def put_policy(change: PolicyChange, request: Request, response: Response, context: Context) -> PolicyState:
    """Change some toggles. Waits up to 2 seconds until every live engine has said from which step on it obeys."""
    # The follower is there before the row is: an engine's answer cannot fall between the two.
    with context.tailer.follow() as follower:
        await asyncio.to_thread(_write, context, change, _author(request))
        deadline = time.monotonic() + context.settings.policy_wait_seconds
        while True:
            state = await asyncio.to_thread(get_policy, context)
            left = deadline - time.monotonic()
            if not any(engine.is_pending for engine in state.engines) or left <= 0:
                break
            await follower.wait(left)
    if state.detail is not None:
        response.status_code = 202
    return state


@router.get("/api/policy/history", response_model=list[PolicyHistoryEntry], responses=example(200, [POLICY_HISTORY]))
def get_history(
    context: Context, limit: Annotated[int, Query(ge=1, le=1000)] = 100, format: FormatQuery = "json"
) -> list[PolicyHistoryEntry] | Response:
    """Who changed what and when, newest first, and where each engine began to obey."""
    with context.snapshot() as conn:
        found = queries.read_history(conn, limit)
    return found if format == "json" else csv_answer(PolicyHistoryEntry, found, "policy-history")


def _write(context: AppContext, change: PolicyChange, author: str) -> None:
    if context.settings.is_recorded:
        with context.snapshot() as conn:
            state = queries.read_state(conn, context.now_ns(), context.settings)
        if not state.can_change:
            raise ConflictError(
                "this is a recorded log and no engine is writing it, so nothing would obey; "
                "change the policy on the server that runs the engine"
            )
    writer = context.policy_writer()
    try:
        log.write_policy(writer, change.changes(), author)
    except SQLAlchemyError as e:
        raise LogError(
            f"the log cannot be written now, so nothing was changed: {getattr(e, 'orig', None) or e}; try again"
        ) from e


def _author(request: Request) -> str:
    """Who asked, for the audit trail: the client's address and the program it says it is."""
    host = request.client.host if request.client else "local socket"
    program = request.headers.get("user-agent", "").split(" ")[0]
    shown = "".join(c for c in program if c.isprintable())[:60]
    return f"{host} ({shown})" if shown else host
