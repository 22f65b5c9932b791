"""The totals of a range: tokens by source, blocks by what happened to them, time to the first token, the CPU tier."""

from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from app.errors import BadQueryError
from app.models import Summary, TierFill, TokenSplit
from app.queries.engines import live_engines, log_end
from app.queries.events import newest_seq
from app.queries.restored import RestoredHits
from app.settings import Settings
from connector import tables

MINUTE_NS = 60_000_000_000
BLOCK_KINDS = ("blocks_stored", "blocks_restored", "blocks_evicted", "blocks_loaded", "blocks_dropped")

_c = tables.events.c
_s = tables.steps.c
_e = tables.engines.c


def read_summary(
    conn: Connection, restored: RestoredHits, since: int | None, until: int | None, now_ns: int, settings: Settings
) -> Summary:
    """The totals from `since` (or the log's begin) to `until` (or now), which is not in it. `restored` has caught up.

    Raises:
        BadQueryError: `until` is not after `since`.
    """
    start = since or 0
    end = log_end(conn, now_ns, settings) if until is None else until
    if start >= end:
        raise BadQueryError(f"the range is empty: since ({start}) must be before until ({end})")
    span = _c.wall_ns.between(start, end - 1)
    blocks = {
        r.kind: r
        for r in conn.execute(
            select(
                _c.kind,
                func.coalesce(func.sum(_c.num_blocks), 0).label("num_blocks"),
                func.coalesce(func.sum(_c.num_bytes), 0).label("num_bytes"),
            )
            .where(_c.kind.in_(BLOCK_KINDS), span)
            .group_by(_c.kind)
        )
    }
    live = live_engines(conn, now_ns, settings)
    p50, p90 = _ttft(conn, span)
    return Summary(
        since_wall_ns=since,
        until_wall_ns=end,
        tokens=token_split(conn, restored, start, end),
        last_minute=token_split(conn, restored, end - MINUTE_NS, end),
        num_requests=_count(conn, "request_started", span),
        num_running=_num_unfinished(conn, list(live)),
        **{f"{k.removeprefix('blocks_')}_blocks": blocks[k].num_blocks if k in blocks else 0 for k in BLOCK_KINDS},
        **{f"{k}_bytes": blocks[b].num_bytes if (b := f"blocks_{k}") in blocks else 0 for k in _COPIES},
        ttft_p50_ns=p50,
        ttft_p90_ns=p90,
        num_faults=_num_faults(conn, start, end),
        num_events_dropped=_sum_dropped(conn, span),
        last_fault=_last_fault(conn, span),
        cpu_tier=_tier(conn, list(live)),
        last_seq=newest_seq(conn),
    )


_COPIES = ("stored", "restored", "loaded")


def token_split(conn: Connection, restored: RestoredHits, since: int, until: int) -> TokenSplit:
    """Prompt tokens of lookups in a range of wall time (`until` not in it), by source."""
    row = conn.execute(
        select(func.sum(_c.num_tokens), func.sum(_c.gpu_hit_tokens), func.sum(_c.cpu_hit_tokens)).where(
            _c.kind == "lookup", _c.wall_ns.between(since, until - 1), ~_c.is_resumed
        )
    ).one()
    prompt, gpu, cpu = (int(v or 0) for v in row)
    return TokenSplit(
        prompt_tokens=prompt,
        gpu_hit_tokens=gpu,
        cpu_hit_tokens=cpu,
        restored_hit_tokens=restored.tokens(since, until),
        computed_tokens=prompt - gpu - cpu,
        hit_rate=(gpu + cpu) / prompt if prompt else None,
    )


def _count(conn: Connection, kind: str, *where: ColumnElement[bool]) -> int:
    return conn.execute(select(func.count()).select_from(tables.events).where(_c.kind == kind, *where)).scalar_one()


def _num_unfinished(conn: Connection, live: list[int]) -> int:
    """Started minus finished, of the live engines. Steps do not say it: an engine that has finished all takes none."""
    if not live:
        return 0
    started = conn.execute(select(func.min(_e.started_wall_ns)).where(_e.id.in_(live))).scalar_one()
    where = (_c.engine_id.in_(live), _c.wall_ns >= started)
    return max(0, _count(conn, "request_started", *where) - _count(conn, "request_finished", *where))


def _ttft(conn: Connection, span: ColumnElement[bool]) -> tuple[int | None, int | None]:
    """The median and the 90th percentile by nearest rank, in nanoseconds."""
    where = (_c.kind == "request_finished", span, _c.ttft_ns.is_not(None))
    values: list[Any] = list(conn.execute(select(_c.ttft_ns).where(*where)).scalars())
    if not values:
        return None, None
    values.sort()
    return values[-(-50 * len(values) // 100) - 1], values[-(-90 * len(values) // 100) - 1]


def _num_faults(conn: Connection, since: int, until: int) -> int:
    """Each engine counts its own; a row carries the count so far, and not every fault needs a row."""

    def so_far(before: int) -> int:
        worst = (
            select(func.max(_c.num_faults).label("n"))
            .where(_c.kind == "fault", _c.wall_ns < before)
            .group_by(_c.engine_id)
            .subquery()
        )
        return conn.execute(select(func.coalesce(func.sum(worst.c.n), 0))).scalar_one()

    return so_far(until) - so_far(since)


def _sum_dropped(conn: Connection, span: ColumnElement[bool]) -> int:
    query = select(func.coalesce(func.sum(_c.num_events), 0)).where(_c.kind == "events_dropped", span)
    return conn.execute(query).scalar_one()


def _last_fault(conn: Connection, span: ColumnElement[bool]) -> str | None:
    query = select(_c.origin, _c.message).where(_c.kind == "fault", span).order_by(_c.wall_ns.desc()).limit(1)
    row = conn.execute(query).one_or_none()
    return f"{row.origin}: {row.message}" if row else None


def _tier(conn: Connection, live: list[int]) -> TierFill | None:
    """Summed over live engines. Before its first step an engine's tier is empty."""
    total: TierFill | None = None
    for engine_id in live:
        engine = conn.execute(select(_e.num_cpu_blocks, _e.block_bytes).where(_e.id == engine_id)).one()
        step = conn.execute(
            select(_s.cpu_blocks_cached, _s.cpu_blocks_in_flight, _s.num_restorable)
            .where(_s.engine_id == engine_id)
            .order_by(_s.step.desc())
            .limit(1)
        ).one_or_none()
        cached, in_flight, restorable = step or (0, 0, 0)
        total = total or TierFill(
            num_blocks=0, free_blocks=0, cached_blocks=0, in_flight_blocks=0, restorable_blocks=0,
            block_bytes=engine.block_bytes,
        )  # fmt: skip
        total.num_blocks += engine.num_cpu_blocks
        total.free_blocks += max(0, engine.num_cpu_blocks - cached - in_flight)
        total.cached_blocks += cached
        total.in_flight_blocks += in_flight
        total.restorable_blocks += restorable
    return total
