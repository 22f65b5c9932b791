"""The comparison as a picture (PNG), and as one page (HTML) with the same picture and the numbers."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
from matplotlib.figure import Figure

from app.bench.results import Comparison, Policy
from app.bench.table import MIB, ROWS, words_of

# The dashboard's colours of the same meanings, and a pattern each, so that none is told by colour alone.
GPU, CPU, COMPUTED, RESTORED = "#009e73", "#0072b2", "#c8c8c8", "#cc79a7"
LINES = ("#1b1b1a", "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
Part = tuple[str, str, str, Callable[[Policy], float]]
"""One kind of a stacked bar: its name, colour, pattern, and what a policy has of it."""
# As Any: matplotlib is only partly typed.
MATPLOTLIB: Any = matplotlib
INCHES = (12.0, 4.6)
DPI = 150


def write_charts(out: Path, result: dict[str, Any], comparison: Comparison) -> None:
    """Write `bench.png` and `bench.html` into the folder `out`. `result`: what `bench.json` has."""
    figure = draw(result["title"], comparison, result["ttft_s"])
    figure.savefig(out / "bench.png", dpi=DPI)
    svg = io.StringIO()
    with MATPLOTLIB.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vllm-restore"}):
        figure.savefig(svg, format="svg", metadata={"Date": None})
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=jinja2.StrictUndefined
    )
    page = environment.get_template("bench.html.jinja").render(
        result=result,
        chart=svg.getvalue()[svg.getvalue().index("<svg") :],
        policies=comparison.policies,
        rows=ROWS,
        words=words_of(comparison),
        raw=json.dumps(result["machine"], indent=1),
    )
    (out / "bench.html").write_text(page, encoding="utf-8")


def draw(title: str, comparison: Comparison, ttft_s: dict[str, list[float]]) -> Any:
    """Where prompt tokens came from, how the times to the first token are spread, and what was copied.

    Args:
        ttft_s: by policy, the times of the conversations' requests.
    """
    figure: Any = Figure(figsize=INCHES, layout="constrained")
    figure.suptitle(title, fontsize=11)
    sources, times, copies = figure.subplots(1, 3)
    _stacked(
        sources, comparison.policies, "prompt tokens by source, %",
        [
            ("GPU", GPU, "", lambda p: 100 * p.all.gpu_hit_rate),
            ("CPU tier", CPU, "//", lambda p: 100 * p.all.cpu_hit_rate),
            ("computed", COMPUTED, "..", lambda p: 100 * (1 - p.all.hit_rate)),
        ],
    )  # fmt: skip
    for i, policy in enumerate(comparison.policies):
        ordered = sorted(ttft_s[policy.name])
        shares = [(n + 1) / len(ordered) * 100 for n in range(len(ordered))]
        times.step(
            ordered,
            shares,
            where="post",
            label=policy.name,
            color=LINES[i % len(LINES)],
            linestyle=DASHES[i % len(DASHES)],
        )
    times.set_xscale("log")
    times.xaxis.set_major_formatter("{x:g}")
    times.set_title("time to first token, s: share of requests, %", fontsize=10)
    times.axhline(50, color="#cfcfcb", linewidth=0.8)
    _legend(times)
    times.set_ylim(0, 100)
    _stacked(
        copies, comparison.policies, "copied, MiB",
        [
            ("stored", CPU, "//", lambda p: p.all.stored_bytes / MIB),
            ("re-stored", RESTORED, "xx", lambda p: p.all.restored_bytes / MIB),
            ("loaded", GPU, "", lambda p: p.all.loaded_bytes / MIB),
        ],
    )  # fmt: skip
    return figure


def _stacked(axes: Any, policies: list[Policy], title: str, parts: list[Part]) -> None:
    names = [policy.name for policy in policies]
    base = [0.0] * len(policies)
    for label, colour, pattern, value in parts:
        heights = [value(policy) for policy in policies]
        axes.bar(names, heights, bottom=base, label=label, color=colour, hatch=pattern, edgecolor="white", width=0.6)
        base = [b + h for b, h in zip(base, heights, strict=True)]
    axes.set_title(title, fontsize=10)
    _legend(axes)


def _legend(axes: Any) -> None:
    # Under the plot: whatever it shows, nothing of it is covered.
    axes.legend(fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3, frameon=False)
