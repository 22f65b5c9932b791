"""`vllm-restore replay`: plays, with a bar on stderr, and prints a table or JSON. The one door of this room."""

import logging
import os
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import URL

from connector import log
from connector.replay.errors import ReplayError
from connector.replay.plan import Wanted, plan
from connector.replay.results import as_json
from connector.replay.table import print_table

__all__ = ["ReplayError", "Wanted", "run"]


def run(wanted: Wanted, db: str | None, *, as_json_text: bool) -> None:
    """Play what is wanted and print what came out.

    Args:
        db: where the runs of our connector are logged; None: nowhere.

    Raises:
        ReplayError: it cannot be replayed as it was asked for.
        connector.log.LogError: the log cannot be written.
    """
    planned = plan(wanted)
    url = _make_log(db)
    # vLLM is loaded here, which takes seconds and says much.
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    logging.getLogger("vllm").setLevel(logging.ERROR)
    with _bar() as bar:
        loading = bar.add_task("loading vLLM", total=None)
        from connector.replay.play import Replay

        bar.remove_task(loading)
        task = bar.add_task("")
        replay = Replay(planned, url, lambda what, done, total: bar.update(
            task, description=what, completed=done, total=total
        ))  # fmt: skip
        results = replay.run()
    if as_json_text:
        sys.stdout.write(as_json(results, has_agents=planned.has_agents))
        sys.stderr.writelines(f"vllm-restore: {note}\n" for note in replay.notes)
        return
    title = f"{planned.what}: {planned.gpu_blocks:,} GPU blocks, {planned.cpu_blocks:,} CPU blocks"
    print_table(title, results, replay.notes, has_agents=planned.has_agents)


def _make_log(db: str | None) -> URL | None:
    if db is None:
        return None
    url = log.resolve_url(db)
    log.upgrade(url)
    return url


def _bar() -> Progress:
    terminal = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        # Nobody sees a bar in a file; it would leave an empty line there.
        disable=not terminal.is_interactive,
        transient=True,
    )
