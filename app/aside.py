"""Work that must not be felt: in a process of its own, which gets what the engine and the server leave.

In vLLM's API server a thread would take turns with the one that streams answers; a process at the lowest priority takes
only what nobody else wants.
"""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def start_aside(module: str, *arguments: str, stderr: int | None = None) -> subprocess.Popen[str]:
    """Start a module of this package with pipes at its stdin and stdout, in lines of text.

    It is not in the terminal's process group, so Ctrl-C does not reach it; it has to end when its stdin does, which is
    also what happens when this process is killed.

    Raises:
        OSError: no process can be started.
    """
    # This package, whatever lies in the working folder under the same name.
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        encoding="utf-8",
        env=os.environ | {"PYTHONPATH": path},
        process_group=0,
    )


def yield_to_all() -> None:
    """Take the lowest priority that an ordinary process can take."""
    os.nice(19)
