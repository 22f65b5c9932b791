"""Factories of logs and apps for the tests of `app`: real SQLite files below `tmp_path`, written by the real writer."""

import asyncio
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from app.main import create_app
from app.settings import Settings
from connector import log, tables
from connector.events import (
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    ChainExtended,
    Event,
    Lookup,
    LookupWaits,
    PolicyApplied,
    RequestFinished,
    RequestStarted,
    StepTaken,
)

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
LIVE_AFTER_NS = 300 * SECOND
"""Nothing beats for the engines of these tests, and a test may wait for a machine that others use as well."""
BLOCK = 32


def block_hash(*path: object) -> bytes:
    """A hash for a place in a tree of prompts."""
    return hashlib.sha256(repr(path).encode()).digest()


class LogBuilder:
    """Writes a log row by row, at times and steps that the test chooses. Times are seconds after T0."""

    def __init__(self, path: Path, empty: Path) -> None:
        shutil.copy(empty, path)
        self.url = log.resolve_url(str(path))
        self.writer = log.open_writer(self.url)
        self.now = 0.0
        self.step = 0

    @property
    def path(self) -> str:
        """As a person would name it."""
        return str(self.url.database)

    def engine(self, **changes: Any) -> int:
        """An engine that started at T0 and was killed a minute later, unless told otherwise."""
        row: dict[str, Any] = {
            "engine_uid": "uid", "dp_index": 0, "pid": 1, "hostname": "box", "model": "m", "vllm_version": "0.32.0",
            "restore_version": "0.1.0", "sqlite_version": "3", "hash_block_size": BLOCK, "num_gpu_blocks": 100,
            "num_cpu_blocks": 50, "block_bytes": 1000,
            "kv_groups": '[{"block_size": 32, "kind": "full_attention", "is_prefix_cacheable": true}]',
            "restore_support": "yes", "started_wall_ns": T0, "started_monotonic_ns": 0,
            "heartbeat_wall_ns": T0 + 60 * SECOND, "stopped_wall_ns": None,
        }  # fmt: skip
        with self.writer.begin() as conn:
            key = conn.execute(tables.engines.insert().values(row | changes)).inserted_primary_key
        assert key is not None
        return key[0]

    def live_engine(self, **changes: Any) -> int:
        """An engine whose heartbeat is now; apps of these tests call it live for `LIVE_AFTER_NS`."""
        now = time.time_ns()
        return self.engine(**{"started_wall_ns": now - 60 * SECOND, "heartbeat_wall_ns": now, **changes})

    def beat(self, engine: int, wall_ns: int) -> None:
        """Set an engine's heartbeat."""
        with self.writer.begin() as conn:
            conn.execute(tables.engines.update().where(tables.engines.c.id == engine).values(heartbeat_wall_ns=wall_ns))

    def write(self, engine: int, *items: Event | ChainExtended | StepTaken, at: float | None = None) -> int:
        """Append items at one moment; returns the last seq."""
        if at is not None:
            self.now = at
        wall = T0 + round(self.now * SECOND)
        with self.writer.begin() as conn:
            return log.append(conn, engine, [(self.step, wall - T0, wall, i) for i in items])

    def chain(self, engine: int, hashes: Sequence[bytes], parent: bytes | None = None, depth: int = 0) -> None:
        """Tell the log about hashes, head first."""
        self.write(engine, ChainExtended(parent, depth, tuple(hashes)))

    def policy(self, **changes: Any) -> int:
        """A change of policy; returns its version."""
        return log.write_policy(self.writer, changes, "test").version


EVENTS: dict[str, Event] = {
    "started": RequestStarted("r", 65, 2, None, None),
    "lookup": Lookup("r", 65, 0, 0, 0, 2, None, None, None, 1, False, False),
    "waits": LookupWaits("r", 65, 0, 0, 2, None, 1),
    "stored": BlocksStored("r", 0, 0, 1, b"", b"", (0,), 1000, 1),
    "restored": BlocksRestored("r", 0, 0, 1, b"", b"", (0,), 1000, 1),
    "evicted": BlocksEvicted(None, None, 0, 0, 1, b"", b"", (0,), 0, None),
    "loaded": BlocksLoaded("r", 0, 0, 1, b"", b"", (0,), 1000, 1),
    "missed": BlocksMissed("r", "x", 0, 0, 1, b"", b"", 1, 2_000_000_000, 0, False),
    "finished": RequestFinished("r", "FINISHED_STOPPED", 65, 10, 2, None, 100, 200),
    "policy": PolicyApplied(0, True, "tracked", 64, False, "start"),
}
STEP = StepTaken(1, 10, 0, 0, 0, 0, 0, 50, 0, 0, 90, 1000)


