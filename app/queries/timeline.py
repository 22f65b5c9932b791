"""The timeline: sums a bucket of wall time, made by SQL from the log's sums a second."""

from typing import Any

from sqlalchemy import Connection, func, select

from app.models import PolicyMarker, Timeline, TimelinePoint
from app.queries.engines import up_spans
from app.queries.ranges import SECOND_NS, read_buckets
from app.queries.rollups import in_range, read_groups, slot_of
from app.settings import Settings
from connector import tables
from connector.policy import Policy

BLOCK_KINDS = ("stored_blocks", "restored_blocks", "evicted_blocks", "loaded_blocks")
TOKENS = (
    "num_lookups", "prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "restored_hit_tokens", "lost_tokens",
)  # fmt: skip

_c = tables.events.c
_r = tables.rollups.c


def read_timeline(
    conn: Connection,
    since: int | None,
    until: int | None,
    bucket_seconds: float | None,
    now_ns: int,
    settings: Settings,
) -> Timeline:
    """Points from `since` to `until`, both rounded outwards to whole buckets.

    Raises:
        BadQueryError: an empty range, or more than 2,000 points.
    """
    start, end, bucket = read_buckets(conn, since, until, bucket_seconds, now_ns, settings)
    return Timeline(
        since_wall_ns=start,
        until_wall_ns=end,
        bucket_ns=bucket,
        points=_points(conn, start, end, bucket, up_spans(conn, now_ns, settings)),
        policy_markers=_markers(conn, start, end),
        policy_at_start=_label_before(conn, start),
    )


def _points(
    conn: Connection, start: int, end: int, bucket: int, spans: dict[int, tuple[int, int]]
) -> list[TimelinePoint]:
    slot = slot_of(start, bucket)
    sums = {r.slot: r for r in read_groups(conn, tables.rollups, [slot], (*TOKENS, *BLOCK_KINDS), start, end)}
    count = (end - start) // bucket
    up = {engine_id: _slots(span, start, bucket, count) for engine_id, span in spans.items()}
    up_slots = {i for slots in up.values() for i in slots}
    cached = _cached(conn, start, end, bucket, up, count)
    points: list[TimelinePoint] = []
    for i in range(count):
        row = sums.get(i)
        t = row if row and row.num_lookups else None
        points.append(
            TimelinePoint(
                wall_ns=start + i * bucket,
                prompt_tokens=t.prompt_tokens if t else None,
                gpu_hit_tokens=t.gpu_hit_tokens if t else None,
                cpu_hit_tokens=t.cpu_hit_tokens if t else None,
                restored_hit_tokens=t.restored_hit_tokens if t else None,
                computed_tokens=t.prompt_tokens - t.gpu_hit_tokens - t.cpu_hit_tokens if t else None,
                lost_tokens=t.lost_tokens if t else None,
                hit_rate=(t.gpu_hit_tokens + t.cpu_hit_tokens) / t.prompt_tokens if t and t.prompt_tokens else None,
                **{k: getattr(row, k) if row else 0 for k in BLOCK_KINDS},
                cpu_blocks_cached=cached[i],
                engine_up=i in up_slots,
            )
        )
    return points


def _slots(span: tuple[int, int], start: int, bucket: int, count: int) -> range:
    """The buckets in which an engine was up, at least for a part of each."""
    first, last = ((t - start) // bucket for t in span)
    return range(max(0, first), min(count - 1, last) + 1)


def _cached(conn: Connection, start: int, end: int, bucket: int, up: dict[int, range], count: int) -> list[int | None]:
    """Blocks that can be found in the CPU tier at the end of each bucket, all engines that are up together.

    An engine that takes no step keeps what it has.
    """
    # SQLite takes a bare column from the row that has the max.
    rows = conn.execute(
        select(_r.engine_id, slot_of(start, bucket), func.max(_r.last_step), _r.cpu_blocks_cached)
        .where(in_range(tables.rollups, start, end), _r.last_step.is_not(None))
        .group_by("engine_id", "slot")
    )
    told = {(r.engine_id, r.slot): r.cpu_blocks_cached for r in rows}
    total: list[int | None] = [None] * count
    for engine_id, slots in up.items():
        before = select(_r.cpu_blocks_cached).where(
            _r.engine_id == engine_id, _r.second < start // SECOND_NS, _r.last_step.is_not(None)
        )
        last = before.order_by(_r.second.desc(), _r.last_step.desc()).limit(1)
        value = conn.execute(last).scalar_one_or_none() if slots else None
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
    return Policy.of(row).label
