"""Modules of ours in processes of their own; among them work that must not be felt.

In vLLM's API server a thread would take turns with the one that streams answers; a process at the lowest priority takes
only what nobody else wants.
"""

import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path


def module_command(module: str) -> list[str]:
    """Runs a module of ours. `-P`: the current folder, which is the person's, may have an `app` of its own."""
    return [sys.executable, "-P", "-X", "utf8", "-m", module]


def start_aside(module: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a module of this package with pipes at its stdin and stdout, in lines of text.

    It is not in the terminal's process group, so Ctrl-C does not reach it; it has to end when its stdin does, which is
    also what happens when this process is killed.

    Raises:
        OSError: no process can be started.
    """
    # From its first moment, its imports included, where the machine has the command.
    nice = [command, "-n", "19"] if (command := shutil.which("nice")) else []
    return subprocess.Popen(
        [*nice, *module_command(module), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        process_group=0,
    )


def yield_to_all() -> None:
    """Take the lowest priority that an ordinary process can take, and be the first that goes when memory runs out."""
    os.nice(19)
    with suppress(OSError):  # Linux has it
        Path("/proc/self/oom_score_adj").write_text("500")


def end_with_stdin() -> None:
    """Be gone when stdin ends: whoever wanted this is gone, also if it was killed. For a process that only reads."""

    def listen() -> None:
        sys.stdin.read()
        os._exit(1)

    threading.Thread(target=listen, name="stdin", daemon=True).start()
