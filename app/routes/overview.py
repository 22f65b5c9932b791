"""The first screen: engines, the totals of a range, and its timeline."""

from typing import Annotated

from fastapi import APIRouter, Query

from app.deps import Context
from app.examples import ENGINE, SUMMARY, TIMELINE, example
from app.models import MAX_INTEGER, Engine, Problem, Summary, Timeline
from app.queries import engines as engine_queries
from app.queries import summary as summary_queries
from app.queries import timeline as timeline_queries

router = APIRouter(tags=["overview"])

WallNs = Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="Wall-clock nanoseconds since the epoch")]


@router.get("/api/engines", responses=example(200, [ENGINE]))
def get_engines(context: Context) -> list[Engine]:
    """Every start of an engine that this log knows, newest first."""
    with context.snapshot() as conn:
        return engine_queries.read_engines(conn, context.now_ns(), context.settings)


@router.get(
    "/api/summary",
    responses={**example(200, SUMMARY), 422: {"model": Problem, "description": "An empty range"}},
)
def get_summary(context: Context, since: WallNs = None, until: WallNs = None) -> Summary:
    """The totals from `since`, or the log's begin, to `until`, or now."""
    restored = context.restored_hits()
    with context.snapshot() as conn:
        return summary_queries.read_summary(conn, restored, since, until, context.now_ns(), context.settings)


@router.get(
    "/api/timeline",
    responses={**example(200, TIMELINE), 422: {"model": Problem, "description": "A range that cannot be drawn"}},
)
def get_timeline(
    context: Context,
    since: WallNs = None,
    until: WallNs = None,
    bucket: Annotated[
        float | None, Query(gt=0, le=86_400 * 366, description="Seconds a point; chosen to fit the range if not given")
    ] = None,
) -> Timeline:
    """Tokens by source, blocks by what happened to them, and policy changes, in buckets of equal length.

    The last 15 minutes if no range is given. 2,000 points at most.
    """
    restored = context.restored_hits()
    with context.snapshot() as conn:
        return timeline_queries.read_timeline(conn, restored, since, until, bucket, context.now_ns(), context.settings)
