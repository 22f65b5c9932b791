"""What requests did, in the log's order: the rows that shadows of the CPU tier are fed with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil
from typing import Any

from sqlalchemy import Connection, select

from app.queries.branches import driver_of
from connector import tables
from connector.shadow import Chain, GroupShape
from connector.shadow_groups import Line, chain_of

_e = tables.engines.c

FULL = ("FullAttentionSpec", "MLAAttentionSpec", "SinkFullAttentionSpec", "HiddenStateCacheSpec")
WINDOW = ("SlidingWindowSpec", "SlidingWindowMLASpec")
# The plus keeps SQLite from using the index on `kind`, whose order is not the log's.
_ROWS = """
SELECT seq, step, wall_ns, monotonic_ns, kind, request_id, kv_group, first_index, from_index, num_blocks, tail_hash,
       scheduled_step, num_tokens, gpu_hit_tokens, cpu_hit_tokens, to_index, num_output_tokens, is_resumed, is_skipped,
       enabled, max_restore_blocks_per_step, retention, is_restore, session_id
FROM events
WHERE seq > ? AND engine_id = ? AND +kind IN ('request_started', 'lookup', 'lookup_waits', 'cursor_moved',
      'blocks_stored', 'blocks_restored', 'blocks_evicted', 'blocks_loaded', 'stores_refused', 'request_finished',
      'request_preempted', 'cache_reset', 'policy_applied')
ORDER BY seq LIMIT ?
"""
_COPIED = """
SELECT request_id, first_index, num_blocks, tail_hash FROM events
WHERE (request_id = ?1 OR request_id IS NULL) AND seq > ?2 AND +engine_id = ?3 AND +kind = 'blocks_stored'
      AND kv_group = ?4 AND scheduled_step BETWEEN ?5 AND ?6
"""
_COMPUTED = """
SELECT max(first_index + num_blocks) FROM events
WHERE request_id = ?1 AND +engine_id = ?2 AND +kv_group = ?3
      AND (seq > ?4 AND +kind = 'blocks_stored' AND scheduled_step BETWEEN ?5 AND ?5 + 1
           OR seq < ?4 AND +kind = 'blocks_dropped' AND step = ?5)
