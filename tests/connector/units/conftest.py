"""Factories for the tests of the log ring: real SQLite files below `tmp_path`, real recorders, real processes."""

import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL

from connector import log
from connector.engine_row import EngineInfo, KVGroup
from connector.recorder import Recorder

ROOT = Path(__file__).resolve().parents[3]
DEADLINE_SECONDS = 60.0

Query = Callable[..., list[tuple[Any, ...]]]
RunPython = Callable[..., "subprocess.Popen[str]"]

INFO = EngineInfo(
    engine_uid="uid",
    dp_index=0,
    model="m",
    vllm_version="0.32.0",
    restore_version="0.1.0",
    hash_block_size=16,
    num_gpu_blocks=100,
    num_cpu_blocks=50,
    block_bytes=1000,
    kv_groups=(KVGroup(16, "FullAttentionSpec", True),),
    restore_support="yes",
)


@pytest.fixture(scope="session")
def empty_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log without rows, made once; copied for each test."""
    path = tmp_path_factory.mktemp("log") / "empty.db"
    log.upgrade(log.resolve_url(str(path)))
    return path


@pytest.fixture
def url(tmp_path: Path, empty_log: Path) -> URL:
    """A log of the test's own."""
    return log.resolve_url(str(shutil.copy(empty_log, tmp_path / "log.db")))


@pytest.fixture
def query(url: URL) -> Query:
    """Rows of the log, read with plain SQL over a connection of its own."""

    def read(sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{log.path_of(url).as_uri()}?mode=ro", uri=True)) as conn:
            return conn.execute(sql, parameters).fetchall()

    return read


@pytest.fixture
def make_recorder(url: URL) -> Iterator[Callable[..., Recorder]]:
    """Recorders on the test's log; all are closed afterwards."""
    made: list[Recorder] = []

    def make(info: EngineInfo = INFO, **settings: Any) -> Recorder:
        made.append(Recorder(url, info, **settings))
        return made[-1]

    yield make
    for recorder in made:
        recorder.close()


@pytest.fixture
def locked(url: URL) -> Iterator[sqlite3.Connection]:
    """A connection of somebody else, who holds the log's write lock until it commits."""
    with closing(sqlite3.connect(log.path_of(url), isolation_level=None)) as conn:
        conn.execute("BEGIN IMMEDIATE")
        yield conn


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], None]:
    """Looks at what another thread or process does until it is so; fails after a minute."""

    def wait(is_so: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        tick = threading.Event()
        while not is_so():
            assert time.monotonic() < deadline, "it did not come about"
            tick.wait(0.01)

    return wait


class Heard(logging.Handler):
    """What was logged, and an event that is set when anything was."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []
        self.anything = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.anything.set()


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Errors that the project's loggers wrote during the test."""
    handler = Heard()
    logger = logging.getLogger("vllm.restore")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.fixture
def run_python() -> Iterator[RunPython]:
    """Starts Python programs, given as text, that can import this checkout; what still runs is killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def run(program: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
