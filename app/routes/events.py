"""The log itself: rows by page, and the same rows as they are written."""

import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.errors import BadQueryError
from app.examples import EVENT_PAGE, example
from app.models import MAX_INTEGER, EventKind, EventPage, EventRow
from app.queries import events as queries

router = APIRouter(tags=["events"])

Kinds = Annotated[list[EventKind] | None, Query(description="Only these kinds; may be given several times")]
RequestId = Annotated[str | None, Query(max_length=500, description="Only this request's rows: an id or its start")]
Seq = Annotated[int | None, Query(ge=0, le=MAX_INTEGER)]
_ROW_NUMBER = re.compile("[0-9]{1,19}")


@router.get("/api/events", response_model=EventPage, responses=example(200, EVENT_PAGE))
def get_events(
    context: Context,
    after: Seq = None,
    before: Seq = None,
    kind: Kinds = None,
    request: RequestId = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    format: FormatQuery = "json",
) -> EventPage | Response:
    """Rows in the order of the log: the next after `after`, or the last before `before`, or else the last of all."""
    with context.snapshot() as conn:
        page = queries.read_page(conn, after, before, kind, request, limit)
    return page if format == "json" else csv_answer(EventRow, page.events, "events")


def _start(
    context: Context,
    after: Seq = None,
    last_event_id: Annotated[str | None, Header(description="The id of the last row that the client has")] = None,
) -> tuple[int, int | None]:
    """Where a stream begins, and the place that the client named if that is beyond the log's end.

    A dependency, so that a log that cannot be read is a 503 and not a broken stream."""
    with context.snapshot() as conn:
        newest = queries.newest_seq(conn)
    # A reconnecting client sends the header, and its URL may still carry the `after` that it began with.
    if last_event_id:
        if not _ROW_NUMBER.fullmatch(last_event_id):
            raise BadQueryError("the header Last-Event-ID is the number of a row of the log, of 19 digits at most")
        after = int(last_event_id)
    if after is None:
        return newest, None
    # A number from another log's future would wait for ever.
    return (newest, after) if after > newest else (after, None)


@router.get(
    "/api/events/stream",
    response_class=EventSourceResponse,
    responses={
        200: {"description": "`event: log`: an EventRow, its seq as id; `event: gap`: a Gap; comments meanwhile"},
    },
)
async def stream_events(
    context: Context,
    start: Annotated[tuple[int, int | None], Depends(_start)],
    kind: Kinds = None,
    request: RequestId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Rows as they are written, from now on or after the given row. Resumes by `Last-Event-ID`."""
    after, other_place = start
    async for item in context.tailer.stream(after, context.settings.heartbeat_seconds, kind, request, other_place):
        yield item
