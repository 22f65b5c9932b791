"""Rows of `events` as the API shows them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from app.errors import BadQueryError
from app.models import EventPage, EventRow
from connector import tables
from connector.events import EVENT_TYPES

_c = tables.events.c
_HEADER = (*tables.EVENT_HEADER, "kind", "request_id")
_DATA: Mapping[str, tuple[str, ...]] = {
    t.kind: tuple(n for n in tables.event_columns(t) if n != "request_id") for t in EVENT_TYPES
}
_ALL = select(tables.events)


def newest_seq(conn: Connection) -> int:
    """The last row's number; 0 in an empty log."""
    return conn.execute(select(func.coalesce(func.max(_c.seq), 0))).scalar_one()


def read_after(conn: Connection, after: int, limit: int) -> list[EventRow]:
    """The next rows after a number, in order."""
    rows = conn.execute(_ALL.where(_c.seq > after).order_by(_c.seq).limit(limit)).mappings()
    return [to_row(r) for r in rows]


def read_page(
    conn: Connection,
    after: int | None,
    before: int | None,
    kinds: Sequence[str] | None,
    request: str | None,
    limit: int,
) -> EventPage:
    """A page in the order of the log: after a number, or the last ones (before a number).

    Raises:
        BadQueryError: both `after` and `before`.
    """
    if after is not None and before is not None:
        raise BadQueryError("give `after` or `before`, not both: a page goes on in one direction")
    query = _ALL.limit(limit)
    if kinds:
        query = query.where(_c.kind.in_(kinds))
    if request is not None:
        query = query.where(is_request(request))
    newest = newest_seq(conn)
    if after is not None:
        rows = [to_row(r) for r in conn.execute(query.where(_c.seq > after).order_by(_c.seq)).mappings()]
        # A page that is not full has seen everything up to the newest row, fitting or not. A number beyond that one is
        # another log's, and is not repeated: who went on from it would wait for ever.
        last = rows[-1].seq if len(rows) == limit else newest
        return EventPage(events=rows, last_seq=last)
    if before is not None:
        query = query.where(_c.seq < before)
    rows = [to_row(r) for r in conn.execute(query.order_by(_c.seq.desc())).mappings()][::-1]
    last = newest if before is None else (rows[-1].seq if rows else 0)
    return EventPage(events=rows, last_seq=last)


def is_request(text: str) -> ColumnElement[bool]:
    """Rows of the requests whose id starts with `text`."""
    # A range and not LIKE: it uses the index, and no character means anything else. No id goes beyond U+10FFFF.
    return and_(_c.request_id >= text, _c.request_id < text + "\U0010ffff")


def any_request(ids: Sequence[tuple[int, str]]) -> ColumnElement[bool]:
    """Rows of exactly these requests, each (engine, id)."""
    return or_(*(and_(_c.request_id == i, _c.engine_id == e) for e, i in ids))


def matches(row: EventRow, kinds: Sequence[str] | None, request: str | None) -> bool:
    """Whether a row passes the filters of `read_page`."""
    if kinds and row.kind not in kinds:
        return False
    return request is None or (row.request_id is not None and row.request_id.startswith(request))


def to_row(row: Mapping[Any, Any]) -> EventRow:
    """A row of the table in the API's shape: hashes in hex, arrays as arrays."""
    header = {n: row[n] for n in _HEADER}
    return EventRow(**header, data={n: _plain(n, row[n]) for n in _DATA.get(row["kind"], ())})


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if name == "cpu_block_ids" and value is not None:
        return json.loads(value)
    return value
