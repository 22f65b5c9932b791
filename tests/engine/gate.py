"""A gate before every copy of one rank: while a test keeps it shut, what was ordered stays in flight.

A gate is a file with a lock on it. A copy takes a share of the lock, the test takes the whole of it: nobody polls, and
a gate that its keeper left behind is open. `gated_worker` puts the gates into vLLM's worker.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine import tiny

FOLDER = "RESTORE_TEST_GATES"
"""The environment's name for the folder of the gates."""
FLAGS = ("--worker-cls", "tests.engine.gated_worker.GatedWorker")


def environment(folder: Path) -> dict[str, str]:
    """What a server has to be told, so that its workers find the gates."""
    return {FOLDER: str(folder), "PYTHONPATH": tiny.python_path()}


@contextmanager
def shut(folder: Path, rank: int = 0) -> Iterator[None]:
    """While this is entered, no copy of the rank begins; at its beginning none is half done."""
    with _file(folder, rank) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def passing(folder: Path, rank: int) -> Iterator[None]:
    """One copy: waits until the gate is open, and counts when it is done."""
    with _file(folder, rank) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
        os.write(file, b".")


def num_passed(folder: Path, rank: int) -> int:
    """How many copies, stores and loads, the rank has done."""
    return (folder / f"rank-{rank}").stat().st_size


@contextmanager
def _file(folder: Path, rank: int) -> Iterator[int]:
    file = os.open(folder / f"rank-{rank}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        yield file
    finally:
        os.close(file)
