"""The sentence on the first screen, and where each of its numbers comes from."""

from collections.abc import Callable

from sqlalchemy import Connection, func, select

from app.models import Glance, GlanceNumber
from app.queries.ranges import DEFAULT_RANGE_NS, read_range
from app.queries.rollups import in_range, read_totals
from app.settings import Settings
from connector import tables

_k = tables.rollup_causes.c


def read_glance(
    conn: Connection,
    since: int | None,
    until: int | None,
    now_ns: int,
    settings: Settings,
    double_tier: Callable[[int, int, int], float | None],
) -> Glance:
    """The sentence about a range. `double_tier` says the hit rate that a tier twice as large would have given in it, if
    it knows of all its prompt tokens.

    Raises:
        BadQueryError: an empty range.
    """
    start, end = read_range(conn, since, until, now_ns, settings, default_ns=DEFAULT_RANGE_NS)
    sums = read_totals(conn, ("prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens"), start, end)
    prompt = sums["prompt_tokens"]
    evicted = (in_range(tables.rollup_causes, start, end), _k.cause == "evicted")
    lost = select(func.coalesce(func.sum(_k.lost_tokens), 0)).where(*evicted)
    lost_tokens: int = conn.execute(lost).scalar_one()
    saveable: int = conn.execute(lost.where(_k.cause_detail == "owner_running")).scalar_one()
    hit = (sums["gpu_hit_tokens"] + sums["cpu_hit_tokens"]) / prompt if prompt else None
    lost_share = lost_tokens / prompt if prompt else None
    saved_share = saveable / prompt if prompt else None
    double = double_tier(start, end, prompt) if prompt else None
    numbers = [
        GlanceNumber(name="from_cache", share=hit, view="overview", query={}),
        GlanceNumber(name="lost_to_eviction", share=lost_share, view="causes", query={"cause": "evicted"}),
        GlanceNumber(
            name="restore_would_have_saved",
            share=saved_share,
            view="causes",
            query={"cause": "evicted", "detail": "owner_running"},
        ),
        GlanceNumber(name="double_tier", share=double, view="whatif", query={}),
    ]
    return Glance(
        since_wall_ns=start,
        until_wall_ns=end,
        prompt_tokens=prompt,
        from_cache=hit,
        lost_to_eviction=lost_share,
        restore_would_have_saved=saved_share,
        double_tier=double,
        sentence=_sentence(hit, lost_share, saved_share, double),
        numbers=numbers,
    )


def _sentence(hit: float | None, lost: float | None, saved: float | None, double: float | None) -> str:
    if hit is None or lost is None or saved is None:
        return "No request was admitted in this range."
    text = f"{_percent(hit)} of prompt tokens came from cache"
    if lost:
        text += f"; {_percent(lost)} were lost to CPU evictions"
        text += (
            f", of which re-store could have saved {_percent(saved)}" if saved else ", none that re-store could save"
        )
    else:
        text += "; none was lost to CPU evictions"
    if double is not None:
        text += f"; a tier twice as large would give {_percent(double)}"
    return f"{text}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share == 0 or share >= 0.01 else "less than 1 %"
