"""The comparison as a table for a person."""

from collections.abc import Callable

from rich.table import Table

from app import terminal
from app.bench.results import Comparison, Policy

MIB = 1 << 20


def print_table(title: str, comparison: Comparison) -> None:
    """Print a row a number, a column a policy; ratios to the baseline in brackets."""
    table = Table(title=title)
    table.add_column("")
    for policy in comparison.policies:
        table.add_column(policy.name, justify="right")
    for name, show in ROWS.items():
        table.add_row(name, *(show(policy) for policy in comparison.policies))
    console = terminal.console()
    console.print(table)
    console.print(words_of(comparison), highlight=False)


def words_of(comparison: Comparison) -> str:
    """Whether every run got the same answers, in one sentence."""
    if not comparison.differing:
        return f"The greedy answers of all {comparison.num_talks} conversations were the same in every run."
    some = ", ".join(comparison.differing[:5])
    return f"{len(comparison.differing)} of {comparison.num_talks} conversations had other answers in some run: {some}."


def _with_ratio(show: Callable[[Policy], str], key: str) -> Callable[[Policy], str]:
    def shown(policy: Policy) -> str:
        ratio = policy.ratios.get(key)
        return show(policy) if ratio is None or ratio.value is None else f"{show(policy)} ({ratio.value:.2f}×)"

    return shown


def _pairs(policy: Policy) -> str:
    ratio = policy.ratios.get("output_tokens_per_s")
    known = [p for p in ratio.pairs if p is not None] if ratio is not None else []
    if ratio is None or ratio.of_pairs is None:
        return "—"
    return f"{ratio.of_pairs:.3f}× ({min(known):.3f}–{max(known):.3f})"


ROWS: dict[str, Callable[[Policy], str]] = {
    "prompt tokens from cache": _with_ratio(lambda p: f"{100 * p.all.hit_rate:.1f} %", "hit_rate"),
    "  from the GPU": lambda p: f"{100 * p.all.gpu_hit_rate:.1f} %",
    "  from the CPU tier": lambda p: f"{100 * p.all.cpu_hit_rate:.1f} %",
    "TTFT p50": _with_ratio(lambda p: f"{1000 * p.all.ttft_p50_s:,.0f} ms", "ttft_p50_s"),
    "TTFT p90": _with_ratio(lambda p: f"{1000 * p.all.ttft_p90_s:,.0f} ms", "ttft_p90_s"),
    "TTFT p99": _with_ratio(lambda p: f"{1000 * p.all.ttft_p99_s:,.0f} ms", "ttft_p99_s"),
    "output tokens/s": _with_ratio(lambda p: f"{p.all.output_tokens_per_s:.1f}", "output_tokens_per_s"),
    "  pairs of runs": _pairs,
    "stored": _with_ratio(lambda p: f"{p.all.stored_bytes / MIB:,.0f} MiB", "stored_bytes"),
    "re-stored": lambda p: f"{p.all.restored_bytes / MIB:,.0f} MiB",
    "loaded": lambda p: f"{p.all.loaded_bytes / MIB:,.0f} MiB",
    "took": lambda p: f"{p.all.seconds:,.0f} s",
}
