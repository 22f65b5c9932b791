"""How set-up speaks: progress lines, one-line errors, stamps, and running a command. Standard library only."""

import hashlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GIB = 1 << 30


class SetupError(Exception):
    """Set-up cannot go on. The message is one line: what is wrong and what to do."""


def say(text: str) -> None:
    """One progress line."""
    print(f"· {text}", flush=True)


@contextmanager
def progress(text: str) -> Generator[None]:
    """Says what starts now, and how many seconds it took."""
    started = time.monotonic()
    say(f"{text} …")
    yield
    say(f"{text}: done in {time.monotonic() - started:.0f} s")


def run(
    command: Sequence[str | Path],
    *,
    failure: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Runs a command in the open (its output is the person's to read).

    Raises:
        SetupError: it exited with anything but 0, or cannot be started; `failure` says what to do.
    """
    try:
        code = subprocess.run([str(part) for part in command], cwd=cwd, env=env, check=False).returncode
    except OSError as error:
        raise SetupError(f"{failure} ({error})") from error
    if code:
        raise SetupError(failure)


def need_space(folder: Path, gib: float, what: str) -> None:
    """Raises SetupError where the file system of `folder` has less than `gib` GiB free."""
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / GIB
    if free < gib:
        raise SetupError(
            f"no disk space for {what}: it needs about {gib:.1f} GiB under {folder}, {free:.1f} GiB are free. "
            "Free some, or move the checkout to a larger disk"
        )


def digest(paths: Iterable[Path], *more: str) -> str:
    """One hash over the names and contents of some files and a few strings."""
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    for text in more:
        total.update(text.encode() + b"\0")
    return total.hexdigest()


def read_stamp(path: Path) -> dict[str, Any]:
    """What a finished step left; empty when it never finished."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def write_stamp(path: Path, content: Mapping[str, Any]) -> None:
    """Leaves a step's stamp, all of it or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}")
    half.write_text(json.dumps(content, indent=1))
    half.replace(path)
