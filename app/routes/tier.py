"""The CPU tier itself: what lies in each of its blocks, and in which order they would go."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import example
from app.examples_evidence import TIER
from app.models import MAX_INTEGER, Problem, Tier, TierBlock
from app.queries import tier as queries
from app.routes.ranges import WallNs

router = APIRouter(tags=["tier"])

Whole = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]


@router.get(
    "/api/tier",
    response_model=Tier,
    responses={
        **example(200, TIER),
        404: {"model": Problem, "description": "No such engine, or none at all"},
        422: {"model": Problem, "description": "An empty range"},
    },
)
def get_tier(
    context: Context,
    engine: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="An engine's `id`; the newest if not given")
    ] = None,
    seq: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="As of this row of the log; the last if not given")
    ] = None,
    since: WallNs = None,
    until: WallNs = None,
    first_id: Whole = None,
    limit: Annotated[int, Query(ge=1, le=100_000)] = 20_000,
    format: FormatQuery = "json",
) -> Tier | Response:
    """Every CPU block of an engine as of a row of the log, and how old blocks get before they are evicted.

    `since` and `until` are the range of eviction ages and churn: from the engine's start to the row if not given.
    """
    index = context.conversations()
    with context.snapshot() as conn:
        found = queries.read_tier(conn, index, engine, seq, since, until, first_id or 0, limit)
    return found if format == "json" else csv_answer(TierBlock, found.blocks, f"tier-{found.engine_id}-{found.seq}")
