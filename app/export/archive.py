"""`vllm-restore export`: the log as a folder of files, one a table, or as one zip of them.

What is written appears under its name only when it is complete. Nothing that lies there is overwritten.
"""

import tempfile
import time
import zipfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sqlalchemy import URL, Engine, func, select
from sqlalchemy.exc import SQLAlchemyError

from app.export.formats import FormatName, encode
from app.export.rows import TABLE_NAMES, Page, Selection, TableName, has_rows, read_pages
from app.moments import MomentError, iso, parse_range
from app.queries.engines import log_end
from app.settings import Settings
from app.terminal import no_folder
from connector import log
from connector.tables import engines

FILE_ENDINGS = {
    ".parquet", ".csv", ".json", ".jsonl", ".db", ".sqlite", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z",
    ".html", ".xlsx",
}  # fmt: skip
"""Who names a folder so wants one file, and would look into a folder with surprise."""


class ExportError(Exception):
    """Nothing was exported. The message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Written:
    """One file: its name, its size in bytes and the rows in it."""

    name: str
    num_bytes: int
    num_rows: int


def export(
    url: URL,
    out: Path,
    format: FormatName = "parquet",
    since: str | None = None,
    until: str | None = None,
    engine_id: int | None = None,
) -> list[Written]:
    """Write every table of the log into the folder `out`, or into the zip file `out` if its name ends so.

    Args:
        since, until: moments as `moments.parse_moment` takes them.
        engine_id: one start of an engine; None: all.

    Raises:
        LogError: the log cannot be used.
        ExportError: `out` is there already or cannot be written, an empty range, an engine that the log does not know.
    """
    reader = log.open_reader(url)
    try:
        selection = _selection(reader, since, until, engine_id)
        with _place(out) as place:
            if out.suffix.lower() == ".zip":
                return _write_zip(reader, place, format, selection)
            return _write_folder(reader, place, format, selection)
    except OSError as e:
        raise ExportError(f"cannot write {out}: {e.strerror or e}; choose another place with --out") from e
    except SQLAlchemyError as e:
        raise log.LogError(f"cannot read the log {url.database}: {getattr(e, 'orig', None) or e}") from e
    finally:
        reader.dispose()


def _selection(reader: Engine, since: str | None, until: str | None, engine_id: int | None) -> Selection:
    with reader.connect() as conn, conn.begin():
        end = log_end(conn, time.time_ns(), Settings())
        known = list(conn.execute(select(engines.c.id).order_by(engines.c.id)).scalars())
    if engine_id is not None and engine_id not in known:
        names = ", ".join(map(str, known)) or "none at all"
        raise ExportError(f"the log knows no engine {engine_id}; it knows {names}")
    try:
        selection = Selection(*parse_range(since, until, end), engine_id)
    except MomentError as e:
        raise ExportError(str(e)) from e
    if (since or until) and not any(has_rows(reader.connect, name, selection) for name in ("events", "steps")):
        raise ExportError(f"nothing happened in this range; {_reach(reader, end)}")
    return selection


def _reach(reader: Engine, end: int) -> str:
    with reader.connect() as conn, conn.begin():
        begin = conn.execute(select(func.min(engines.c.started_wall_ns))).scalar_one()
    return "the log is empty" if begin is None else f"the log reaches from {iso(begin)} to {iso(end)}"


@contextmanager
def _place(out: Path) -> Generator[Path]:
    """A place beside `out` to write to; renamed to `out` at the end, removed on any failure."""
    is_zip = out.suffix.lower() == ".zip"
    if out.suffix.lower() in FILE_ENDINGS:
        plain = out
        while plain.suffix.lower() in FILE_ENDINGS:
            plain = plain.with_suffix("")
        raise ExportError(f"{out} would be a folder, one file a table; name it {plain}, or end it in .zip")
    if out.is_dir() and not is_zip:
        if any(out.iterdir()):
            raise ExportError(f"the folder {out} is not empty; name a new one with --out")
        # What is there may be somebody's current folder: it stays the same one, and gets the files.
        with tempfile.TemporaryDirectory(prefix=".export.", dir=out) as folder:
            place = Path(folder) / "tables"
            yield place
            for file in sorted(place.iterdir()):
                file.rename(out / file.name)
        return
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out} is there already; name a new folder or a new .zip with --out")
    if not out.parent.is_dir():
        raise ExportError(no_folder(out.parent))
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        place = Path(folder) / out.name
        yield place
        place.rename(out)


def _write_folder(reader: Engine, folder: Path, format: FormatName, selection: Selection) -> list[Written]:
    folder.mkdir()
    written: list[Written] = []
    for name in TABLE_NAMES:
        path = folder / f"{name}.{format}"
        with path.open("wb") as file:
            written.append(_write_table(reader, file, name, format, selection))
    return written


def _write_zip(reader: Engine, path: Path, format: FormatName, selection: Selection) -> list[Written]:
    written: list[Written] = []
    # Parquet is compressed already.
    kind = zipfile.ZIP_STORED if format == "parquet" else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "x", kind) as archive:
        for name in TABLE_NAMES:
            # A folder in it, so that unpacking it anywhere spills nothing.
            with archive.open(f"{path.stem}/{name}.{format}", "w", force_zip64=True) as file:
                written.append(_write_table(reader, file, name, format, selection))
    return written


def _write_table(reader: Engine, file: IO[bytes], name: TableName, format: FormatName, selection: Selection) -> Written:
    num_rows = num_bytes = 0

    def counted() -> Iterator[Page]:
        nonlocal num_rows
        for page in read_pages(reader.connect, name, selection):
            num_rows += len(page)
            yield page

    for chunk in encode(name, format, counted()):
        file.write(chunk)
        num_bytes += len(chunk)
    return Written(f"{name}.{format}", num_bytes, num_rows)
