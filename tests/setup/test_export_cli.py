"""`vllm-restore export` and `report` as a person meets them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli import main
from connector import log
from connector.engine_row import EngineInfo, KVGroup, sign_in
from connector.events import Lookup

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line with `tmp_path` as the current folder."""

    def call(
        *arguments: str, without_root: bool = False, largest_file: int | None = None
    ) -> subprocess.CompletedProcess[str]:
        root = str(Path(__file__).resolve().parents[2])
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join([root, *sys.path])}
        command = [sys.executable, "-m", "app.cli", *arguments]
        if without_root and os.geteuid() == 0:
            # Modes of files hold for root as well, once it may not override them.
            command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
        if largest_file is not None:
            command = ["prlimit", f"--fsize={largest_file}", *command]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return call


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A log of one engine with two events: the policy that it began with, and a lookup."""
    url = log.resolve_url(str(tmp_path / "run.db"))
    log.upgrade(url)
    writer = log.open_writer(url)
    groups = (KVGroup(32, "FullAttentionSpec", True),)
    engine, _ = sign_in(writer, EngineInfo("uid", 0, "some-model", "0.32.0", "0.1.0", 32, 10, 10, 100, groups, "yes"))
    lookup = Lookup("r", 33, 0, 32, 0, 1, b"t", None, None, 1, False, False)
    with writer.begin() as conn:
        (now,) = conn.exec_driver_sql("SELECT started_wall_ns FROM engines").one()
        log.append(conn, engine, [(1, 1, now + 1, lookup)])
    writer.dispose()
    return "run.db"


@pytest.mark.parametrize(
    "command",
    [
        "app.cli --help", "app.cli --version", "app.cli whatif --help", "app.cli serve --help", "app.cli db stats",
        "app.cli db upgrade", "app.cli whatif", "app.cli whatif --json", "app.cli export --out out", "app.cli report",
        "app.cli dashboard --port 0", "app.openapi",
    ],
)  # fmt: skip
def test_nobody_reads_any_more_is_no_fault(recorded: str, tmp_path: Path, command: str) -> None:
    """As at the left of a pipe whose right side has ended, in the words of a shell: 128 + SIGPIPE."""
    module, *arguments = command.split()
    named = not {"--help", "--version", "app.openapi"} & {module, *arguments}
    root = str(Path(__file__).resolve().parents[2])
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join([root, *sys.path])}
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as out:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments, *(["--db", recorded] if named else [])],
            env=environment, cwd=tmp_path, stdout=out, stderr=subprocess.PIPE, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr, "Broken pipe" in done.stderr) == (141, False, False)
    if "serve" not in arguments:  # vLLM says what it finds as it is imported
        assert done.stderr.strip() == ""


def test_export_says_what_it_wrote_and_where(run: Run, recorded: str, tmp_path: Path) -> None:
    done = run("export", "--db", recorded, "--out", "out")
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["events.parquet", "2", "rows"] in [w[:3] for w in words]
    assert done.stdout.endswith("written to out\n")
    assert (tmp_path / "out" / "events.parquet").read_bytes()[:4] == b"PAR1"


def test_json_is_one_object_a_line(run: Run, recorded: str, tmp_path: Path) -> None:
    assert run("export", "--db", recorded, "--out", "out", "--format", "json").returncode == 0
    assert len((tmp_path / "out" / "events.jsonl").read_text().splitlines()) == 2


def test_report_is_one_file(run: Run, recorded: str, tmp_path: Path) -> None:
    done = run("report", "--db", recorded, "--out", "r.html")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("written to r.html (")
    assert "97 % of prompt tokens came from cache" in (tmp_path / "r.html").read_text("utf-8")


def test_an_empty_folder_that_is_there_stays_the_same_and_gets_the_files(
    run: Run, recorded: str, tmp_path: Path
) -> None:
    """It may be somebody's current folder."""
    out = tmp_path / "out"
    out.mkdir()
    before = out.stat().st_ino
    assert run("export", "--db", recorded, "--out", "out").returncode == 0
    assert out.stat().st_ino == before
    tables = ["block_hashes", "engines", "events", "policies", "retention_states", "steps"]
    assert sorted(p.name for p in out.iterdir()) == [f"{t}.parquet" for t in tables]


