"""`vllm-restore report` and GET /restore/api/report: one HTML file that explains a range of a log.

It needs nothing else: no script, no font, no network. Every figure comes from `queries`, as the dashboard's do; the
page is `report.html.jinja`, which escapes whatever a client may have put into an id.
"""

import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from sqlalchemy import URL, Connection
from sqlalchemy.exc import SQLAlchemyError

from app import report_charts as charts
from app import report_words as words
from app.errors import BadQueryError
from app.models import BenefitView, Bin, Causes, Engine, Glance, Summary, Timeline
from app.moments import MomentError, iso, parse_range
from app.queries.benefit import read_benefit
from app.queries.causes import read_causes
from app.queries.engines import log_end, read_engines
from app.queries.glance import read_glance
from app.queries.summary import read_summary
from app.queries.timeline import read_timeline
from app.settings import Settings
from app.terminal import no_folder
from app.whatif import GIB, play
from connector import log

Snapshot = Callable[[], AbstractContextManager[Connection]]
FACTORS = (0.5, 1.0, 2.0, 4.0)
MAX_MARKERS = 40
# In the colours of the dashboard's strips.
STRIPS = (
    ("stored", "stored", "stored"),
    ("restored", "restored", "re-stored"),
    ("evicted", "lost", "evicted"),
    ("loaded", "cpu", "loaded"),
)


class ReportError(Exception):
    """There is nothing to report, or no place for it. The message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The hit rate that a policy would have given with a tier of so many bytes; None: without end."""

    policy: str
    cpu_bytes: int | None
    hit_rate: float | None


@dataclass(frozen=True, slots=True)
class WhatIfCurve:
    """What other policies and sizes would have given one engine's whole traffic. Without points, `notes` says why."""

    points: Sequence[CurvePoint]
    notes: Sequence[str]
    hit_rate: float | None = None
    here_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Data:
    engines: list[Engine]
    summary: Summary
    timeline: Timeline
    causes: Causes
    benefit: BenefitView
    glance: Glance


def write_report(
    url: URL, out: Path, since: str | None = None, until: str | None = None, *, has_what_if: bool = True
) -> int:
    """Write the report of a log into the file `out`, and return its size in bytes.

    Args:
        since, until: moments as `moments.parse_moment` takes them; None: the log's begin, its end.
        has_what_if: play the log under other policies and sizes, which takes some seconds a hundred thousand rows.

    Raises:
        LogError: the log cannot be used.
        ReportError: an empty range or log, no moment, a file that cannot be written.
    """
    # Before a log is played, which takes its time.
    _refuse_a_wrong_place(out)
    reader = log.open_reader(url)

    @contextmanager
    def snapshot() -> Generator[Connection]:
        with reader.connect() as conn, conn.begin():
            yield conn

    settings = Settings(db=str(url))
    try:
        with snapshot() as conn:
            now = time.time_ns()
            end = log_end(conn, now, settings)
            engines = read_engines(conn, now, settings)
        start_ns, end_ns = parse_range(since, until, end)
        if engines and not _of_range(engines, start_ns or 0, end if end_ns is None else end_ns, now):
            begin = min(e.started_wall_ns for e in engines)
            raise ReportError(f"no engine ran in this range; the log reaches from {iso(begin)} to {iso(end)}")
        if end_ns is not None and end_ns >= end:
            end_ns = None  # there is nothing to draw of what has not been
        page = render(snapshot, start_ns, end_ns, now, settings, play_curve if has_what_if else _not_played)
    except (BadQueryError, MomentError) as e:
        raise ReportError(str(e)) from e
    except SQLAlchemyError as e:
        raise log.LogError(f"cannot read the log {url.database}: {getattr(e, 'orig', None) or e}") from e
    finally:
        reader.dispose()
    return _write(out, page.encode())


