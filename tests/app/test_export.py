"""The log as files: every row and every value, read back by the libraries that people read them with."""

import csv
import io
import json
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.export.archive import ExportError, export
from app.export.formats import encode
from app.export.rows import TABLE_NAMES, Selection, read_pages
from app.moments import MomentError, parse_moment
from connector import log
from connector.events import RetentionState

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
STATE = RetentionState(
    "worth", False, 30.5, 50.0, 200.0, 0.01, 11, 8, 60.0, (0.0, 0.5), ((0.5, 0.25), (0.75, 0.5)), (1.5, 9.0)
)
HEAD, TAIL = b"\x00\xff" * 16, b"\x01" * 32


@pytest.fixture
def filled(make_log: Callable[..., Any], kit: Any) -> Any:
    """Two engines. The first: three hashes, two steps, four events over ten seconds; the second: one event."""
    built = make_log()
    first, second = built.engine(), built.engine(engine_uid="other")
    built.chain(first, [HEAD, b"\x02" * 32, TAIL])
    built.step = 1
    built.write(first, kit.event("started", request_id="chat-é", session_id="=1+1", num_tokens=97), at=0)
    built.write(first, kit.step(num_stored=3), at=0)
    stored = kit.event("stored", num_blocks=3, head_hash=HEAD, tail_hash=TAIL, cpu_block_ids=(7, 8, 9), copy_ns=5)
    built.step = 2
    built.write(first, stored, kit.step(), at=4.000000001)
    lookup = kit.event("lookup", request_id="r2", is_skipped=True, is_resumed=False, missing_hash=HEAD)
    built.write(first, lookup, at=9)
    built.write(first, kit.event("finished"), at=10)
    built.write(second, kit.event("started", request_id="b"), at=5)
    built.write(first, STATE, at=8)
    built.policy(enabled=False)
    return built


def table(path: Path, name: str) -> pa.Table:
    return pq.read_table(path / f"{name}.parquet")


def test_every_row_of_every_table_is_in_its_parquet_file(filled: Any, tmp_path: Path) -> None:
    written = export(filled.url, tmp_path / "out")

    rows = {name: table(tmp_path / "out", name).num_rows for name in TABLE_NAMES}
    assert rows == {"engines": 2, "policies": 1, "block_hashes": 3, "steps": 2, "events": 5, "retention_states": 1}
    assert {w.name: w.num_rows for w in written} == {f"{n}.parquet": count for n, count in rows.items()}
    assert {p.name for p in tmp_path.iterdir()} == {"out", "log.db"} | {p.name for p in tmp_path.glob("log.db-*")}


def test_values_keep_their_types(filled: Any, tmp_path: Path) -> None:
    export(filled.url, tmp_path / "out")
    events = table(tmp_path / "out", "events")

    rows = events.drop_columns(["wall_time"]).to_pylist()
    [stored] = [r for r in rows if r["kind"] == "blocks_stored"]
    assert (stored["head_hash"], stored["tail_hash"]) == (HEAD, TAIL)
    assert stored["cpu_block_ids"] == [7, 8, 9]
    assert stored["copy_ns"] == 5
    assert stored["session_id"] is None
    [state] = table(tmp_path / "out", "retention_states").to_pylist()
    assert (state["is_guard_on"], state["lru_hit_blocks"], state["worth"]) == (False, 30.5, "[[0.5,0.25],[0.75,0.5]]")
    [lookup] = [r for r in rows if r["kind"] == "lookup"]
    assert (lookup["is_skipped"], lookup["is_resumed"], lookup["was_owned"]) == (True, False, None)
    assert (rows[0]["request_id"], rows[0]["session_id"], rows[0]["seq"]) == ("chat-é", "=1+1", 1)
    assert events.schema.field("head_hash").type == pa.binary()
    assert events.schema.field("is_skipped").type == pa.bool_()


