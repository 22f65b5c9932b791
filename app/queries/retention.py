"""What `adaptive` goes by, has learned, chose and refused, in one engine."""

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from app.models import RetentionState, RetentionView, ReuseClass, RuleSwitch
from app.models.retention import Rule
from app.queries.engines import engine_row
from app.queries.ranges import SECOND_NS
from connector import tables

_c = tables.events.c
_r = tables.rollups.c
_s = tables.retention_states.c
_SUMS = ("evicted_blocks", "evicted_by_worth_blocks", "num_refusals")


def read_retention(conn: Connection, engine_id: int | None, limit: int) -> RetentionView:
    """Of an engine, the newest if none is named.

    Raises:
        NotFoundError: no such engine.
    """
    found: int = engine_row(conn, engine_id).id
    applied = (_c.engine_id == found, _c.kind == "policy_applied")
    last = conn.execute(select(_c.retention).where(*applied).order_by(_c.seq.desc()).limit(1)).one_or_none()
    # From the first answer on that follows the last other one.
    other = select(func.coalesce(func.max(_c.seq), 0)).where(*applied, _c.retention != "adaptive").scalar_subquery()
    began = conn.execute(
        select(_c.seq, _c.step, _c.wall_ns, _c.policy_version).where(*applied, _c.seq > other).order_by(_c.seq)
    ).all()
    if not began:
        state = _state(conn, found, _s.step >= 0)
        return RetentionView(
            engine_id=found, retention=last.retention if last else None, since_wall_ns=None, state=state,
            rule=None, rule_since_wall_ns=None, switches=[], num_switches=None, evicted_blocks=None,
            evicted_by_worth_blocks=None, num_refusals=None,
        )  # fmt: skip
    first = began[0]
    state = _state(conn, found, _s.step >= first.step)
    switched = (_c.kind == "rule_switched", _c.engine_id == found, _c.seq > first.seq)
    newest = conn.execute(select(tables.events).where(*switched).order_by(_c.seq.desc()).limit(limit)).mappings()
    switches = [_switch(row) for row in newest]
    counted = select(*(func.coalesce(func.sum(_r[name]), 0).label(name) for name in _SUMS)).where(
        _r.engine_id == found,
        _r.second >= first.wall_ns // SECOND_NS,
        _r.policy_version.in_({row.policy_version for row in began}),
    )
    return RetentionView(
        engine_id=found,
        retention="adaptive",
        since_wall_ns=first.wall_ns,
        state=state,
        rule=_rule(state, switches),
        rule_since_wall_ns=switches[0].wall_ns if switches else first.wall_ns,
        switches=switches,
        num_switches=conn.execute(select(func.count()).select_from(tables.events).where(*switched)).scalar_one(),
        **conn.execute(counted).mappings().one(),
    )


def _state(conn: Connection, engine_id: int, where: ColumnElement[bool]) -> RetentionState | None:
    query = select(tables.retention_states).where(_s.engine_id == engine_id, where).order_by(_s.step.desc()).limit(1)
    row: Any = conn.execute(query).one_or_none()
    if row is None:
        return None
    worths, returns = json.loads(row.worth), json.loads(row.returns)
    turns = [*range(len(worths) - 1), None]  # the last class are shared heads
    return RetentionState(
        step=row.step,
        wall_ns=row.wall_ns,
        rule=row.rule,
        is_guard_on=row.is_guard_on,
        lru_hit_rate=_rate(row.lru_hit_blocks, row.asked_blocks),
        worth_hit_rate=_rate(row.worth_hit_blocks, row.asked_blocks),
        asked_blocks=row.asked_blocks,
        guard_lead=row.guard_lead,
        num_reuses=row.num_reuses,
        num_to_learn=row.num_to_learn,
        horizon_s=row.horizon_s,
        edges_s=json.loads(row.edges_s),
        classes=[ReuseClass(turns=n, returns=r, worth=w) for n, r, w in zip(turns, returns, worths, strict=True)],
    )


def _rule(state: RetentionState | None, switches: list[RuleSwitch]) -> Rule | None:
    # A state is told every few seconds, a switch at once.
    if switches and (state is None or switches[0].step >= state.step):
        return switches[0].to_rule
    return state.rule if state else None


def _switch(row: Any) -> RuleSwitch:
    plain = ("seq", "step", "wall_ns", "from_rule", "to_rule", "reason", "asked_blocks", "num_reuses")
    return RuleSwitch(
        **{name: row[name] for name in plain},
        lru_hit_rate=_rate(row["lru_hit_blocks"], row["asked_blocks"]),
        worth_hit_rate=_rate(row["worth_hit_blocks"], row["asked_blocks"]),
    )


def _rate(hits: float, asked: float) -> float | None:
    return hits / asked if asked else None