"""
_IS_LATER = "SELECT EXISTS (SELECT 1 FROM events WHERE seq > ? AND engine_id = ? AND step > ?)"
_END = """
SELECT tail_hash FROM events
WHERE request_id = ? AND seq > ? AND +engine_id = ? AND +kind = 'request_finished' ORDER BY seq LIMIT 1
"""

_PARENT = "SELECT parent_hash FROM block_hashes WHERE engine_id = ? AND hash = ?"
MAX_LOST = 4_096


@dataclass(frozen=True, slots=True)
class TierShape:
    """The CPU tier of one engine, as shadows need it.

    Attributes:
        groups: those that a hit must satisfy, full attention first.
        num_draft_tokens: that may be proposed a step.
        unsupported: why there can be no shadow of it, in words; None where there can.
    """

    engine_id: int
    hash_block_size: int
    num_blocks: int
    block_bytes: int
    groups: tuple[GroupShape, ...]
    unsupported: str | None
    num_draft_tokens: int = 0


def newest_engine(conn: Connection) -> int | None:
    """The engine that signed in last; None where none has."""
    return conn.execute(select(_e.id).order_by(_e.id.desc()).limit(1)).scalar_one_or_none()


def read_shape(conn: Connection, engine_id: int) -> TierShape | None:
    """What the engine said of its tier when it signed in; None where there is no such engine."""
    columns = (_e.hash_block_size, _e.num_cpu_blocks, _e.block_bytes, _e.kv_groups, _e.restore_support)
    row = conn.execute(select(*columns).where(_e.id == engine_id)).one_or_none()
    if row is None:
        return None
    groups: list[GroupShape] = []
    # An engine that signed in before drafts were told leaves them out.
    num_draft_tokens = 0
    unsupported = (
        None if row.restore_support == "yes" else f"this engine does not record its tier: {row.restore_support}"
    )
    for number, group in enumerate(json.loads(row.kv_groups)):
        num_draft_tokens = int(group.get("num_draft_tokens", 0))
        if not group["is_prefix_cacheable"]:
            continue
        size, window = int(group["block_size"]), group.get("window")
        if group["kind"] in FULL:
            needed = None
        elif group["kind"] in WINDOW and window is not None:
            needed = ceil((window - 1) / size)
        else:
            unsupported = f"a KV-cache group is of the kind {group['kind']}, whose hits a shadow cannot follow"
            continue
        drops_last = bool(group.get("drops_last_block"))
        groups.append(GroupShape(number, max(1, size // row.hash_block_size), needed, drops_last))
    groups.sort(key=lambda g: (g.needed is not None, g.number))
    if not groups and unsupported is None:
        unsupported = "no KV-cache group of this engine can be hit"
    return TierShape(
        engine_id,
        row.hash_block_size,
        row.num_cpu_blocks,
        row.block_bytes,
        tuple(groups),
        unsupported,
        num_draft_tokens,
    )


def read_rows(conn: Connection, engine_id: int, after: int, limit: int) -> Sequence[Any]:
    """The next rows of one engine behind `after`, in order."""
    return conn.exec_driver_sql(_ROWS, (after, engine_id, limit)).all()


def read_copied(
    conn: Connection, engine_id: int, row: Any, group: int, last_step: int, known_step: int
) -> tuple[frozenset[int], frozenset[bytes]] | None:
    """Which of a group's blocks the row's request had copied from the row's step to `last_step`, by index, and the last
    hashes of what was copied for nobody known. None where the log does not go beyond `known_step` yet."""
    if not conn.exec_driver_sql(_IS_LATER, (row.seq, engine_id, known_step)).scalar_one():
        return None
    bounds = (row.request_id, row.seq, engine_id, group, row.step, last_step)
    found = conn.exec_driver_sql(_COPIED, bounds).all()
    own = frozenset(i for r in found if r.request_id for i in range(r.first_index, r.first_index + r.num_blocks))
    return own, frozenset(r.tail_hash for r in found if not r.request_id)


def read_computed(conn: Connection, engine_id: int, row: Any, group: int) -> int | None:
    """How many blocks of a group a request that ended in this row had computed at least, as what was copied and dropped
    at its end shows. None where nothing was, or where the log does not go so far yet."""
    bounds = (row.request_id, engine_id, group, row.seq, row.step)
    return conn.exec_driver_sql(_COMPUTED, bounds).scalar_one()


class Chains:
    """Chains of block hashes by their last hash. Each hash is read from the log once while it is in use, and is named
    once for all tiers.

    Args:
        capacity: hashes that are remembered; the oldest half goes when there are more.
    """

    def __init__(self, engine_id: int, groups: Sequence[GroupShape], *, capacity: int = 200_000) -> None:
        self._engine_id = engine_id
        self._groups = groups
        self._capacity = capacity
        self._places: dict[bytes, tuple[Line, int]] = {}
        self._lost: set[bytes] = set()
        self._empty = chain_of(groups, ())

    def get(self, conn: Connection, tail: bytes | None) -> Chain:
        """The hashes from the head to `tail`; empty where the log has lost a part of them."""
        if tail is None or tail in self._lost:
            return self._empty
        place = self._places.get(tail) or self._read(conn, tail)
        return self._empty if place is None else Chain(*place)

    def _read(self, conn: Connection, tail: bytes) -> tuple[Line, int] | None:
        """Walk from the tail to a hash that is known, or to the head."""
        execute = driver_of(conn).execute
        path: list[bytes] = []
        at: bytes | None = tail
        while at is not None and at not in self._places:
            path.append(at)
            row = execute(_PARENT, (self._engine_id, at)).fetchone()
            if row is None:
                self._lose(tail)
                return None
            at = row[0]
        line, length = (Line(self._groups), 0) if at is None else self._places[at]
        if length < len(line.hashes):
            line = line.branch(length)
        path.reverse()
        line.extend(path)
        if len(self._places) + len(path) > self._capacity:
            for old in list(islice(self._places, self._capacity // 2)):
                del self._places[old]
        for hash_ in path:
            length += 1
            self._places[hash_] = (line, length)
        return line, length

    def _lose(self, tail: bytes) -> None:
        if len(self._lost) >= MAX_LOST:
            self._lost.clear()
        self._lost.add(tail)

    def whole(self, conn: Connection, lookup: Any) -> Chain:
        """The chain of the request that was looked up. As it was when the request ended, if the log knows that already:
        then what it computes later can be named at once."""
        row = driver_of(conn).execute(_END, (lookup.request_id, lookup.seq, self._engine_id)).fetchone()
        return self.get(conn, lookup.tail_hash if row is None else row[0])
