"""The first screen: engines, the totals of a range, and its timeline."""

from fastapi import APIRouter
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import ENGINE, SUMMARY, TIMELINE, example
from app.models import Engine, Problem, Summary, Timeline, TimelinePoint
from app.queries import engines as engine_queries
from app.queries import summary as summary_queries
from app.queries import timeline as timeline_queries
from app.routes.ranges import Bucket, WallNs

router = APIRouter(tags=["overview"])


@router.get("/api/engines", response_model=list[Engine], responses=example(200, [ENGINE]))
def get_engines(context: Context, format: FormatQuery = "json") -> list[Engine] | Response:
    """Every start of an engine that this log knows, newest first."""
    with context.snapshot() as conn:
        found = engine_queries.read_engines(conn, context.now_ns(), context.settings)
    return found if format == "json" else csv_answer(Engine, found, "engines")


@router.get(
    "/api/summary",
    response_model=Summary,
    responses={**example(200, SUMMARY), 422: {"model": Problem, "description": "An empty range"}},
)
def get_summary(
    context: Context, since: WallNs = None, until: WallNs = None, format: FormatQuery = "json"
) -> Summary | Response:
    """The totals from `since`, or the log's begin, to `until`, or now."""
    with context.snapshot() as conn:
        found = summary_queries.read_summary(conn, since, until, context.now_ns(), context.settings)
    return found if format == "json" else csv_answer(Summary, [found], "summary")


@router.get(
    "/api/timeline",
    response_model=Timeline,
    responses={**example(200, TIMELINE), 422: {"model": Problem, "description": "A range that cannot be drawn"}},
)
def get_timeline(
    context: Context,
    since: WallNs = None,
    until: WallNs = None,
    bucket: Bucket = None,
    format: FormatQuery = "json",
) -> Timeline | Response:
    """Tokens by source, blocks by what happened to them, and policy changes, in buckets of equal length.

    The last 15 minutes if no range is given. 2,000 points at most. Buckets of a second and more are whole seconds.
    """
    with context.snapshot() as conn:
        found = timeline_queries.read_timeline(conn, since, until, bucket, context.now_ns(), context.settings)
    return found if format == "json" else csv_answer(TimelinePoint, found.points, "timeline")
