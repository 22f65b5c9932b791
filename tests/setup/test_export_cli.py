"""`vllm-restore export` and `report` as a person meets them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from connector import log
from connector.engine_row import EngineInfo, KVGroup, sign_in
from connector.events import Lookup

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command line with `tmp_path` as the current folder."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        root = str(Path(__file__).resolve().parents[2])
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": ":".join([root, *sys.path])}
        command = [sys.executable, "-m", "app.cli", *arguments]
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["export", "--db", "none.db", "--out", "out"], "there is no log at"),
        (["export", "--db", "run.db", "--out", "run.db"], "run.db is there already; name a new folder"),
        (["export", "--db", "run.db", "--out", "out", "--engine", "9"], "the log knows no engine 9; it knows 1"),
        (["export", "--db", "run.db", "--out", "out", "--since", "noon"], "'noon' names no moment; write 2026-"),
        (["export", "--db", "run.db"], "the following arguments are required: --out"),
        (["export", "--db", "run.db", "--out", "out", "--format", "xlsx"], "invalid choice: 'xlsx'"),
        (["report", "--db", "none.db"], "there is no log at"),
        (["report", "--db", "run.db", "--out", "."], "is a folder; name a file with --out"),
    ],
)
def test_a_mistake_is_one_clear_line(run: Run, recorded: str, tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()
