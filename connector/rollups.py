"""Sums a second, kept beside the rows in the same transaction, so that a view over a long log need not read it all.

Log ring. `log.append` alone writes them; `tables.rollups` says what is summed. A row belongs to the second of its
`wall_ns` and to the policy that its engine had said it obeys by then, in the log's order.
"""

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection

from connector import tables
from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    Event,
    Lookup,
    PolicyApplied,
    RequestFinished,
    RequestStarted,
    StepTaken,
    StoresRefused,
)

SECOND_NS = 1_000_000_000
NO_POLICY = -1
NOT_RECORDED = "not_recorded"
"""The cause of a lookup that was cut and does not say why: no engine of this version writes one."""

_EDGES = tables.BIN_EDGES_NS
_LEAST, _MOST = -(2**63), 2**63 - 1
_APPLIED = """
SELECT policy_version FROM events
WHERE kind = 'policy_applied' AND engine_id = ? ORDER BY seq DESC LIMIT 1
"""


def _upsert(name: str, keys: tuple[str, ...], sums: tuple[str, ...], rest: dict[str, str]) -> str:
    columns = (*keys, *sums, *rest)
    sets = [f"{c} = {c} + excluded.{c}" for c in sums] + [f"{c} = {sql}" for c, sql in rest.items()]
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
        f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(sets)}"
    )


_KEYS = ("second", "engine_id", "policy_version")
_INSERT = _upsert(
    "rollups",
    _KEYS,
    tables.SUMS + tables.PREFILL_SUMS,
    {
        "last_step": "max(coalesce(last_step, excluded.last_step), coalesce(excluded.last_step, last_step))",
        "cpu_blocks_cached": "CASE WHEN excluded.last_step >= coalesce(last_step, excluded.last_step) "
        "THEN excluded.cpu_blocks_cached ELSE cpu_blocks_cached END",
    },
)
_INSERT_CAUSE = _upsert("rollup_causes", (*_KEYS, "cause", "cause_detail"), tables.CAUSE_SUMS, {})


_PLAIN = tables.SUMS[: tables.SUMS.index("evicted_age_0")]
"""The sums that are a field each; the bins behind them are lists."""


class Sums:
    """What one second of one engine under one policy came to. The fields are the columns, by name."""

    __slots__ = (*_PLAIN, "ages", "causes", "cpu_blocks_cached", "last_step", "prefill", "prefill_steps", "sinces")

    def __init__(self) -> None:
        for name in _PLAIN:
            setattr(self, name, 0)
        self.prefill_steps = 0
        self.ages = [0] * tables.NUM_BINS
        self.sinces = [0] * tables.NUM_BINS
        self.prefill = [0.0] * len(tables.PREFILL_SUMS)
        self.last_step: int | None = None
        self.cpu_blocks_cached: int | None = None
        self.causes: dict[tuple[str, str], list[int]] = {}

    def values(self) -> tuple[Any, ...]:
        """In the order of the table's columns, after its keys."""
        whole: list[int] = [*map(self.__getattribute__, _PLAIN), *self.ages, *self.sinces, self.prefill_steps]
        return (*map(_bounded, whole), *self.prefill, self.last_step, self.cpu_blocks_cached)


def _bounded(value: int) -> int:
    # A sum that SQLite has no integer for must not cost the row that it is the sum of.
    return min(max(value, _LEAST), _MOST)


def _lookup(s: Any, e: Lookup) -> None:
    if e.is_resumed:
        return
    s.num_lookups += 1
    s.prompt_tokens += e.num_tokens
    s.gpu_hit_tokens += e.gpu_hit_tokens
    s.cpu_hit_tokens += e.cpu_hit_tokens
    s.restored_hit_tokens += e.restored_hit_tokens
    s.lost_tokens += e.lost_tokens
    s.behind_tokens += e.behind_tokens
    cause = e.cause or ("" if e.cut_index is None else NOT_RECORDED)
    key = (cause, e.cause_detail or "")
    sums = s.causes.get(key)
    if sums is None:
        sums = s.causes[key] = [0, 0, 0, 0]
    sums[0] += 1
    sums[1] += e.num_tokens
    sums[2] += e.lost_tokens
    sums[3] += e.behind_tokens


def _started(s: Any, _: RequestStarted) -> None:
    s.num_started += 1


def _finished(s: Any, _: RequestFinished) -> None:
    s.num_finished += 1


def _stored(s: Any, e: BlocksStored) -> None:
    s.stored_blocks += e.num_blocks
    s.stored_bytes += e.num_bytes
    if e.copy_ns is not None:
        s.stored_copy_ns += e.copy_ns
        s.stored_measured_blocks += e.num_blocks


