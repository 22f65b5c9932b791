"""A table's pages as a Parquet file, a row group a page, through pyarrow. `formats` alone imports it, and late: pyarrow
takes half a second to load.
"""

import importlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from app.export.columns import Field
from app.export.rows import Page, TableName

# It comes without types; so each use of it is of an unknown type, and said so once.
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

TYPES: dict[str, Any] = {
    "integer": pa.int64(),
    "real": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "bytes": pa.binary(),
    "integers": pa.list_(pa.int64()),
    "time": pa.timestamp("ns", tz="UTC"),
}


class _Sink(io.RawIOBase):
    """Takes what the Parquet writer writes, to be passed on a row group at a time. It cannot seek, as a socket."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any, /) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._position += len(part)
        return len(part)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def parquet(name: TableName, fields: Sequence[Field], pages: Iterable[Page]) -> Iterator[bytes]:
    """The file's bytes, the last chunk being its footer. Comments of columns are in the schema's field metadata."""
    columns = [pa.field(f.name, TYPES[f.kind], f.is_nullable, {"comment": f.comment or ""}) for f in fields]
    schema = pa.schema(columns, {"vllm_restore_table": name})
    sink = _Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for page in pages:
            values = list(zip(*page, strict=True))
            arrays = [pa.array(_values(f, values[f.position]), TYPES[f.kind]) for f in fields]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=len(page))
            if chunk := sink.take():
                yield chunk
    yield sink.take()


def _values(field: Field, values: Sequence[Any]) -> Sequence[Any]:
    if field.kind == "integers":
        return [None if v is None else json.loads(v) for v in values]
    return values
