"""The log's tables as files to download, whole or of a range, and the report. Both in bounded memory or size."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.responses import Response

from app.deps import Context
from app.errors import BadQueryError
from app.export.formats import MEDIA_TYPES, FormatName, encode
from app.export.rows import Selection, TableName, read_pages
from app.models import Engine, Problem
from app.report import CurvePoint, WhatIfCurve, render
from app.routes.ranges import WallNs

router = APIRouter(tags=["export"])


@router.get(
    "/api/export/{table}.{format}",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "The file: its first bytes come at once, whatever its length",
            "content": {media.split(";")[0]: {} for media in MEDIA_TYPES.values()},
        },
        422: {"model": Problem, "description": "A table or format that is not exported, or an empty range"},
    },
)
def get_export(
    context: Context,
    table: TableName,
    format: FormatName,
    since: WallNs = None,
    until: WallNs = None,
    engine: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="One start of an engine")] = None,
) -> StreamingResponse:
    """One table of the log. A range applies to `steps` and `events`; of the other tables every row is given."""
    if since is not None and until is not None and since >= until:
        raise BadQueryError(f"the range is empty: since ({since}) must be before until ({until})")
    pages = read_pages(context.connect, table, Selection(since, until, engine))
    return StreamingResponse(
        encode(table, format, pages),
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="restore-{table}.{format}"'},
    )


@router.get(
    "/api/report",
    response_class=HTMLResponse,
    responses={422: {"model": Problem, "description": "An empty range, or a log in which no engine ever ran"}},
)
def get_report(context: Context, since: WallNs = None, until: WallNs = None) -> Response:
    """One HTML file that explains the range and needs nothing else. From the log's begin to now if none is given.

    What other sizes of the tier would have given comes from the shadows, once they have read the log; the command
    `vllm-restore report` plays them itself.
    """

    def curve_of(_: object, engine: Engine) -> WhatIfCurve:
        now = context.now_ns()
        shadows = context.shadows.read(engine.started_wall_ns, now, max(1, now - engine.started_wall_ns))
        if shadows.unsupported is not None:
            return WhatIfCurve((), [f"It cannot be played: {shadows.unsupported}."])
        if not shadows.is_caught_up or shadows.engine_id != engine.id:
            return WhatIfCurve((), ["The shadows have not read the whole log yet. A report made later will have them."])
        points = [CurvePoint(r.policy, r.cpu_bytes, r.hit_rate) for r in shadows.curve]
        return WhatIfCurve(points, shadows.notes, shadows.hit_rate, engine.num_cpu_blocks * engine.block_bytes)

    page = render(context.snapshot, since, until, context.now_ns(), context.settings, curve_of)
    return HTMLResponse(
        page,
        headers={
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
            "Content-Disposition": 'inline; filename="restore-report.html"',
            "Referrer-Policy": "no-referrer",
        },
    )
