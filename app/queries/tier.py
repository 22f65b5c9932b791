"""The CPU tier of one engine as of a row of the log, worked out from what happened to its blocks.

Read from that row backwards: the newest store of a CPU block says what lies there, the newest eviction after it that it
is gone. Loads in between are its hits, and the newest of both says how recently it was used, which is its place in the
order of eviction. What a block holds is never older than the tier takes to turn over, unless it is hit again and again.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from app.errors import BadQueryError
from app.models import Tier, TierBlock, TierState
from app.queries.benefit import histogram
from app.queries.branches import driver_of
from app.queries.conversation_index import ConversationIndex
from app.queries.engines import engine_row
from app.queries.events import newest_seq
from app.queries.ranges import SECOND_NS
from app.queries.rollups import read_totals
from connector import tables

MAX_ROWS = 200_000
"""Of the log, that are read backwards. Blocks of which they say nothing are unknown."""
ENOUGH_ROWS = 20_000
"""Once so many are read and something is known of each block, a block that is hit all the time is not followed back to
its store."""
MAX_LOOKUPS = 2_000
"""Of the newest lookups, that may wait for a load, and of those that may wait for a place."""

_BACKWARDS = """
SELECT seq, wall_ns, kind, request_id, kv_group, first_index, tail_hash, cpu_block_ids
FROM events
WHERE seq <= ? AND engine_id = ?
  AND +kind IN ('blocks_stored', 'blocks_restored', 'blocks_evicted', 'blocks_loaded', 'cache_reset')
