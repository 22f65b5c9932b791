"""The policy: what was asked for and what each engine answered."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, func, select

from app.models import AppliedPolicy, PolicyBody, PolicyHistoryEntry, PolicyState
from app.queries.engines import live_engines
from app.settings import Settings
from connector import log, tables
from connector.policy import Policy

CAN_RESTORE = "yes"

_c = tables.events.c
_p = tables.policies.c
_e = tables.engines.c
_ANSWER = select(
    _c.engine_id, _e.dp_index, _c.step, _c.wall_ns, _c.policy_version, _c.enabled, _c.mode,
    _c.max_restore_blocks_per_step, _c.retention, _c.is_idle, _c.reason, _e.restore_support,
).join(tables.engines, _e.id == _c.engine_id).where(_c.kind == "policy_applied")  # fmt: skip


def read_state(conn: Connection, now_ns: int, settings: Settings) -> PolicyState:
    """The newest policy and every live engine's last answer."""
    newest = log.read_policy(conn)
    row = conn.execute(select(_p.created_wall_ns, _p.author).where(_p.version == newest.version)).one_or_none()
    live = live_engines(conn, now_ns, settings)
    supports = select(_e.id, _e.restore_support).where(_e.id.in_(live)).order_by(_e.id)
    engines = [_last_answer(conn, i, live[i], support, newest.version) for i, support in conn.execute(supports)]
    return PolicyState(
        version=newest.version,
        policy=_body(newest.policy),
        created_wall_ns=row.created_wall_ns if row else None,
        author=row.author if row else None,
        engines=engines,
        can_change=bool(live) or not settings.is_recorded,
        detail=_pending(engines, settings),
    )


def read_history(conn: Connection, limit: int) -> list[PolicyHistoryEntry]:
    """Every change, newest first, with the first answer of each engine to it, live or gone."""
    rows = conn.execute(select(tables.policies).order_by(_p.version.desc()).limit(limit + 1)).all()
    policies = {r.version: Policy.of(r) for r in rows}
    oldest = min(policies, default=0)
    answers: dict[int, list[AppliedPolicy]] = {v: [] for v in policies}
    first = (
        select(func.min(_c.seq))
        .where(_c.kind == "policy_applied", _c.policy_version >= oldest)
        .group_by(_c.engine_id, _c.policy_version)
    )
    for row in conn.execute(_ANSWER.where(_c.seq.in_(first)).order_by(_c.seq)):
        if row.policy_version in answers:
            answers[row.policy_version].append(_answer(row, row.policy_version))
    return [
        PolicyHistoryEntry(
            version=r.version,
            created_wall_ns=r.created_wall_ns,
            author=r.author,
            before=_body(_before(policies, r.version)),
            after=_body(policies[r.version]),
            applied=answers[r.version],
        )
        for r in rows[:limit]
    ]


def _before(policies: dict[int, Policy], version: int) -> Policy:
    # Versions may have holes: a transaction that failed may have taken a number.
    earlier = [v for v in policies if v < version]
    return policies[max(earlier)] if earlier else Policy()


def _last_answer(conn: Connection, engine_id: int, dp_index: int, support: str, newest: int) -> AppliedPolicy:
    # The newest first by the index on kind and time; a clock that was set back must not hide the newest row.
    row = conn.execute(_ANSWER.where(_c.engine_id == engine_id).order_by(_c.seq.desc()).limit(1)).one_or_none()
    if row is None:
        return AppliedPolicy(
            engine_id=engine_id, dp_index=dp_index, applied_version=None, applied_step=None, applied_wall_ns=None,
            is_pending=support == CAN_RESTORE, is_idle=False, reason=None, applied=None, restore_support=support,
        )  # fmt: skip
    return _answer(row, newest)


def _answer(row: Any, newest: int) -> AppliedPolicy:
    return AppliedPolicy(
        engine_id=row.engine_id,
        dp_index=row.dp_index,
        applied_version=row.policy_version,
        applied_step=row.step,
        applied_wall_ns=row.wall_ns,
        is_pending=row.restore_support == CAN_RESTORE and row.policy_version < newest,
        is_idle=row.is_idle,
        reason=row.reason,
        applied=_body(Policy.of(row)),
        restore_support=row.restore_support,
    )


def _pending(engines: Iterable[AppliedPolicy], settings: Settings) -> str | None:
    engines = list(engines)
    if not engines:
        if settings.is_recorded:
            return "no engine is live: this is a recorded log"
        return "no engine is live: the next one that starts obeys it"
    parts = [
        f"engine {e.engine_id} obeys nothing, since it cannot re-store: {e.restore_support}"
        for e in engines
        if e.restore_support != CAN_RESTORE
    ]
    if late := [str(e.engine_id) for e in engines if e.is_pending]:
        who = f"engine {late[0]} has" if len(late) == 1 else f"engines {', '.join(late)} have"
        parts.append(f"{who} not answered yet: it is stored, and obeyed from the next step on")
    return "; ".join(parts) or None


def _body(policy: Policy) -> PolicyBody:
    return PolicyBody(**policy.as_dict())
