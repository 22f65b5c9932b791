"""The timeline: sums a bucket of wall time, made by SQL."""

from typing import Any

from sqlalchemy import Connection, Integer, Label, func, literal_column, select

from app.errors import BadQueryError
from app.models import MAX_INTEGER, PolicyMarker, Timeline, TimelinePoint
from app.queries.engines import log_end, up_spans
from app.queries.restored import RestoredHits
from app.settings import Settings
from connector import tables
from connector.policy import Policy

SECOND_NS = 1_000_000_000
DEFAULT_RANGE_NS = 15 * 60 * SECOND_NS
MAX_POINTS = 2_000
AUTO_POINTS = 240
AUTO_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)
BLOCK_KINDS = ("blocks_stored", "blocks_restored", "blocks_evicted", "blocks_loaded")

_c = tables.events.c
_s = tables.steps.c


def read_timeline(
    conn: Connection,
    restored: RestoredHits,
    since: int | None,
    until: int | None,
    bucket_seconds: float | None,
    now_ns: int,
    settings: Settings,
) -> Timeline:
    """Points from `since` to `until`, both rounded outwards to whole buckets, so that a bucket's sum never depends on
    when it was asked for.

    Raises:
        BadQueryError: an empty range, or more than 2,000 points.
    """
    end = log_end(conn, now_ns, settings) if until is None else until
    start = end - DEFAULT_RANGE_NS if since is None else since
    if start >= end:
        raise BadQueryError(f"the range is empty: since ({start}) must be before until ({end})")
    bucket = _auto_bucket(end - start) if bucket_seconds is None else max(1, round(bucket_seconds * SECOND_NS))
    start = start // bucket * bucket
    count = -((start - end) // bucket)
    if count > MAX_POINTS:
        raise BadQueryError(
            f"that would be {count} points, and {MAX_POINTS} is the most: ask for a bucket of at least "
            f"{-((start - end) // MAX_POINTS) / SECOND_NS:.3g} seconds or for a shorter range"
        )
    end = start + count * bucket
    if end > MAX_INTEGER:
        raise BadQueryError(f"until ({until}) is too late: the last bucket would end beyond {MAX_INTEGER}")
    return Timeline(
        since_wall_ns=start,
        until_wall_ns=end,
        bucket_ns=bucket,
        points=_points(conn, restored, start, end, bucket, up_spans(conn, now_ns, settings)),
        policy_markers=_markers(conn, start, end),
        policy_at_start=_label_before(conn, start),
    )


def _auto_bucket(span_ns: int) -> int:
    fitting = (s * SECOND_NS for s in AUTO_SECONDS if span_ns <= s * SECOND_NS * AUTO_POINTS)
    return next(fitting, -(-span_ns // AUTO_POINTS))


def _points(
    conn: Connection, restored: RestoredHits, start: int, end: int, bucket: int, spans: dict[int, tuple[int, int]]
) -> list[TimelinePoint]:
    # Both are whole numbers of ours and may stand in the text; as parameters they would make the two columns differ.
    slot: Label[Any] = literal_column(f"(wall_ns - {start}) / {bucket}", Integer).label("slot")
    in_range = _c.wall_ns.between(start, end - 1)
    tokens = {
        r.slot: r
        for r in conn.execute(
            select(
                slot,
                func.sum(_c.num_tokens).label("prompt"),
                func.sum(_c.gpu_hit_tokens).label("gpu"),
                func.sum(_c.cpu_hit_tokens).label("cpu"),
            )
            .where(_c.kind == "lookup", in_range, ~_c.is_resumed)
            .group_by("slot")
        )
    }
    blocks = {
        (r.slot, r.kind): r.num_blocks
        for r in conn.execute(
            select(slot, _c.kind, func.sum(_c.num_blocks).label("num_blocks"))
            .where(_c.kind.in_(BLOCK_KINDS), in_range)
            .group_by("slot", _c.kind)
        )
    }
    from_restore = restored.tokens_by_bucket(start, end, bucket)
    count = (end - start) // bucket
    up = {engine_id: _slots(span, start, bucket, count) for engine_id, span in spans.items()}
    up_slots = {i for slots in up.values() for i in slots}
    cached = _cached(conn, slot, start, end, up, count)
    points: list[TimelinePoint] = []
    for i in range(count):
        t = tokens.get(i)
        points.append(
            TimelinePoint(
                wall_ns=start + i * bucket,
                prompt_tokens=t.prompt if t else None,
                gpu_hit_tokens=t.gpu if t else None,
                cpu_hit_tokens=t.cpu if t else None,
                restored_hit_tokens=from_restore.get(i, 0) if t else None,
                computed_tokens=t.prompt - t.gpu - t.cpu if t else None,
                hit_rate=(t.gpu + t.cpu) / t.prompt if t and t.prompt else None,
                **{f"{k.removeprefix('blocks_')}_blocks": blocks.get((i, k), 0) for k in BLOCK_KINDS},
                cpu_blocks_cached=cached[i],
                engine_up=i in up_slots,
            )
        )
    return points


def _slots(span: tuple[int, int], start: int, bucket: int, count: int) -> range:
    """The buckets in which an engine was up, at least for a part of each."""
    first, last = ((t - start) // bucket for t in span)
    return range(max(0, first), min(count - 1, last) + 1)


def _cached(
    conn: Connection, slot: Label[Any], start: int, end: int, up: dict[int, range], count: int
) -> list[int | None]:
    """Blocks that can be found in the CPU tier at the end of each bucket, all engines that are up together.

    An engine that takes no step keeps what it has.
    """
    # SQLite takes a bare column from the row that has the max.
    rows = conn.execute(
        select(_s.engine_id, slot, func.max(_s.step), _s.cpu_blocks_cached)
        .where(_s.wall_ns.between(start, end - 1))
        .group_by("engine_id", "slot")
    )
    told = {(r.engine_id, r.slot): r.cpu_blocks_cached for r in rows}
    total: list[int | None] = [None] * count
    for engine_id, slots in up.items():
        before = select(_s.cpu_blocks_cached).where(_s.engine_id == engine_id, _s.wall_ns < start)
        value = conn.execute(before.order_by(_s.wall_ns.desc()).limit(1)).scalar_one_or_none() if slots else None
        for i in slots:
            value = told.get((engine_id, i), value)
            if value is not None:
                total[i] = (total[i] or 0) + value
    return total


def _markers(conn: Connection, start: int, end: int) -> list[PolicyMarker]:
    rows = conn.execute(
        select(tables.events).where(_c.kind == "policy_applied", _c.wall_ns.between(start, end - 1)).order_by(_c.seq)
    )
    return [
        PolicyMarker(
            wall_ns=r.wall_ns,
            engine_id=r.engine_id,
            step=r.step,
            policy_version=r.policy_version,
            label=_label(r),
            reason=r.reason,
        )
        for r in rows
    ]


def _label_before(conn: Connection, start: int) -> str | None:
    query = select(tables.events).where(_c.kind == "policy_applied", _c.wall_ns < start)
    row = conn.execute(query.order_by(_c.wall_ns.desc(), _c.seq.desc()).limit(1)).one_or_none()
    return _label(row) if row else None


def _label(row: Any) -> str:
    return Policy(row.enabled, row.mode, row.max_restore_blocks_per_step).label
