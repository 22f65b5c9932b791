"""The results as a table for a person. Pure but for the terminal."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from connector.replay.results import Result

PIPE_WIDTH = 200
STOCK = "stock"


def print_table(title: str, results: Sequence[Result], notes: Sequence[str], *, has_agents: bool) -> None:
    """Print a row a policy, with its hit rate and its stores as a multiple of stock's, where stock was played."""
    stock = next((r for r in results if r.policy == STOCK), None)
    columns = _columns(stock, has_agents=has_agents)
    table = Table(title=title)
    table.add_column("policy")
    for name in columns:
        table.add_column(name, justify="right")
    for result in results:
        table.add_row(result.policy, *(show(result) for show in columns.values()))
    console = Console()
    if not console.is_terminal:
        console = Console(width=PIPE_WIDTH)
    console.print(table)
    for note in notes:
        console.print(f"- {note}", highlight=False)


def _columns(stock: Result | None, *, has_agents: bool) -> dict[str, Callable[[Result], str]]:
    agents: dict[str, Callable[[Result], str]] = {
        "agents' hit rate": lambda r: _rate(r.agents_hit_rate),
        "agents' × stock": lambda r: _times(r.agents_hit_rate, stock and stock.agents_hit_rate),
    }
    return {
        "hit rate": lambda r: _rate(r.hit_rate),
        "× stock": lambda r: _times(r.hit_rate, stock and stock.hit_rate),
        **(agents if has_agents else {}),
        "from GPU": lambda r: _share(r.gpu_hit_tokens, r.prompt_tokens),
        "from CPU": lambda r: _share(r.cpu_hit_tokens, r.prompt_tokens),
        "stored": lambda r: _count(r.stores),
        "stored × stock": lambda r: _times(r.stores, stock and stock.stores),
        "re-stored": lambda r: _count(r.restores),
        "loaded": lambda r: _count(r.loads),
        "evicted": lambda r: _count(r.evictions),
        "preemptions": lambda r: _count(r.preemptions),
        "steps": lambda r: _count(r.steps),
        "virtual s": lambda r: _count(r.virtual_seconds),
        "TTFT p50": lambda r: _seconds(r.ttft_p50_s),
        "p99": lambda r: _seconds(r.ttft_p99_s),
        "µs/step": lambda r: _count(r.scheduler_us_per_step_p50),
    }


def _rate(value: float | None) -> str:
    return "—" if value is None else f"{value:.3f}"


def _times(value: float | None, base: float | None) -> str:
    return "—" if value is None or not base else f"{value / base:.2f}×"


def _share(value: float | None, whole: float) -> str:
    return "—" if value is None or not whole else f"{100 * value / whole:.1f} %"


def _count(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f} s"
