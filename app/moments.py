"""Moments as a person types them on the command line: `--since` and `--until`."""

import re
from datetime import UTC, datetime

SECOND_NS = 1_000_000_000
MAX_NS = 2**63 - 1
"""In the year 2262: SQLite compares with nothing larger."""
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AGO = re.compile(r"(\d{1,9})([smhd])")
_NS = re.compile(r"\d{15,19}")
HELP = "2026-11-30T04:00 (UTC unless it says otherwise), 90s, 15m, 2h or 3d before the log's end, or nanoseconds"


class MomentError(ValueError):
    """It names no moment. The message says what may stand there."""


def parse_moment(text: str, end_ns: int) -> int:
    """Wall-clock nanoseconds since the epoch.

    Args:
        text: a time in ISO 8601, how long before `end_ns` (`15m`), or the nanoseconds themselves.
        end_ns: the log's end.

    Raises:
        MomentError: none of these.
    """
    if ago := _AGO.fullmatch(text):
        return max(0, end_ns - int(ago[1]) * UNITS[ago[2]] * SECOND_NS)
    if _NS.fullmatch(text):
        return min(int(text), MAX_NS)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise MomentError(f"{text!r} names no moment; write {HELP}") from e
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # Through whole microseconds: a float has too few digits for nanoseconds.
    since_epoch = moment - datetime(1970, 1, 1, tzinfo=UTC)
    microseconds = (since_epoch.days * 86_400 + since_epoch.seconds) * 1_000_000 + since_epoch.microseconds
    if microseconds < 0:
        raise MomentError(f"{text!r} is before 1970; write {HELP}")
    return min(microseconds * 1_000, MAX_NS)


def parse_range(since: str | None, until: str | None, end_ns: int) -> tuple[int | None, int | None]:
    """A range in wall-clock nanoseconds, its end not in it; None where no moment was given.

    Args:
        end_ns: the log's end.

    Raises:
        MomentError: what names no moment, or a range that ends before it begins.
    """
    since_ns = None if since is None else parse_moment(since, end_ns)
    until_ns = None if until is None else parse_moment(until, end_ns)
    if since_ns is not None and since_ns >= (end_ns if until_ns is None else until_ns):
        end = f"--until {until}" if until_ns is not None else f"the log's end, {iso(end_ns)}"
        raise MomentError(f"the range is empty: --since {since} is not before {end}")
    return since_ns, until_ns


def iso(wall_ns: int) -> str:
    """A moment as `parse_moment` takes it, to the second."""
    return f"{datetime.fromtimestamp(wall_ns // SECOND_NS, UTC):%Y-%m-%dT%H:%M:%S}Z"