ORDER BY seq DESC LIMIT ?
"""
_WAITING = """
SELECT l.tail_hash, l.gpu_hit_tokens, l.cpu_hit_tokens
FROM (
    SELECT * FROM (SELECT * FROM events WHERE kind = 'lookup' AND seq <= ?1 ORDER BY wall_ns DESC LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT * FROM events WHERE kind = 'lookup_waits' AND seq <= ?1 ORDER BY wall_ns DESC LIMIT ?3)
) AS l
WHERE l.engine_id = ?2 AND l.cpu_hit_tokens > 0 AND NOT EXISTS (
    SELECT 1 FROM events AS e WHERE e.request_id = l.request_id AND e.engine_id = ?2
    AND e.seq > l.seq AND e.seq <= ?1
    AND e.kind IN ('lookup', 'lookup_waits', 'blocks_loaded', 'request_finished', 'request_preempted')
)
"""
_PARENT = "SELECT parent_hash FROM block_hashes WHERE engine_id = ? AND hash = ?"

_c = tables.events.c


@dataclass(slots=True)
class _Place:
    """What is known of one CPU block so far, reading backwards."""

    is_settled: bool = False
    is_evicted: bool = False
    touched: tuple[int, int] | None = None
    num_hits: int = 0
    row: Sequence[Any] | None = None
    position: int = 0


def read_tier(
    conn: Connection,
    index: ConversationIndex,
    engine_id: int | None,
    seq: int | None,
    since: int | None,
    until: int | None,
    first_id: int,
    limit: int,
) -> Tier:
    """The tier of an engine (the newest, if none is named) after a row of the log (the last, if none is named).

    Raises:
        NotFoundError: no such engine.
        BadQueryError: an empty range.
    """
    engine = engine_row(conn, engine_id)
    newest = newest_seq(conn)
    at = newest if seq is None else min(seq, newest)
    wall = select(_c.wall_ns).where(_c.seq <= at, _c.engine_id == engine.id).order_by(_c.seq.desc()).limit(1)
    wall_ns: int = conn.execute(wall).scalar_one_or_none() or engine.started_wall_ns
    start = (engine.started_wall_ns if since is None else since) // SECOND_NS * SECOND_NS
    end = -(-(wall_ns + 1 if until is None else until) // SECOND_NS) * SECOND_NS
    if start >= end:
        raise BadQueryError(f"the range is empty: since ({start}) must be before until ({end})")

    places, ended = _places(conn, engine, at)
    hashes = _Hashes(conn, engine.id, _ratios(engine))
    pinned, num_waiting = _pinned(conn, engine, at, places, hashes)
    ranks = _ranks(places, pinned)
    groups = index.conversation_ids(engine.id)
    state_of: dict[int, TierState] = {
        i: _state(place, is_pinned=i in pinned, knows_all=ended) for i, place in places.items()
    }
    # A tier may have some hundred thousand blocks: only those that are asked for are described.
    shown = sorted(i for i in places if i >= first_id)[:limit]
    blocks = [_block(i, state_of[i], places[i], hashes, wall_ns, groups, ranks.get(i)) for i in shown]
    names = ("evicted_blocks", "evicted_judged_blocks", "evicted_unhit_blocks")
    ages = [f"evicted_age_{i}" for i in range(tables.NUM_BINS)]
    sums = read_totals(conn, (*names, *ages), start, end, engine.id)
    judged = sums["evicted_judged_blocks"]
    states: Counter[str] = Counter(state_of.values())
    return Tier(
        engine_id=engine.id,
        seq=at,
        wall_ns=wall_ns,
        num_blocks=engine.num_cpu_blocks,
        block_bytes=engine.block_bytes,
        states=dict(states),
        blocks=blocks,
        is_complete=not states["unknown"],
        is_order_approximate=bool(num_waiting or states["in_flight"] or states["unknown"] or _has_gaps(conn, at)),
        since_wall_ns=start,
        until_wall_ns=end,
        evicted_blocks=sums["evicted_blocks"],
        evicted_unhit_blocks=sums["evicted_unhit_blocks"],
        churn=sums["evicted_unhit_blocks"] / judged if judged else None,
        eviction_age=histogram([sums[name] for name in ages]),
    )


def _ratios(engine: Any) -> list[int]:
    """How many hashes a block of each group covers."""
    groups: list[dict[str, Any]] = json.loads(engine.kv_groups)
    return [max(1, int(g["block_size"]) // engine.hash_block_size) for g in groups] or [1]


def _places(conn: Connection, engine: Any, at: int) -> tuple[dict[int, _Place], bool]:
    """What lies in each block, by id, and whether the log was read back to the engine's begin, or as far as was
    needed. vLLM's block 0 holds nothing, so ids begin at 1."""
    places = {i: _Place() for i in range(1, engine.num_cpu_blocks + 1)}
    left, unseen, num_rows, is_over = len(places), len(places), 0, False
    for row in driver_of(conn).execute(_BACKWARDS, (at, engine.id, MAX_ROWS)):
        num_rows += 1
        if row[2] == "cache_reset":
            is_over = True
            break
        for position, i in enumerate(json.loads(row[7])):
            if i not in places:
                places[i] = _Place()
                left, unseen = left + 1, unseen + 1
            place = places[i]
            if not place.is_settled:
                unseen -= place.row is None
                _look(place, row, position)
                left -= place.is_settled
        if not left or (not unseen and num_rows >= ENOUGH_ROWS):
            is_over = True
            break
    # A log that counts its blocks from 0 has one id less at the end.
    last = engine.num_cpu_blocks
    if 0 in places and last in places and places[last].row is None and not places[last].is_settled:
        del places[last]
    return places, is_over or num_rows < MAX_ROWS


def _look(place: _Place, row: Sequence[Any], position: int) -> None:
    """Learn from a row about one block of it, older than all that is known of the block so far."""
    seq, kind = row[0], row[2]
    if kind == "blocks_evicted":
        # A load that is newer than the eviction is of what was stored since, which the log has lost.
        place.is_settled, place.is_evicted = True, place.row is None
        return
    if place.touched is None:
        place.touched = (seq, position)
    if kind == "blocks_loaded":
        place.num_hits += 1
        if place.row is None:
            place.row, place.position = row, position
    else:
        place.is_settled = True
        place.row, place.position = row, position