def render(
    snapshot: Snapshot,
    since: int | None,
    until: int | None,
    now_ns: int,
    settings: Settings,
    curve_of: Callable[[Snapshot, Engine], WhatIfCurve],
) -> str:
    """The page. `since` and `until` in wall nanoseconds; None: the log's begin, its end.

    Args:
        curve_of: what other policies and sizes would have given the engine that it is asked about.

    Raises:
        BadQueryError: an empty range, or a log in which no engine ever ran.
    """
    with snapshot() as conn:
        engines = read_engines(conn, now_ns, settings)
        if not engines:
            raise BadQueryError("no engine has written to this log: there is nothing to report")
        end = log_end(conn, now_ns, settings) if until is None else until
        start = min(e.started_wall_ns for e in engines) if since is None else since
        timeline = read_timeline(conn, start, end, None, now_ns, settings)
        data = _Data(
            engines=_of_range(engines, start, end, now_ns),
            summary=read_summary(conn, start, end, now_ns, settings),
            timeline=timeline,
            causes=read_causes(conn, start, end, None, now_ns, settings),
            benefit=read_benefit(conn, start, end, now_ns, settings),
            glance=read_glance(conn, start, end, now_ns, settings, lambda _, __, ___: None),
        )
    asked = next((e for e in data.engines if e.restore_support == "yes"), None)
    curve = WhatIfCurve((), ["No engine ran in this range."]) if asked is None else curve_of(snapshot, asked)
    return _page().render(
        data=data,
        start=start,
        end=end,
        now=now_ns,
        shares=_shares(timeline),
        strips=_strips(timeline),
        regret=_regret(data.benefit.total.regret.histogram),
        curve=curve,
        curve_chart=_curve_chart(curve),
        markers=timeline.policy_markers[:MAX_MARKERS],
        num_more_markers=max(0, len(timeline.policy_markers) - MAX_MARKERS),
        words=words,
    )


def play_curve(snapshot: Snapshot, engine: Engine) -> WhatIfCurve:
    """Play the engine's whole log under each policy and several sizes: some seconds a hundred thousand rows."""
    own = engine.num_cpu_blocks * engine.block_bytes
    # A hair more, so that rounding to whole blocks loses none.
    sizes = [own * factor / GIB * (1 + 1e-9) for factor in FACTORS if engine.num_cpu_blocks * factor >= 1]
    try:
        found = play(snapshot, ("off", "tracked", "unlimited"), sizes, engine.id)
    except BadQueryError as e:
        return WhatIfCurve((), [str(e)])
    points = [CurvePoint(r.policy, r.cpu_bytes, r.hit_rate) for r in found.rows]
    return WhatIfCurve(points, found.notes, found.hit_rate, own)


def _not_played(_: Snapshot, __: Engine) -> WhatIfCurve:
    return WhatIfCurve((), ["It was not played for this report."])


