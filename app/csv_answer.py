"""Any view's rows as CSV: what stands behind `?format=csv`. Routes import it.

RFC 4180: a header row, CRLF, quotes where needed. Null is empty, booleans are `true` and `false`, lists and objects are
JSON text, a nested model is a column a field (`tokens.prompt_tokens`). Ids come from clients, and a spreadsheet takes a
text that begins with `=` for a formula: such a text gets an apostrophe before it.
"""

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response

from app.models import Format

FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What makes a cell a formula in one spreadsheet or another."""

FormatQuery = Annotated[Format, Query(description="`csv`: the rows as a file for a spreadsheet")]


def csv_answer(model: type[BaseModel], rows: Sequence[BaseModel], name: str) -> Response:
    """A download of `rows`, all of `model`, under a file name made of `name`. Without rows it has the header alone."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    paths = list(_paths(model))
    writer.writerow(".".join(path) for path in paths)
    writer.writerows([_cell(_at(row, path)) for path in paths] for row in rows)
    file_name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"restore-{name}").strip("-.")[:100]
    # Half a character, which JSON may name and an id may have, does not stop the file.
    body = text.getvalue().encode("utf-8", errors="backslashreplace")
    return Response(
        body,
        media_type="text/csv; charset=utf-8; header=present",
        headers={"Content-Disposition": f'attachment; filename="{file_name}.csv"', "Cache-Control": "no-store"},
    )


def _paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """The columns: every field, those of nested models each for itself."""
    for name, info in model.model_fields.items():
        if (inner := _nested(info.annotation)) is None:
            yield (name,)
        else:
            yield from ((name, *rest) for rest in _paths(inner))


def _nested(annotation: Any) -> type[BaseModel] | None:
    options: tuple[Any, ...] = get_args(annotation) if get_origin(annotation) is UnionType else (annotation,)
    return next((o for o in options if isinstance(o, type) and issubclass(o, BaseModel)), None)


def _at(row: BaseModel, path: tuple[str, ...]) -> Any:
    value: Any = row
    for name in path:
        value = None if value is None else getattr(value, name)
    return value


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        value = json.dumps(value, default=_plain)
    return f"'{value}" if value.startswith(FORMULA) else value


def _plain(value: Any) -> Any:
    assert isinstance(value, BaseModel)
    return value.model_dump()
