"""Ranges of time as every view takes them: whole seconds, since that is what the log's sums are of."""

from sqlalchemy import Connection

from app.errors import BadQueryError
from app.models import MAX_INTEGER
from app.queries.engines import log_end
from app.settings import Settings

SECOND_NS = 1_000_000_000
DEFAULT_RANGE_NS = 15 * 60 * SECOND_NS
MAX_POINTS = 2_000
AUTO_POINTS = 240
AUTO_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)


def read_range(
    conn: Connection, since: int | None, until: int | None, now_ns: int, settings: Settings, *, default_ns: int | None
) -> tuple[int, int]:
    """From and to, in wall nanoseconds, rounded outwards to whole seconds; `to` is not in it.

    Args:
        default_ns: how long it is where `since` is not given; None: from the log's begin.

    Raises:
        BadQueryError: an empty range.
    """
    end = log_end(conn, now_ns, settings) if until is None else until
    start = since if since is not None else 0 if default_ns is None else max(0, end - default_ns)
    if start >= end:
        raise BadQueryError(f"the range is empty: since ({start}) must be before until ({end})")
    start = start // SECOND_NS * SECOND_NS
    last = MAX_INTEGER // SECOND_NS * SECOND_NS
    end = min(-(-end // SECOND_NS) * SECOND_NS, last)
    if start >= end:
        raise BadQueryError(f"the range begins too late: since ({since}) must be before {last}")
    return start, end


def read_buckets(
    conn: Connection,
    since: int | None,
    until: int | None,
    bucket_seconds: float | None,
    now_ns: int,
    settings: Settings,
) -> tuple[int, int, int]:
    """From, to and the length of a bucket. The range is rounded outwards to whole buckets, so that a bucket's sum never
    depends on when it was asked for; a bucket is a whole number of seconds.

    Raises:
        BadQueryError: an empty range, or more than 2,000 points.
    """
    start, end = read_range(conn, since, until, now_ns, settings, default_ns=DEFAULT_RANGE_NS)
    bucket = _auto_bucket(end - start) if bucket_seconds is None else -int(-bucket_seconds // 1) * SECOND_NS
    start = start // bucket * bucket
    count = -((start - end) // bucket)
    if count > MAX_POINTS:
        least = -((start - end) // MAX_POINTS) / SECOND_NS
        raise BadQueryError(
            f"that would be {count} points, and {MAX_POINTS} is the most: ask for a bucket of at least "
            f"{least:.3g} seconds or for a shorter range"
        )
    end = start + count * bucket
    if end > MAX_INTEGER:
        raise BadQueryError(f"until ({until}) is too late: the last bucket would end beyond {MAX_INTEGER}")
    return start, end, bucket


def _auto_bucket(span_ns: int) -> int:
    fitting = (s * SECOND_NS for s in AUTO_SECONDS if span_ns <= s * SECOND_NS * AUTO_POINTS)
    return next(fitting, -(-span_ns // (AUTO_POINTS * SECOND_NS)) * SECOND_NS)
