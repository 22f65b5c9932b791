"""The counterfactual: what the CPU tier would have given under another policy, or with another size."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import example
from app.examples_shadows import SHADOWS, WHATIF
from app.models import MAX_INTEGER, CurveRow, Problem, Shadow, Shadows, WhatIf, WhatIfRow
from app.queries.ranges import read_buckets
from app.routes.ranges import Bucket, WallNs
from app.whatif import play_aside

router = APIRouter(tags=["shadows"])

_BAD: dict[int | str, dict[str, Any]] = {
    422: {"model": Problem, "description": "An empty range, an unknown policy, a size that is none"}
}
_BUSY: dict[int | str, dict[str, Any]] = {409: {"model": Problem, "description": "Another what-if is being computed"}}
Table = Annotated[Literal["curve", "shadows"], Query(description="Which table `format=csv` gives")]


@router.get("/api/shadows", response_model=Shadows, responses={**example(200, SHADOWS), **_BAD})
def get_shadows(
    context: Context,
    since: WallNs = None,
    until: WallNs = None,
    bucket: Bucket = None,
    format: FormatQuery = "json",
    table: Table = "curve",
) -> Shadows | Response:
    """What tiers of metadata, which follow the newest engine's traffic, would have given. The last 15 minutes if no
    range is given. They begin to follow when they are first asked for: see `is_caught_up`."""
    with context.snapshot() as conn:
        span = read_buckets(conn, since, until, bucket, context.now_ns(), context.settings)
    found = context.shadows.read(*span)
    if format == "json":
        return found
    if table == "shadows":
        return csv_answer(Shadow, found.shadows, "shadows")
    return csv_answer(CurveRow, found.curve, "shadows-curve")


@router.get("/api/whatif", response_model=WhatIf, responses={**example(200, WHATIF), **_BAD, **_BUSY})
def get_whatif(
    context: Context,
    policies: Annotated[
        str, Query(description="Of off, tracked, adaptive, adaptive-off, unlimited", max_length=100)
    ] = "off,tracked,adaptive,unlimited",
    cpu_gib: Annotated[
        str | None, Query(description="Sizes with commas; the engine's own if not given", max_length=400)
    ] = None,
    engine: Annotated[
        int | None, Query(ge=1, le=MAX_INTEGER, description="The newest with traffic if not given")
    ] = None,
    format: FormatQuery = "json",
) -> WhatIf | Response:
    """Play the whole log of one engine under other policies and sizes: some seconds a hundred thousand rows."""
    with context.snapshot():
        pass  # a log that cannot be read says so here, as everywhere
    found = play_aside(context.named_log(), policies, cpu_gib, engine, context.tailer.exit_signalled)
    return found if format == "json" else csv_answer(WhatIfRow, found.rows, "whatif")
