"""The log's tables in pages, in the order of their keys, each page in a short transaction of its own.

So an export of any length neither fills the memory nor keeps the engine's WAL from being folded back. What is exported
is what the engine wrote; `rollups` and `rollup_causes` are sums of it and stay behind.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, get_args

from sqlalchemy import ColumnElement, Connection, Table, func, select, tuple_

from connector import tables

TableName = Literal["engines", "policies", "block_hashes", "steps", "events", "retention_states"]
TABLE_NAMES: tuple[TableName, ...] = get_args(TableName)
PAGE_ROWS = 20_000

Connect = Callable[[], Connection]
Page = Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Selection:
    """What to export.

    Attributes:
        since_ns, until_ns: wall time in nanoseconds, `until_ns` not in it; None: no bound. Only `steps`, `events` and
            `retention_states` have a time: of the other tables every row is exported, so that whatever an event names
            is there.
        engine_id: one start of an engine; None: all. Policies belong to none and are all exported.
    """

    since_ns: int | None = None
    until_ns: int | None = None
    engine_id: int | None = None


def table_of(name: TableName) -> Table:
    """The SQLAlchemy table of this name."""
    return tables.metadata.tables[name]


def read_pages(connect: Connect, name: TableName, selection: Selection, page_rows: int = PAGE_ROWS) -> Iterator[Page]:
    """Pages of up to `page_rows` rows, none of them empty; a row has its values in the table's order of columns.

    Of events, those that were in the log when it began. The first page is read before this returns, so that a log that
    cannot be read says so at once.

    Raises:
        LogError: the log is missing or cannot be used.
    """
    pages = _pages(connect, table_of(name), selection, page_rows)
    first = next(pages, None)
    return pages if first is None else chain([first], pages)


def has_rows(connect: Connect, name: TableName, selection: Selection) -> bool:
    """Whether there is anything of this table to export."""
    table = table_of(name)
    with connect() as conn, conn.begin():
        query = select(1).select_from(table).where(*_where(table, selection)).limit(1)
        return conn.execute(query).first() is not None


def _pages(connect: Connect, table: Table, selection: Selection, page_rows: int) -> Iterator[Page]:
    keys = list(table.primary_key.columns)
    positions = [list(table.columns).index(k) for k in keys]
    where = _where(table, selection)
    if table is tables.events:
        with connect() as conn, conn.begin():
            last_seq = conn.execute(select(func.max(tables.events.c.seq))).scalar_one()
        where.append(tables.events.c.seq <= (last_seq or 0))
    after: tuple[Any, ...] | None = None
    while True:
        query = select(table).where(*where).order_by(*keys).limit(page_rows)
        if after is not None:
            query = query.where(tuple_(*keys) > tuple_(*after))
        with connect() as conn, conn.begin():
            page = conn.execute(query).fetchall()
        if page:
            yield page
        if len(page) < page_rows:
            return
        after = tuple(page[-1][i] for i in positions)


def _where(table: Table, selection: Selection) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = []
    engine = table.c.get("id" if table is tables.engines else "engine_id")
    if selection.engine_id is not None and engine is not None:
        where.append(engine == selection.engine_id)
    wall_ns = table.c.get("wall_ns")
    if wall_ns is not None:
        if selection.since_ns is not None:
            where.append(wall_ns >= selection.since_ns)
        if selection.until_ns is not None:
            where.append(wall_ns < selection.until_ns)
    return where
