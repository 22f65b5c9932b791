"""The report's charts: SVG text, made here, without a script. `report` alone imports it.

Colours and patterns are classes and patterns of the page (`report.html.jinja`), so that a chart follows the reader's
light or dark. Each meaning has its own colour and its own pattern: state is never told by colour alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Literal

SECOND_NS = 1_000_000_000
WIDTH = 960
LEFT, RIGHT = 48, 12
CHARACTER = 7.2
"""A generous width of one character of a label."""


@dataclass(frozen=True, slots=True)
class Area:
    """One source of a stacked chart: values from 0 to 1 a bucket, None where there was no traffic."""

    tone: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a curve: points of (x, y), y from 0 to 1. `mark`: what is drawn at each point, if anything; `dash`:
    lengths of pen and gap, none for a whole line."""

    tone: str
    label: str
    points: Sequence[tuple[float, float]]
    mark: Literal["circle", "square", ""] = ""
    dash: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """Buckets of equal length along the time: their number, the first one's start and their length in nanoseconds."""

    count: int
    start_ns: int
    bucket_ns: int

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.count * self.bucket_ns

    def x_of(self, slot: float) -> float:
        """Where a bucket begins."""
        return LEFT + (WIDTH - LEFT - RIGHT) * slot / max(1, self.count)

    def x_at(self, wall_ns: int) -> float:
        """Where a moment lies."""
        return self.x_of((wall_ns - self.start_ns) / self.bucket_ns)


def stacked(
    axis: Axis, areas: Sequence[Area], down: Sequence[bool], markers: Sequence[tuple[int, str]], text: str
) -> str:
    """Shares on top of one another, lowest first. `down`: the buckets in which no engine ran; `markers`: a moment and
    what began to hold then."""
    height, top, bottom = 240, 24, 216
    parts = [_percent_grid(top, bottom)]
    for first, last in _spans(down):
        x = axis.x_of(first)
        parts.append(f'<rect class="gap" x="{x:.1f}" y="{top}" width="{axis.x_of(last + 1) - x:.1f}" height="192"/>')
    base = [0.0] * axis.count
    for area in areas:
        path: list[str] = []
        for i, value in enumerate(area.values):
            if not value:
                continue
            y0, y1 = (bottom - (bottom - top) * v for v in (base[i], base[i] + value))
            path.append(f"M{axis.x_of(i):.1f} {y0:.1f}V{y1:.1f}H{axis.x_of(i + 1):.1f}V{y0:.1f}Z")
            base[i] += value
        drawn = "".join(path)
        parts.append(f'<path class="fill-{area.tone}" d="{drawn}"/><path class="over-{area.tone}" d="{drawn}"/>')
    parts += _markers([(axis.x_at(wall_ns), label) for wall_ns, label in sorted(markers)], top, bottom)
    parts.append(_times(axis, bottom))
    return _svg(height, text, parts)


def bars(axis: Axis, tone: str, values: Sequence[int], text: str) -> str:
    """One strip of bars, with its greatest value beside it."""
    height, top, bottom = 52, 6, 48
    most = max(values, default=0)
    path = "".join(
        f"M{axis.x_of(i):.1f} {bottom}V{bottom - (bottom - top) * v / most:.1f}H{axis.x_of(i + 1):.1f}V{bottom}Z"
        for i, v in enumerate(values)
        if v
    )
    parts = [
        f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>',
        f'<path class="fill-{tone}" d="{path}"/><path class="over-{tone}" d="{path}"/>',
        f'<text class="tick" x="{LEFT - 6}" y="{top + 8}" text-anchor="end">{most:,}</text>',
    ]
    return _svg(height, text, parts)


