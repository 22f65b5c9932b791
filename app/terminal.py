"""What commands write to, and what they do when nobody reads it any more, as in `vllm-restore db stats | head -1`."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

NOBODY_READS = 141
"""As a shell says of a program that SIGPIPE ended."""


def until_nobody_reads(command: Callable[[], int]) -> int:
    """Runs a command and writes out what it said. Returns its exit status; `NOBODY_READS`, and no word, where whoever
    reads its output has left."""
    try:
        try:
            status = command()
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffers would be tried again, and complained about, when the interpreter ends.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())
        return NOBODY_READS
    return status


def console(*, on_stderr: bool = False) -> "Console":
    """A console of rich that leaves a broken pipe to `until_nobody_reads`, so that what is under way can be ended."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Piped(stderr=on_stderr)


def progress(console: "Console", *, is_lasting: bool = True) -> "Progress":
    """A bar for so many requests. `is_lasting`: it stays when it is full, and is written where no terminal is, too."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not (is_lasting or console.is_terminal),
        transient=not is_lasting,
    )


def no_folder(folder: Path) -> str:
    """What is said where a file was to be written into this folder, which is none."""
    what = f"{folder} is no folder" if folder.exists() else f"there is no folder {folder}"
    return f"{what}; make it first, or choose another place with --out"
