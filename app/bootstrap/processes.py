"""Running a program so that nothing it started outlives it, whatever became of it. Standard library only."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GRACE_S = 10.0


def run_and_clean(command: Sequence[str | Path], cwd: Path, env: Mapping[str, str] | None = None) -> int:
    """Runs a command and then ends every process that descends from it. Returns its exit status."""
    # Orphans below a subreaper become its children, so they can still be found after their parents are gone.
    is_reaper = hasattr(ctypes, "CDLL") and _become_subreaper()
    process = subprocess.Popen([str(part) for part in command], cwd=cwd, env=env)
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                # The terminal has sent it to the whole group: the program is ending by itself.
                continue
    finally:
        if is_reaper:
            end_descendants()


def end_descendants() -> list[int]:
    """Ends every descendant of this process: SIGTERM, then SIGKILL after ten seconds. Returns whom it had to end."""
    ended = descendants(os.getpid())
    for sig, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 2.0)):
        deadline = time.monotonic() + patience
        for pid in descendants(os.getpid()):
            _send(pid, sig)
        while descendants(os.getpid()) and time.monotonic() < deadline:
            _reap()
            time.sleep(0.05)
        _reap()
    return ended


def descendants(pid: int) -> list[int]:
    """Every living process below `pid`, from /proc."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything; the state and the parent follow the last one.
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if state != "Z":
            children.setdefault(int(parent), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _become_subreaper() -> bool:
    try:
        return ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def _send(pid: int, sig: signal.Signals) -> None:
    try:
        os.kill(pid, sig)
    except ProcessLookupError:
        return


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return