def test_a_wall_clock_is_there_as_a_time_to_the_nanosecond_beside_the_raw_number(filled: Any, tmp_path: Path) -> None:
    export(filled.url, tmp_path / "out")
    events = table(tmp_path / "out", "events")

    assert events.schema.field("wall_time").type == pa.timestamp("ns", tz="UTC")
    assert events["wall_ns"].to_pylist()[1] == T0 + 4 * SECOND + 1
    # 1,790,000,000 s after the epoch is 2026-09-21 14:13:20 UTC.
    first = events["wall_time"].slice(0, 1).cast(pa.timestamp("us", tz="UTC"))
    assert first.to_pylist()[0] == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    assert events["wall_time"].cast(pa.int64()).to_pylist() == events["wall_ns"].to_pylist()
    engines = table(tmp_path / "out", "engines")
    assert "started_wall_time" in engines.column_names
    assert engines["stopped_wall_time"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("selection", "events", "steps"),
    [
        ({}, [1, 2, 3, 4, 5], 2),
        # The end is not in it.
        ({"since": "2026-09-21T14:13:24", "until": "2026-09-21T14:13:30Z"}, [2, 3, 5], 1),
        ({"engine_id": 2}, [5], 0),
        ({"since": str(T0 + 9 * SECOND), "engine_id": 1}, [3, 4], 0),
        # The log's last sign of life is a minute after T0.
        ({"since": "52s"}, [3, 4], 0),
    ],
)
def test_a_range_and_an_engine_choose_the_rows(
    filled: Any, tmp_path: Path, selection: dict[str, Any], events: list[int], steps: int
) -> None:
    export(filled.url, tmp_path / "out", **selection)

    assert table(tmp_path / "out", "events")["seq"].to_pylist() == events
    assert table(tmp_path / "out", "steps").num_rows == steps
    # What the events name is there whatever the range.
    assert table(tmp_path / "out", "block_hashes").num_rows == (0 if selection.get("engine_id") == 2 else 3)


def test_a_zip_holds_the_same_files_in_a_folder(filled: Any, tmp_path: Path) -> None:
    export(filled.url, tmp_path / "run.zip")

    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert sorted(archive.namelist()) == sorted(f"run/{n}.parquet" for n in TABLE_NAMES)
        events = pq.read_table(io.BytesIO(archive.read("run/events.parquet")))
    assert events["seq"].to_pylist() == [1, 2, 3, 4, 5]


def test_csv_has_hashes_in_hex_times_in_iso_and_no_formula(filled: Any, tmp_path: Path) -> None:
    export(filled.url, tmp_path / "out", "csv")

    with (tmp_path / "out" / "events.csv").open(newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))
    assert [r["seq"] for r in rows] == ["1", "2", "3", "4", "5"]
    assert rows[1]["head_hash"] == "00ff" * 16
    assert rows[1]["wall_time"] == "2026-09-21T14:13:24.000000001Z"
    assert rows[1]["cpu_block_ids"] == "[7,8,9]"
    assert rows[0]["session_id"] == "'=1+1"
    assert (rows[2]["is_skipped"], rows[2]["is_resumed"], rows[2]["was_owned"]) == ("true", "false", "")


def test_json_lines_have_what_is_not_null(filled: Any, tmp_path: Path) -> None:
    export(filled.url, tmp_path / "out", "jsonl")

    rows = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text("utf-8").splitlines()]
    assert [r["seq"] for r in rows] == [1, 2, 3, 4, 5]
    assert rows[0]["session_id"] == "=1+1"
    assert (rows[1]["head_hash"], rows[1]["cpu_block_ids"]) == ("00ff" * 16, [7, 8, 9])
    assert rows[2]["is_skipped"] is True
    assert "cpu_block_ids" not in rows[2]


@pytest.mark.parametrize("name", ["events", "steps", "block_hashes"])
def test_pages_leave_no_row_out_and_give_none_twice(filled: Any, name: Any) -> None:
    reader = log.open_reader(filled.url)
    try:
        whole = [row for page in read_pages(reader.connect, name, Selection()) for row in page]
        pages = [list(page) for page in read_pages(reader.connect, name, Selection(), page_rows=2)]
    finally:
        reader.dispose()
    assert [row for page in pages for row in page] == whole
    assert max(map(len, pages)) <= 2


def test_rows_that_come_while_it_is_read_are_left_for_the_next_time(filled: Any, kit: Any) -> None:
    reader = log.open_reader(filled.url)
    try:
        pages = read_pages(reader.connect, "events", Selection(), page_rows=2)
        filled.write(1, kit.event("finished"), at=20)
        assert [row[0] for page in pages for row in page] == [1, 2, 3, 4, 5]
    finally:
        reader.dispose()


