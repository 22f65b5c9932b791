"""How fast an engine prefills, measured on its own steps."""

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from app.models import Prefill
from app.queries.rollups import read_totals
from connector import tables

COLUMNS = ("prefill_steps", *tables.PREFILL_SUMS)
LEAST_STEPS = 3
"""Fewer make no line."""
LEAST_R_SQUARED = 0.5
"""Where tokens explain less than half of the differences between steps, the line's slope is no speed to price by."""

_r = tables.rollups.c
_e = tables.engines.c


def prefill_of(sums: Mapping[str, Any]) -> Prefill:
    """The least-squares line through (tokens, seconds) of the steps that did prefill, and why not to rely on it."""
    n: int = sums["prefill_steps"]
    x, y, xx, xy, yy = (float(sums[name]) for name in tables.PREFILL_SUMS)
    # n times the sums of squares around the mean.
    var_x, var_y, cov = n * xx - x * x, n * yy - y * y, n * xy - x * y
    if n < LEAST_STEPS:
        return _no_speed(n, "too few steps did prefill to measure its speed")
    # Steps that were all of one size leave nothing but the rounding of the sums.
    if var_x <= 1e-9 * n * xx:
        return _no_speed(n, "all steps did the same amount of prefill, so its speed cannot be measured")
    slope = cov / var_x
    r_squared = min(1.0, cov * cov / (var_x * var_y)) if var_y > 0 else None
    if slope <= 0 or r_squared is None:
        return _no_speed(n, "steps with more prefill took no longer, so its speed cannot be measured", r_squared)
    doubt = None
    if r_squared < LEAST_R_SQUARED:
        doubt = (
            f"how long a step took has little to do with its prefill tokens (R² {r_squared:.2f}; "
            f"{LEAST_R_SQUARED} is the least), so the speed of prefill is not known well enough"
        )
    return Prefill(seconds_per_token=slope, num_steps=n, r_squared=r_squared, doubt=doubt)


def _no_speed(num_steps: int, doubt: str, r_squared: float | None = None) -> Prefill:
    return Prefill(seconds_per_token=None, num_steps=num_steps, r_squared=r_squared, doubt=doubt)


def reliable_speed(fit: Prefill) -> float | None:
    """Seconds a token; None where that should not be relied on."""
    return fit.seconds_per_token if fit.doubt is None else None


def engine_prefill(conn: Connection, engine_id: int, until_ns: int) -> Prefill:
    """Of one engine, over all its steps up to the second of a moment."""
    row = conn.execute(select(_e.started_wall_ns).where(_e.id == engine_id)).scalar_one()
    return prefill_of(read_totals(conn, COLUMNS, row // 10**9 * 10**9, until_ns // 10**9 * 10**9 + 10**9, engine_id))


def block_sizes(conn: Connection, until_ns: int) -> tuple[list[int], int] | None:
    """Tokens a block of each group that can be found by its prefix, and bytes a block, of the newest engine that had
    started by then; None where there is none."""
    row = conn.execute(
        select(_e.kv_groups, _e.block_bytes, _e.hash_block_size)
        .where(_e.started_wall_ns < until_ns)
        .order_by(_e.id.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    groups: list[dict[str, Any]] = json.loads(row.kv_groups)
    sizes = [int(g["block_size"]) for g in groups if g.get("is_prefix_cacheable", True)]
    return sizes or [row.hash_block_size], row.block_bytes
