"""Reads the log's sums a second: totals of a range of whole seconds, in all or by bucket or by policy."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Integer, Label, Table, func, literal_column, select

from app.queries.ranges import SECOND_NS
from connector import tables

_r = tables.rollups.c


def read_totals(
    conn: Connection, columns: Sequence[str], start: int, end: int, engine_id: int | None = None
) -> dict[str, Any]:
    """The sums of a range, 0 where nothing happened. `start` and `end` are whole seconds, in nanoseconds."""
    sums = [func.coalesce(func.sum(_r[name]), 0).label(name) for name in columns]
    query = select(*sums).where(in_range(tables.rollups, start, end))
    if engine_id is not None:
        query = query.where(_r.engine_id == engine_id)
    return dict(zip(columns, conn.execute(query).one(), strict=True))


def read_groups(
    conn: Connection, table: Table, keys: Sequence[ColumnElement[Any]], columns: Sequence[str], start: int, end: int
) -> Sequence[Any]:
    """The sums of each group of rows that are equal in `keys`."""
    sums = [func.sum(table.c[name]).label(name) for name in columns]
    return conn.execute(select(*keys, *sums).where(in_range(table, start, end)).group_by(*keys)).all()


def in_range(table: Table, start: int, end: int) -> ColumnElement[bool]:
    """Rows of the seconds of a range; `end` is not in it."""
    return table.c.second.between(start // SECOND_NS, end // SECOND_NS - 1)


def slot_of(start: int, bucket: int) -> Label[Any]:
    """The number of the bucket that a row of either table belongs to."""
    # Both are whole numbers of ours and may stand in the text; as parameters they would make two columns of one.
    return literal_column(f"(second - {start // SECOND_NS}) / {bucket // SECOND_NS}", Integer).label("slot")