def event(name: str, **changes: Any) -> Any:
    """An event of this kind with some fields replaced. A run of one block needs no `head_hash`: it is its tail."""
    template = EVENTS[name]
    if hasattr(template, "head_hash") and "tail_hash" in changes and "head_hash" not in changes:
        assert changes.get("num_blocks", 1) == 1, "a run of several blocks has a head of its own"
        changes["head_hash"] = changes["tail_hash"]
    return replace(template, **changes)


def step(**changes: Any) -> StepTaken:
    """A step's row with some fields replaced."""
    return replace(STEP, **changes)


class Server:
    """A real uvicorn in a thread. Signals do not reach it; `stop` sets what vLLM's launcher would set."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="on"))
        app.state.server = self.server
        self._started = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        asyncio.run(self.server.serve([self.socket]))

    def start(self) -> None:
        """Return when it takes connections: the socket listens already, so a request waits until it does."""
        self.thread.start()
        httpx.get(f"{self.url}/restore/healthz", timeout=30)

    def stop(self) -> None:
        """Ask it to exit and wait until it has."""
        self.server.should_exit = True
        self.thread.join(30)
        assert not self.thread.is_alive(), "the server did not exit"


@pytest.fixture(scope="session")
def empty_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log as the migrations make it, to be copied."""
    path = tmp_path_factory.mktemp("empty") / "log.db"
    log.upgrade(log.resolve_url(str(path)))
    return path


@pytest.fixture
def make_log(tmp_path: Path, empty_log: Path) -> Iterator[Callable[..., LogBuilder]]:
    """Build an empty log."""
    made: list[LogBuilder] = []

    def make(name: str = "log.db") -> LogBuilder:
        made.append(LogBuilder(tmp_path / name, empty_log))
        return made[-1]

    yield make
    for builder in made:
        builder.writer.dispose()


@pytest.fixture
def client_of() -> Iterator[Callable[..., Any]]:
    """A client, by default on this machine, of an app over a log."""
    from fastapi.testclient import TestClient

    with contextlib.ExitStack() as stack:

        def make(
            db: str | LogBuilder, *, client: str = "127.0.0.1", host: str = "127.0.0.1:8000", **settings: Any
        ) -> TestClient:
            path = db.path if isinstance(db, LogBuilder) else db
            app = create_app(Settings(db=path, **{"live_after_ns": LIVE_AFTER_NS, **settings}))
            return stack.enter_context(
                TestClient(app, base_url=f"http://{host}", client=(client, 50000), raise_server_exceptions=False)
            )

        yield make


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """A real server over a log, stopped at the end."""
    made: list[Server] = []

    def make(db: LogBuilder, **settings: Any) -> Server:
        server = Server(create_app(Settings(db=db.path, **{"live_after_ns": LIVE_AFTER_NS, **settings})))
        made.append(server)
        server.start()
        return server

    yield make
    for server in made:
        server.stop()


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], str]]]:
    """A process of its own that serves what `code` makes as `app`; killed at the end if it is still there."""
    made: list[subprocess.Popen[str]] = []

    def make(code: str) -> tuple[subprocess.Popen[str], str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        script = tmp_path / "serve.py"
        script.write_text(
            f"{code}\nimport uvicorn\nuvicorn.run(app, host='127.0.0.1', port={port}, log_level='info')\n"
        )
        root = str(Path(__file__).resolve().parents[2])
        env = {**os.environ, "PYTHONPATH": root}
        process = subprocess.Popen(
            [sys.executable, str(script)], stderr=subprocess.PIPE, text=True, env=env, cwd=tmp_path
        )
        made.append(process)
        assert process.stderr is not None
        for line in process.stderr:
            if "Uvicorn running" in line:
                return process, f"http://127.0.0.1:{port}"
        raise AssertionError(f"the server ended with {process.wait()}")

    yield make
    for process in made:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)


@pytest.fixture
def kit() -> Any:
    """This file itself, for tests that build logs."""
    return sys.modules[__name__]