def _restored(s: Any, e: BlocksRestored) -> None:
    s.restored_blocks += e.num_blocks
    s.restored_bytes += e.num_bytes
    if e.copy_ns is not None:
        s.restored_copy_ns += e.copy_ns
        s.restored_measured_blocks += e.num_blocks


def _loaded(s: Any, e: BlocksLoaded) -> None:
    s.loaded_blocks += e.num_blocks
    s.loaded_bytes += e.num_bytes
    s.loaded_restored_blocks += e.num_restored
    if e.copy_ns is not None:
        s.loaded_copy_ns += e.copy_ns
        s.loaded_measured_blocks += e.num_blocks


def _evicted(s: Any, e: BlocksEvicted) -> None:
    n = e.num_blocks
    s.evicted_blocks += n
    s.evicted_judged_blocks += n
    s.evicted_unhit_blocks += n - e.num_loaded
    if e.is_by_restore:
        s.evicted_by_restore_blocks += n
    if e.victim_worth is not None:
        s.evicted_by_worth_blocks += n
    if e.age_ns is not None:
        s.ages[bisect_right(_EDGES, e.age_ns)] += n


def _missed(s: Any, e: BlocksMissed) -> None:
    n = e.num_blocks
    s.missed_blocks += n
    s.missed_owned_blocks += e.num_owned
    if e.is_by_restore:
        s.missed_by_restore_blocks += n
    s.sinces[bisect_right(_EDGES, e.since_ns)] += n


def _dropped(s: Any, e: BlocksDropped) -> None:
    s.dropped_blocks += e.num_blocks


def _refused(s: Any, _: StoresRefused) -> None:
    s.num_refusals += 1


_FOLDS: dict[type[Event], Callable[[Any, Any], None]] = {
    Lookup: _lookup,
    RequestStarted: _started,
    RequestFinished: _finished,
    BlocksStored: _stored,
    BlocksRestored: _restored,
    BlocksLoaded: _loaded,
    BlocksEvicted: _evicted,
    BlocksMissed: _missed,
    BlocksDropped: _dropped,
    StoresRefused: _refused,
}


class Rollups:
    """The sums of one batch of one engine."""

    def __init__(self, conn: Connection, engine_id: int) -> None:
        self._engine_id = engine_id
        applied = conn.exec_driver_sql(_APPLIED, (engine_id,)).fetchone()
        self._policy: int = applied[0] if applied else NO_POLICY
        self._sums: dict[tuple[int, int], Sums] = {}
        self._second = -1
        self._now: Sums | None = None

    def add(self, wall_ns: int, kind: type[Any], event: Any) -> None:
        """Count one event."""
        fold = _FOLDS.get(kind)
        if fold is not None:
            if self._now is None or wall_ns // SECOND_NS != self._second:
                self._now = self._turn_to(wall_ns // SECOND_NS)
            fold(self._now, event)
        elif kind is PolicyApplied:
            self._policy, self._now = event.policy_version, None

    def add_step(self, step: int, wall_ns: int, taken: StepTaken) -> None:
        """Count one step."""
        if self._now is None or wall_ns // SECOND_NS != self._second:
            self._now = self._turn_to(wall_ns // SECOND_NS)
        s: Any = self._now
        if s.last_step is None or step >= s.last_step:
            s.last_step, s.cpu_blocks_cached = step, taken.cpu_blocks_cached
        ns, tokens, running = taken.previous_ns, taken.previous_tokens, taken.previous_running
        if ns is None or tokens is None or running is None or tokens <= running:
            return
        x, y = float(tokens), ns / 1e9
        s.prefill_steps += 1
        p = s.prefill
        p[0] += x
        p[1] += y
        p[2] += x * x
        p[3] += x * y
        p[4] += y * y

    def _turn_to(self, second: int) -> Sums:
        self._second = second
        key = second, self._policy
        sums = self._sums.get(key)
        if sums is None:
            sums = self._sums[key] = Sums()
        return sums

    def write(self, conn: Connection) -> None:
        """Add the sums to what the log has, inside the caller's transaction."""
        engine = self._engine_id
        if rows := [(second, engine, policy, *s.values()) for (second, policy), s in self._sums.items()]:
            conn.exec_driver_sql(_INSERT, rows)
        causes = [
            (second, engine, policy, *key, *map(_bounded, sums))
            for (second, policy), s in self._sums.items()
            for key, sums in s.causes.items()
        ]
        if causes:
            conn.exec_driver_sql(_INSERT_CAUSE, causes)