def test_a_page_leaves_as_soon_as_it_is_read(filled: Any) -> None:
    reader = log.open_reader(filled.url)
    asked = 0

    def counted() -> Any:
        nonlocal asked
        for page in read_pages(reader.connect, "events", Selection(), page_rows=2):
            asked += 1
            yield page

    try:
        chunks = encode("events", "parquet", counted())
        assert next(chunks)[:4] == b"PAR1"
        assert asked == 1
    finally:
        reader.dispose()


# --- what does not work ----------------------------------------------------------------------------------------------


def test_nothing_that_is_there_is_overwritten(filled: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    (tmp_path / "run.zip").write_text("mine")
    with pytest.raises(ExportError, match="not empty; name a new one"):
        export(filled.url, tmp_path / "out")
    with pytest.raises(ExportError, match="is there already"):
        export(filled.url, tmp_path / "run.zip")
    assert (tmp_path / "run.zip").read_text() == "mine"


def test_a_failure_leaves_nothing_behind(filled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("app.export.archive.encode", full)
    with pytest.raises(ExportError, match="No space left on device; choose another place"):
        export(filled.url, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("log.db")] == []


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"engine_id": 3}, "knows no engine 3; it knows 1, 2"),
        ({"since": "yesterday"}, "'yesterday' names no moment"),
        ({"since": "1m", "until": "2m"}, "--since 1m is not before --until 2m"),
    ],
)
def test_a_mistake_is_said(filled: Any, tmp_path: Path, selection: dict[str, Any], said: str) -> None:
    with pytest.raises(ExportError, match=said):
        export(filled.url, tmp_path / "out", **selection)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:01", 60 * SECOND),
        ("1970-01-01T01:00:00.5+01:00", SECOND // 2),
        ("1970-01-02", 86_400 * SECOND),
        ("90s", 910 * SECOND),
        ("15m", 100 * SECOND),
        ("3d", 0),
        (str(T0), T0),
        # The last that SQLite can compare with: 2262.
        ("9999-12-31", 2**63 - 1),
        ("9999999999999999999", 2**63 - 1),
    ],
)
def test_moments(text: str, expected: int) -> None:
    assert parse_moment(text, 1_000 * SECOND) == expected


@pytest.mark.parametrize("text", ["", "15", "m", "1969-12-31", "2026-13-01", "-5m"])
def test_no_moments(text: str) -> None:
    with pytest.raises(MomentError, match="write 2026"):
        parse_moment(text, 1_000 * SECOND)


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_a_table_can_be_downloaded(filled: Any, client_of: Callable[..., Any]) -> None:
    client = client_of(filled)
    answer = client.get("/restore/api/export/events.parquet", params={"since": T0 + 4 * SECOND, "engine": 1})

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    assert answer.headers["content-disposition"] == 'attachment; filename="restore-events.parquet"'
    assert answer.headers["cache-control"] == "no-store"
    assert pq.read_table(io.BytesIO(answer.content))["seq"].to_pylist() == [2, 3, 4]
    assert len(client.get("/restore/api/export/engines.jsonl").text.splitlines()) == 2
    # A header and one row.
    assert len(client.get("/restore/api/export/policies.csv").text.splitlines()) == 2


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("events.xlsx", 422),
        ("rollups.parquet", 422),
        ("alembic_version.parquet", 422),
        ("events.parquet?since=5&until=5", 422),
        ("events.parquet?engine=0", 422),
        ("events", 404),
    ],
)
def test_what_is_not_exported_is_refused(filled: Any, client_of: Callable[..., Any], path: str, status: int) -> None:
    answer = client_of(filled).get(f"/restore/api/export/{path}")
    assert answer.status_code == status
    assert answer.json()["detail"]


def test_a_download_is_protected_as_every_route_is(filled: Any, client_of: Callable[..., Any]) -> None:
    client = client_of(filled, api_keys=("secret",))
    assert client.get("/restore/api/export/events.parquet").status_code == 401
    allowed = client.get("/restore/api/export/events.parquet", headers={"Authorization": "Bearer secret"})
    assert allowed.status_code == 200


def test_without_a_log_the_answer_says_so(client_of: Callable[..., Any], tmp_path: Path) -> None:
    answer = client_of(str(tmp_path / "none.db")).get("/restore/api/export/events.parquet")
    assert answer.status_code == 503
    assert "there is no log" in answer.json()["detail"]
