"""The totals of a range: tokens by source, blocks by what happened to them, time to the first token, the CPU tier."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from app.models import Summary, TierFill, TokenSplit
from app.queries.branches import driver_of
from app.queries.engines import live_engines
from app.queries.events import newest_seq
from app.queries.ranges import SECOND_NS, read_range
from app.queries.rollups import read_totals
from app.settings import Settings
from connector import tables

MINUTE_NS = 60_000_000_000
_TTFT = """
SELECT ttft_ns FROM events
WHERE kind = 'request_finished' AND wall_ns >= ? AND wall_ns < ? AND ttft_ns IS NOT NULL
"""
TOKENS = ("prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "restored_hit_tokens")
BLOCKS = (
    "stored_blocks", "restored_blocks", "evicted_blocks", "loaded_blocks", "dropped_blocks",
    "stored_bytes", "restored_bytes", "loaded_bytes",
)  # fmt: skip

_c = tables.events.c
_s = tables.steps.c
_e = tables.engines.c
_r = tables.rollups.c


def read_summary(conn: Connection, since: int | None, until: int | None, now_ns: int, settings: Settings) -> Summary:
    """The totals from `since` (or the log's begin) to `until` (or now), which is not in it; both are rounded outwards
    to whole seconds.

    Raises:
        BadQueryError: `until` is not after `since`.
    """
    start, end = read_range(conn, since, until, now_ns, settings, default_ns=None)
    span = _c.wall_ns.between(start, end - 1)
    sums = read_totals(conn, ("num_started", *TOKENS, *BLOCKS), start, end)
    live = live_engines(conn, now_ns, settings)
    p50, p90 = _ttft(conn, start, end)
    return Summary(
        since_wall_ns=None if since is None else start,
        until_wall_ns=end,
        tokens=_split(sums),
        last_minute=token_split(conn, max(0, end - MINUTE_NS), end),
        num_requests=sums["num_started"],
        num_running=_num_unfinished(conn, list(live)),
        **{k: sums[k] for k in BLOCKS},
        ttft_p50_ns=p50,
        ttft_p90_ns=p90,
        num_faults=_num_faults(conn, start, end),
        num_events_dropped=_sum_dropped(conn, span),
        last_fault=_last_fault(conn, span),
        cpu_tier=_tier(conn, list(live)),
        last_seq=newest_seq(conn),
    )


def token_split(conn: Connection, start: int, end: int) -> TokenSplit:
    """Prompt tokens of lookups in a range of whole seconds, in nanoseconds (`end` not in it), by source."""
    return _split(read_totals(conn, TOKENS, start, end))


def _split(sums: Mapping[str, Any]) -> TokenSplit:
    prompt, gpu, cpu, restored = (int(sums[name]) for name in TOKENS)
    return TokenSplit(
        prompt_tokens=prompt,
        gpu_hit_tokens=gpu,
        cpu_hit_tokens=cpu,
        restored_hit_tokens=restored,
        computed_tokens=prompt - gpu - cpu,
        hit_rate=(gpu + cpu) / prompt if prompt else None,
    )


def _num_unfinished(conn: Connection, live: list[int]) -> int:
    """Started minus finished, of the live engines. Steps do not say it: an engine that has finished all takes none."""
    if not live:
        return 0
    started = conn.execute(select(func.min(_e.started_wall_ns)).where(_e.id.in_(live))).scalar_one()
    left = func.coalesce(func.sum(_r.num_started - _r.num_finished), 0)
    query = select(left).where(_r.engine_id.in_(live), _r.second >= started // SECOND_NS)
    return max(0, conn.execute(query).scalar_one())


def _ttft(conn: Connection, start: int, end: int) -> tuple[int | None, int | None]:
    """The median and the 90th percentile by nearest rank, in nanoseconds."""
    # Of a long log these are many: the driver's own rows cost a third of SQLAlchemy's.
    values = [ns for (ns,) in driver_of(conn).execute(_TTFT, (start, end))]
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
