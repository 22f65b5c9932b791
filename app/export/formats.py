"""A table's pages as the bytes of a file, a chunk a page: Parquet, CSV or JSON lines.

Parquet keeps every type (block hashes as binary, lists as lists, times as timestamps). CSV and JSON have hashes in hex
and times in ISO 8601. `archive` and `routes/export.py` import it.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from app.csv_answer import FORMULA
from app.export.columns import Field, fields_of
from app.export.rows import Page, TableName, table_of

FormatName = Literal["parquet", "csv", "jsonl"]
FORMAT_NAMES: tuple[FormatName, ...] = get_args(FormatName)
MEDIA_TYPES: dict[FormatName, str] = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8; header=present",
    "jsonl": "application/jsonl; charset=utf-8",
}
SECOND_NS = 1_000_000_000


def encode(name: TableName, format: FormatName, pages: Iterable[Page]) -> Iterator[bytes]:
    """The file's bytes. A table without rows gives a file with columns and no rows."""
    fields = fields_of(table_of(name))
    match format:
        case "parquet":
            # Half a second to load, so only where somebody wants Parquet.
            from app.export.parquet import parquet

            return parquet(name, fields, pages)
        case "csv":
            return _csv(fields, pages)
        case "jsonl":
            return _json_lines(fields, pages)


# --- text ------------------------------------------------------------------------------------------------------------


def _csv(fields: Sequence[Field], pages: Iterable[Page]) -> Iterator[bytes]:
    cells = [_CELLS.get(f.kind, _as_it_is) for f in fields]
    yield _csv_lines([[f.name for f in fields]])
    for page in pages:
        yield _csv_lines(
            ["" if (v := row[f.position]) is None else cell(v) for f, cell in zip(fields, cells, strict=True)]
            for row in page
        )


def _csv_lines(rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _json_lines(fields: Sequence[Field], pages: Iterable[Page]) -> Iterator[bytes]:
    cells = [_JSON_CELLS.get(f.kind, _as_it_is) for f in fields]
    # Made once: `json.dumps` with separators of its own makes an encoder for each call.
    dump = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    for page in pages:
        lines = (
            # What is null is left out: of the many columns of `events`, each kind has a few.
            {f.name: cell(v) for f, cell in zip(fields, cells, strict=True) if (v := row[f.position]) is not None}
            for row in page
        )
        yield "".join(f"{dump(line)}\n" for line in lines).encode()


def _as_it_is(value: Any) -> Any:
    return value


def _csv_text(value: str) -> str:
    """Ids come from clients; a spreadsheet would take one that begins so for a formula."""
    return f"'{value}" if value.startswith(FORMULA) else value


def _time(wall_ns: int) -> str:
    seconds, ns = divmod(wall_ns, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{ns:09d}Z"


_JSON_CELLS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.hex, "time": _time, "integers": json.loads,
}  # fmt: skip
_CELLS: dict[str, Callable[[Any], Any]] = {
    "bytes": bytes.hex, "text": _csv_text, "time": _time, "boolean": lambda v: "true" if v else "false",
}  # fmt: skip