class _Hashes:
    """Hashes of blocks inside runs, which the log names by their first and last hash only."""

    def __init__(self, conn: Connection, engine_id: int, ratios: Sequence[int]) -> None:
        self._execute = driver_of(conn).execute
        self._engine_id = engine_id
        self._ratios = ratios
        self._runs: dict[int, list[bytes | None]] = {}

    def of(self, place: _Place) -> bytes | None:
        """The hash of what lies in a block: the last one that it covers."""
        assert place.row is not None
        seq, _, _, _, group, _, tail, ids_text = place.row
        group = int(group)
        if seq not in self._runs:
            count = ids_text.count(",") + 1
            ratio = self._ratios[group] if group < len(self._ratios) else 1
            found: list[bytes | None] = []
            at: bytes | None = tail
            for _ in range(count):
                found.append(at)
                at = self.ancestor(at, ratio)
            self._runs[seq] = found[::-1]
        return self._runs[seq][place.position]

    def ancestor(self, block_hash: bytes | None, distance: int) -> bytes | None:
        """The hash so many before another one; None where the log does not know it."""
        for _ in range(distance):
            if block_hash is None:
                return None
            row = self._execute(_PARENT, (self._engine_id, block_hash)).fetchone()
            block_hash = row[0] if row else None
        return block_hash


def _pinned(conn: Connection, engine: Any, at: int, places: dict[int, _Place], hashes: _Hashes) -> tuple[set[int], int]:
    """Blocks of CPU hits whose request waits: for its load to be complete, or for a place on the GPU to load into. And
    how many requests do."""
    waiting = conn.exec_driver_sql(_WAITING, (at, engine.id, MAX_LOOKUPS)).all()
    if not waiting:
        return set(), 0
    by_hash: dict[bytes, list[int]] = {}
    for i, place in places.items():
        if place.row is not None and not place.is_evicted and (block_hash := hashes.of(place)) is not None:
            by_hash.setdefault(block_hash, []).append(i)
    pinned: set[int] = set()
    size = engine.hash_block_size
    for tail, gpu, cpu in waiting:
        depth = conn.exec_driver_sql(
            "SELECT depth FROM block_hashes WHERE engine_id = ? AND hash = ?", (engine.id, tail)
        ).scalar_one_or_none()
        if depth is None:
            continue
        first, end = gpu // size, (gpu + cpu) // size
        block_hash = hashes.ancestor(tail, max(0, depth - end + 1))
        for _ in range(first, min(end, depth + 1)):
            if block_hash is None:
                break
            pinned.update(by_hash.get(block_hash, ()))
            block_hash = hashes.ancestor(block_hash, 1)
    return pinned, len(waiting)


def _ranks(places: dict[int, _Place], pinned: set[int]) -> dict[int, int]:
    """The order of eviction: least recently stored or loaded first, within one copy head first."""
    cached = [
        (place.touched, i)
        for i, place in places.items()
        if place.touched is not None and not place.is_evicted and i not in pinned
    ]
    return {i: rank for rank, (_, i) in enumerate(sorted(cached))}


def _state(place: _Place, *, is_pinned: bool, knows_all: bool) -> TierState:
    if place.is_evicted:
        # It was evicted for a copy, and that copy has not been told of yet.
        return "in_flight"
    if place.row is None:
        return "free" if knows_all else "unknown"
    return "pinned" if is_pinned else "cached"


def _block(
    i: int, state: TierState, place: _Place, hashes: _Hashes, wall_ns: int, groups: dict[str, str], rank: int | None
) -> TierBlock:
    if place.row is None or place.is_evicted:
        return TierBlock(
            id=i, state=state, hash=None, kv_group=None, index=None, request_id=None, conversation_id=None,
            is_restored=None, stored_wall_ns=None, age_ns=None, num_hits=None, eviction_rank=None,
        )  # fmt: skip
    _, stored_ns, kind, request, group, first_index, *_ = place.row
    block_hash = hashes.of(place)
    # Where only loads of it were read, who stored it and when is further back.
    is_store = kind != "blocks_loaded"
    request_id = request if is_store else None
    return TierBlock(
        id=i,
        state=state,
        hash=block_hash.hex() if block_hash else None,
        kv_group=group,
        index=first_index + place.position,
        request_id=request_id,
        conversation_id=groups.get(request_id) if request_id is not None else None,
        is_restored=kind == "blocks_restored" if is_store else None,
        stored_wall_ns=stored_ns if is_store else None,
        age_ns=max(0, wall_ns - stored_ns) if is_store else None,
        num_hits=place.num_hits if is_store else None,
        eviction_rank=rank,
    )


def _has_gaps(conn: Connection, at: int) -> bool:
    query = select(func.count()).select_from(tables.events).where(_c.kind == "events_dropped", _c.seq <= at)
    return conn.execute(query).scalar_one() > 0