EXPORT, REPORT = ["export", "--db", "run.db", "--out"], ["report", "--no-what-if", "--db", "run.db", "--out"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--db", "none.db", "--out", "out"], "there is no log at"),
        (["export", "--db", "mine.txt", "--out", "out"], "mine.txt is not a SQLite database; nothing was changed"),
        ([*EXPORT, "run.db"], "run.db would be a folder, one file a table; name it run, or end it in .zip"),
        ([*EXPORT, "out.parquet"], "out.parquet would be a folder, one file a table; name it out, or end it in .zip"),
        ([*EXPORT, "out.csv.gz", "--format", "csv"], "out.csv.gz would be a folder, one file a table; name it out, or"),
        ([*EXPORT, "mine"], "mine is there already; name a new folder"),
        ([*EXPORT, "mine.zip"], "mine.zip is there already; name a new folder or a new .zip"),
        ([*EXPORT, "none/out"], "there is no folder none; make it first, or choose another place with --out"),
        ([*EXPORT, "none/out.zip"], "there is no folder none; make it first"),
        ([*EXPORT, "mine/out"], "mine is no folder; make it first"),
        ([*EXPORT, "out", "--engine", "9"], "the log knows no engine 9; it knows 1"),
        ([*EXPORT, "out", "--since", "noon"], "'noon' names no moment; write 2026-"),
        ([*EXPORT, "out", "--since", "2002-01-01", "--until", "2001-01-01"], "--since 2002-01-01 is not before --u"),
        ([*EXPORT, "out", "--since", "2200-01-01"], "--since 2200-01-01 is not before the log's end, 20"),
        ([*EXPORT, "out", "--since", "2001-01-01", "--until", "2002-01-01"], "nothing happened in this range; the log"),
        ([*EXPORT, "out.zip", "--until", "2001-01-01"], "nothing happened in this range; the log reaches from 20"),
        (["export", "--db", "run.db"], "the following arguments are required: --out"),
        ([*EXPORT, "out", "--format", "xlsx"], "invalid choice: 'xlsx'"),
        (["report", "--db", "none.db"], "there is no log at"),
        (["report", "--db", "mine.txt"], "mine.txt is not a SQLite database; nothing was changed"),
        ([*REPORT, "."], "is a folder; name a file with --out"),
        ([*REPORT, "out.pdf"], "a report is an HTML page, and out.pdf does not say so; name it out.html"),
        ([*REPORT, "mine.html"], "mine.html is there and is no HTML page; name another file with --out"),
        ([*REPORT, "none/out.html"], "there is no folder none; make it first, or choose another place with --out"),
        ([*REPORT, "mine/out.html"], "mine is no folder; make it first"),
        ([*REPORT, "out.html", "--since", "2002-01-01", "--until", "2001-01-01"], "is not before --until 2001-01-01"),
        ([*REPORT, "out.html", "--since", "2200-01-01"], "--since 2200-01-01 is not before the log's end, 20"),
        ([*REPORT, "out.html", "--since", "2001-01-01", "--until", "2002-01-01"], "no engine ran in this range; the"),
        ([*REPORT, "out.html", "--until", "2001-01-01"], "no engine ran in this range; the log reaches from 20"),
        (["whatif", "--db", "mine.txt"], "mine.txt is not a SQLite database; nothing was changed"),
        (["whatif", "--db", "run.db", "--policies", "best"], "there is no policy 'best' to play; there are off"),
        (["whatif", "--db", "run.db", "--cpu-gib", "0"], "'0' is no size: give numbers of GiB greater than 0"),
        (["whatif", "--db", "run.db", "--cpu-gib", "1e-9"], "1e-09 GiB hold no block: one takes 100 bytes"),
        (["whatif", "--db", "run.db", "--engine", "9"], "there is no engine 9 in this log; vllm-restore db stats"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(
    recorded: str,
    tmp_path: Path,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("mine", "mine.zip", "mine.html", "mine.txt"):
        (tmp_path / name).write_text("mine")
    before = _files(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        status = main(arguments)
    except SystemExit as e:  # argparse's way
        status = e.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert said in err.splitlines()[-1]
    if not err.startswith("usage:"):
        assert len(err.splitlines()) == 1
    assert _files(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "out"), [(EXPORT, "closed/out"), (EXPORT, "closed"), (REPORT, "closed/out.html")]
)
def test_a_folder_that_may_not_be_written_is_one_clear_line(
    run: Run, recorded: str, tmp_path: Path, arguments: list[str], out: str
) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    before = _files(tmp_path)
    done = run(*arguments, out, without_root=True)
    assert done.returncode == 2
    assert done.stderr == f"vllm-restore: cannot write {out}: Permission denied; choose another place with --out\n"
    assert _files(tmp_path) == before


def test_a_disk_that_is_full_leaves_nothing(run: Run, recorded: str, tmp_path: Path) -> None:
    """A limit on the size of a file stands for it. SQLite's own files have their size by then."""
    before = _files(tmp_path)
    reader = log.open_reader(log.resolve_url(str(tmp_path / recorded)))
    with reader.connect() as conn, conn.begin():
        conn.exec_driver_sql("SELECT count(*) FROM events")
        for out in ("out", "out.zip"):
            done = run(*EXPORT, out, largest_file=2_000)
            assert done.returncode == 2
            assert done.stderr == f"vllm-restore: cannot write {out}: File too large; choose another place with --out\n"
    reader.dispose()
    assert _files(tmp_path) == before


def _files(folder: Path) -> dict[str, str]:
    """Everything in it but what SQLite makes beside a log that is read."""
    found = {str(p.relative_to(folder)): p.read_text() if "mine" in p.name else "" for p in folder.rglob("*")}
    return {name: text for name, text in found.items() if not name.endswith(("-wal", "-shm"))}