@cache
def _page() -> Any:
    environment = Environment(
        loader=PackageLoader("app", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update({name: getattr(words, name) for name in FILTERS})
    return environment.get_template("report.html.jinja")


FILTERS = ("percent", "number", "amount", "seconds", "nanoseconds", "times", "moment")


def _of_range(engines: Sequence[Engine], start: int, end: int, now_ns: int) -> list[Engine]:
    return [e for e in engines if _last_ns(e, now_ns) >= start and e.started_wall_ns < end]


def _last_ns(engine: Engine, now_ns: int) -> int:
    return now_ns if engine.is_live else engine.stopped_wall_ns or engine.heartbeat_wall_ns


def _axis(timeline: Timeline) -> charts.Axis:
    return charts.Axis(len(timeline.points), timeline.since_wall_ns, timeline.bucket_ns)


def _shares(timeline: Timeline) -> str:
    def share(name: str) -> list[float | None]:
        found: list[float | None] = []
        for p in timeline.points:
            prompt = p.prompt_tokens
            cpu = (p.cpu_hit_tokens or 0) - (p.restored_hit_tokens or 0)
            value = cpu if name == "cpu" else getattr(p, f"{name}_tokens") or 0
            found.append(value / prompt if prompt else None)
        return found

    areas = [
        charts.Area("gpu", share("gpu_hit")),
        charts.Area("cpu", share("cpu")),
        charts.Area("restored", share("restored_hit")),
        charts.Area("computed", share("computed")),
    ]
    rates = [p.hit_rate for p in timeline.points if p.hit_rate is not None]
    text = "Prompt tokens by source over time: GPU hits, CPU hits, CPU hits thanks to a re-store, computed. " + (
        f"The hit rate of an interval lies between {words.percent(min(rates))} and {words.percent(max(rates))}."
        if rates
        else "No request was admitted."
    )
    markers = [(m.wall_ns, m.label) for m in timeline.policy_markers[:MAX_MARKERS]]
    return charts.stacked(_axis(timeline), areas, [not p.engine_up for p in timeline.points], markers, text)


def _strips(timeline: Timeline) -> list[tuple[str, int, str]]:
    """Label, total and chart of each kind of movement."""
    found: list[tuple[str, int, str]] = []
    for field, tone, label in STRIPS:
        values: list[int] = [getattr(p, f"{field}_blocks") for p in timeline.points]
        text = f"Blocks {label} over time: {sum(values):,} in all, {max(values, default=0):,} at most in an interval."
        found.append((label, sum(values), charts.bars(_axis(timeline), tone, values, text)))
    return found


def _regret(all_bins: Sequence[Bin]) -> str:
    """From the first to the last that has any; empty where none has."""
    filled = [i for i, b in enumerate(all_bins) if b.num_blocks]
    if not filled:
        return ""
    bins = all_bins[filled[0] : filled[-1] + 1]
    names = [f"≥ {words.span(b.from_ns)}" if b.to_ns is None else f"< {words.span(b.to_ns)}" for b in bins]
    if bins[0].from_ns and bins[0].to_ns is not None:
        names[0] = f"{words.span(bins[0].from_ns)} to {words.span(bins[0].to_ns)}"
    counts = [b.num_blocks for b in bins]
    text = "Blocks that were evicted and wanted again, by how long after: " + ", ".join(
        f"{name}: {count:,}" for name, count in zip(names, counts, strict=True)
    )
    return charts.histogram("lost", names, counts, text)


def _curve_chart(curve: WhatIfCurve) -> str:
    def line(policy: str) -> list[tuple[float, float]]:
        return sorted(
            (p.cpu_bytes / GIB, p.hit_rate)
            for p in curve.points
            if p.policy == policy and p.cpu_bytes is not None and p.hit_rate is not None
        )

    off, tracked = line("off"), line("tracked")
    if not off and not tracked:
        return ""
    most = max(x for x, _ in (*off, *tracked))
    endless = next((p.hit_rate for p in curve.points if p.cpu_bytes is None and p.hit_rate is not None), None)
    # Dashed lines above the whole one: of two that say the same, both can be seen.
    lines = [
        charts.Line("restored", "tracked", tracked, "square"),
        charts.Line("text", "off", off, "circle", dash="6 4"),
    ]
    if endless is not None:
        lines.append(charts.Line("text", "unlimited", [(0, endless), (most, endless)], dash="2 3"))
    here = None
    if curve.here_bytes is not None and curve.hit_rate is not None:
        here = curve.here_bytes / GIB, curve.hit_rate
    return charts.curve(lines, here, "GiB of CPU tier", "Hit rate by size of the CPU tier; the table has the figures.")


def _is_page(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().lower().startswith(b"<!doctype html")
    except OSError:
        return False


def _refuse_a_wrong_place(out: Path) -> None:
    if out.is_dir():
        raise ReportError(f"{out} is a folder; name a file with --out")
    if out.exists() and not _is_page(out):
        raise ReportError(f"{out} is there and is no HTML page; name another file with --out")
    if out.suffix.lower() not in ("", ".html", ".htm"):
        raise ReportError(f"a report is an HTML page, and {out} does not say so; name it {out.with_suffix('.html')}")
    if not out.parent.is_dir():
        raise ReportError(no_folder(out.parent))


def _write(out: Path, page: bytes) -> int:
    """Through a file beside it, so that a report that is there is replaced whole or not at all."""
    place = None
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, prefix=f".{out.name}.", delete=False) as file:
            place = Path(file.name)
            file.write(page)
        # As any new file of this user's; the temporary one is for its owner alone.
        mask = os.umask(0)
        os.umask(mask)
        place.chmod(0o666 & ~mask)
        place.replace(out)
    except OSError as e:
        if place is not None:
            place.unlink(missing_ok=True)
        raise ReportError(f"cannot write {out}: {e.strerror or e}; choose another place with --out") from e
    return len(page)