def histogram(tone: str, names: Sequence[str], counts: Sequence[int], text: str) -> str:
    """Bars side by side, each with its name below and its count above."""
    height, top, bottom = 180, 24, 148
    most = max(counts, default=0)
    step = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    parts = [f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>']
    for i, (name, count) in enumerate(zip(names, counts, strict=True)):
        x, middle = LEFT + i * step + step * 0.12, LEFT + (i + 0.5) * step
        if count:
            tall = (bottom - top) * count / most
            rect = f'x="{x:.1f}" y="{bottom - tall:.1f}" width="{step * 0.76:.1f}" height="{tall:.1f}"'
            parts.append(f'<rect class="fill-{tone}" {rect}/><rect class="over-{tone}" {rect}/>')
            parts.append(
                f'<text class="tick" x="{middle:.1f}" y="{bottom - tall - 5:.1f}" text-anchor="middle">{count:,}</text>'
            )
        parts.append(
            f'<text class="tick" x="{middle:.1f}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>'
        )
    return _svg(height, text, parts)


def curve(lines: Sequence[Line], here: tuple[float, float] | None, unit: str, text: str) -> str:
    """Rates over a size. `here`: the engine's own size and what it really gave."""
    height, top, bottom = 280, 20, 240
    xs = [x for line in lines for x, _ in line.points] + ([here[0]] if here else [])
    most = max(xs, default=1.0) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + (WIDTH - LEFT - RIGHT - 110) * x / most, bottom - (bottom - top) * y

    parts = [_percent_grid(top, bottom)]
    for x in sorted(set(xs)):
        px, _ = place(x, 0)
        parts.append(f'<text class="tick" x="{px:.1f}" y="{bottom + 16}" text-anchor="middle">{x:.3g}</text>')
    parts.append(f'<text class="tick" x="{WIDTH - RIGHT}" y="{bottom + 16}" text-anchor="end">{escape(unit)}</text>')
    drawn = [line for line in lines if line.points]
    for line in drawn:
        placed = [place(x, y) for x, y in line.points]
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        dash = f' stroke-dasharray="{line.dash}"' if line.dash else ""
        parts.append(f'<path class="stroke-{line.tone}" d="{d}"{dash}/>')
        parts += [_mark(line, x, y) for x, y in placed]
    # Lines that end close together must not write over one another.
    lowest = -1e9
    for line in sorted(drawn, key=lambda each: -each.points[-1][1]):
        x, y = place(*line.points[-1])
        lowest = max(lowest + 16, y + 4)
        parts.append(f'<text class="label" x="{x + 10:.1f}" y="{lowest:.1f}">{escape(line.label)}</text>')
    if here:
        x, y = place(*here)
        parts.append(f'<path class="here" d="M{x - 7:.1f} {y:.1f}H{x + 7:.1f}M{x:.1f} {y - 7:.1f}V{y + 7:.1f}"/>')
    return _svg(height, text, parts)


def _mark(line: Line, x: float, y: float) -> str:
    if not line.mark:
        return ""
    if line.mark == "square":
        return f'<rect class="mark-{line.tone}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return f'<circle class="mark-{line.tone}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'


def _markers(markers: Sequence[tuple[float, str]], top: float, bottom: float) -> list[str]:
    """A line at each place. Its label stands beside it where it has room up to the next line, so that of changes that
    follow at once the one that lasted is named; the last may stand on the other side of its line."""
    parts: list[str] = []
    taken = float(LEFT)
    ends = [x for x, _ in markers[1:]] + [float(WIDTH)]
    for (x, label), following in zip(markers, ends, strict=False):
        parts.append(f'<line class="marker" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 12}" y2="{bottom}"/>')
        width = CHARACTER * len(label)
        if x + 4 + width <= following:
            parts.append(f'<text class="label" x="{x + 4:.1f}" y="{top - 6}">{escape(label)}</text>')
            taken = x + 4 + width
        elif following == WIDTH and x - 4 - width >= taken:
            parts.append(f'<text class="label" x="{x - 4:.1f}" y="{top - 6}" text-anchor="end">{escape(label)}</text>')
        else:
            taken = max(taken, x)
    return parts


def _percent_grid(top: int, bottom: int) -> str:
    parts: list[str] = []
    for percent in (0, 25, 50, 75, 100):
        y = bottom - (bottom - top) * percent / 100
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
    return "".join(parts)


def _times(axis: Axis, bottom: int) -> str:
    format = "%m-%d %H:%M" if axis.end_ns - axis.start_ns > 20 * 3600 * SECOND_NS else "%H:%M:%S"
    parts: list[str] = []
    for i in range(7):
        ns = axis.start_ns + (axis.end_ns - axis.start_ns) * i // 6
        at = datetime.fromtimestamp(ns // SECOND_NS, UTC).strftime(format)
        anchor = "start" if i == 0 else "end" if i == 6 else "middle"
        parts.append(f'<text class="tick" x="{axis.x_at(ns):.1f}" y="{bottom + 16}" text-anchor="{anchor}">{at}</text>')
    return "".join(parts)


def _spans(flags: Sequence[bool]) -> list[tuple[int, int]]:
    """Stretches of True: first and last index."""
    spans: list[tuple[int, int]] = []
    for i, flag in enumerate(flags):
        if flag and spans and spans[-1][1] == i - 1:
            spans[-1] = (spans[-1][0], i)
        elif flag:
            spans.append((i, i))
    return spans


def _svg(height: int, text: str, parts: Sequence[str]) -> str:
    label = escape(text, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
