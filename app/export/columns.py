"""What a table's columns become in a file: their type, and a time of day beside every wall clock in nanoseconds.

`formats` alone imports it. Monotonic clocks and durations stay whole nanoseconds: they name no moment.
"""

from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Boolean, Column, Float, Integer, LargeBinary, Table

Kind = Literal["integer", "real", "boolean", "text", "bytes", "integers", "time"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column of a file. `position` is that of the column of the table that it is made of."""

    name: str
    kind: Kind
    position: int
    is_nullable: bool
    comment: str | None


def fields_of(table: Table) -> list[Field]:
    """The file's columns, in the table's order: `wall_ns` is followed by `wall_time`, in UTC."""
    found: list[Field] = []
    for position, column in enumerate(table.columns):
        found.append(Field(column.name, _kind(column), position, bool(column.nullable), column.comment))
        if column.name.endswith("wall_ns"):
            name = column.name.removesuffix("_ns") + "_time"
            found.append(Field(name, "time", position, bool(column.nullable), f"{column.name} as a time, UTC"))
    return found


def _kind(column: Column[object]) -> Kind:
    if column.name == "cpu_block_ids":
        return "integers"  # a JSON array in the log
    if isinstance(column.type, Boolean):
        return "boolean"
    if isinstance(column.type, Integer):  # BigInteger is one as well
        return "integer"
    if isinstance(column.type, Float):
        return "real"
    return "bytes" if isinstance(column.type, LargeBinary) else "text"
