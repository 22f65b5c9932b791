"""`vllm-restore whatif`: plays a recorded log, with a bar, and prints a table or JSON."""

import sys

from rich.progress import Progress
from rich.table import Table
from sqlalchemy import URL

from app.models import WhatIf, WhatIfRow
from app.terminal import console
from app.whatif import GIB, parse_policies, parse_sizes, play
from connector import log


def run(url: URL, policies: str, cpu_gib: str | None, engine_id: int | None, *, as_json: bool) -> None:
    """Play the log and say what came out.

    Raises:
        connector.log.LogError: the log cannot be read.
        app.errors.BadQueryError: what was asked for cannot be played; the message says why.
    """
    names = parse_policies(policies)
    sizes = None if cpu_gib is None else parse_sizes(cpu_gib)
    reader = log.open_reader(url)
    try:
        terminal = console(on_stderr=True)
        # Nobody sees a bar in a file; it would leave an empty line there.
        with Progress(console=terminal, transient=True, disable=not terminal.is_interactive) as bar:
            task = bar.add_task("playing the log", total=None)
            found = play(
                reader.begin, names, sizes, engine_id, lambda seq, last: bar.update(task, completed=seq, total=last)
            )
    finally:
        reader.dispose()
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=2) + "\n")
    else:
        _print(found)


def _print(found: WhatIf) -> None:
    out = console()
    table = Table(
        title=f"{found.num_lookups:,} lookups of {found.prompt_tokens:,} prompt tokens, engine {found.engine_id}"
    )
    table.add_column("policy")
    for name in ("CPU tier", "blocks", "hit rate", "to the engine's own", "stored", "re-stored"):
        table.add_column(name, justify="right")
    table.add_row("as it was", "", "", _percent(found.hit_rate), "", "", "")
    for row in found.rows:
        table.add_row(
            row.policy,
            _size(row),
            f"{row.cpu_blocks:,}" if row.cpu_blocks is not None else "no bound",
            _percent(row.hit_rate),
            _difference(row.hit_rate, found.hit_rate),
            f"{row.stored_blocks:,}",
            f"{row.restored_blocks:,}",
        )
    out.print(table)
    for note in found.notes:
        out.print(f"- {note}", highlight=False)


def _size(row: WhatIfRow) -> str:
    return "no bound" if row.cpu_bytes is None else f"{row.cpu_bytes / GIB:.3g} GiB"


def _percent(rate: float | None) -> str:
    return "—" if rate is None else f"{100 * rate:.1f} %"


def _difference(rate: float | None, truth: float | None) -> str:
    return "—" if rate is None or truth is None else f"{100 * (rate - truth):+.1f} points"
