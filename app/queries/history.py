"""What happened to the CPU copy of each block of one chain."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from app.models import BlockMoment
from app.queries.branches import Branches

BEFORE = 100_000
AFTER = 150_000
"""Rows of the log, before and after a request started, in which its blocks' history is looked up. A page of a long log
would take many seconds otherwise."""

_KINDS = "('blocks_stored', 'blocks_restored', 'blocks_evicted', 'blocks_loaded', 'cache_reset')"
_COLUMNS = "seq, step, wall_ns, kind, request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash"

_MOMENTS = f"""
SELECT {_COLUMNS} FROM events
WHERE seq BETWEEN ? AND ? AND +engine_id = ? AND +kind IN {_KINDS}
ORDER BY seq
"""

# Of one block, backwards. A reset names no block and fits all.
_BEFORE = f"""
SELECT {_COLUMNS} FROM events
WHERE seq < ?1 AND +engine_id = ?2 AND +kind IN {_KINDS}
  AND (kv_group IS NULL OR kv_group = ?3 AND first_index <= ?4 AND first_index + num_blocks > ?4)
ORDER BY seq DESC
"""

_REQUEST_TAILS = """
SELECT DISTINCT tail_hash FROM events
WHERE kind IN ('request_started', 'lookup', 'request_finished') AND engine_id = ? AND seq < ? AND num_blocks > ?
"""


class History:
    """The moments of every block of a chain, in a window of the log.

    Args:
        chain: (hash, depth), head first, depths without a hole.
        ratios: for each KV-cache group, how many hashes one of its blocks covers.
        around_seq: the row around which the window lies.
    """

    def __init__(
        self,
        conn: Connection,
        engine_id: int,
        chain: Sequence[tuple[bytes, int]],
        ratios: Sequence[int],
        around_seq: int,
    ) -> None:
        self.first_seq = max(1, around_seq - BEFORE)
        self.last_seq = around_seq + AFTER
        self._conn = conn
        self._engine_id = engine_id
        self._ratios = ratios
        self._chain = chain
        self._hashes = {block_hash for block_hash, _ in chain}
        self._branches = Branches(conn, engine_id, chain)
        self._moments: defaultdict[int, list[BlockMoment]] = defaultdict(list)
        # For each block, the groups that ever had a copy of it, and whether they have it now.
        self._held: defaultdict[int, dict[int, bool]] = defaultdict(dict)
        for row in conn.exec_driver_sql(_MOMENTS, (self.first_seq, self.last_seq, engine_id)):
            self._add(row)

    def moments(self, index: int) -> list[BlockMoment]:
        """What happened to the block at this index of the chain, in order."""
        return self._moments[index]

    def is_held(self, index: int) -> bool:
        """Whether every group that had a copy still has it, as the window ends."""
        held = self._held.get(index)
        return bool(held) and all(held.values())

    def last_before(self, index: int, seq: int) -> BlockMoment | None:
        """The newest moment of one block before a row, however long before. Looked up in the whole log."""
        found: list[Any] = []
        for group, ratio in enumerate(self._ratios):
            rows = self._conn.exec_driver_sql(_BEFORE, (seq, self._engine_id, group, index // ratio))
            for row in rows:
                if row.kv_group is None or index in self._covered(row):
                    found.append(row)
                    break
            rows.close()
        newest = max(found, key=lambda row: row.seq, default=None)
        # A reset is a moment of this block only if there was a copy to lose; else the block was never stored.
        if newest is not None and newest.kv_group is None and self.last_before(index, newest.seq) is None:
            return None
        return None if newest is None else _moment(newest)

    def was_asked_before(self, index: int, seq: int) -> bool:
        """Whether a request before a row had this block in its chain."""
        tails = self._conn.exec_driver_sql(_REQUEST_TAILS, (self._engine_id, seq, index)).scalars()
        return any((meeting := self._branches.meeting(t)) is not None and meeting >= index for t in tails)

    def _covered(self, row: Any) -> range:
        """Indices of the chain's blocks that a run covers."""
        group: int = row.kv_group
        ratio = self._ratios[group] if group < len(self._ratios) else 0
        last_depth = self._chain[-1][1]
        first_index: int = row.first_index
        if not ratio or first_index * ratio > last_depth:
            return range(0)
        # Most runs are one block, which needs no walk: it is the chain's or it is not.
        if row.num_blocks == 1 and row.tail_hash not in self._hashes:
            return range(0)
        meeting = self._branches.meeting(row.tail_hash)
        if meeting is None:
            return range(0)
        # A group's block belongs to the chain only if its last hash does.
        num_blocks = min(int(row.num_blocks), (meeting + 1) // ratio - first_index)
        first = max(first_index * ratio, self._chain[0][1])
        return range(first, (first_index + num_blocks) * ratio)

    def _add(self, row: Any) -> None:
        if row.kv_group is None:
            moment = _moment(row)
            for index, held in self._held.items():
                if any(held.values()):
                    self._moments[index].append(moment)
                    self._held[index] = dict.fromkeys(held, False)
            return
        covered = self._covered(row)
        moment = _moment(row) if covered else None
        for index in covered:
            assert moment is not None
            self._moments[index].append(moment)
            self._held[index][row.kv_group] = row.kind != "blocks_evicted"


def _moment(row: Any) -> BlockMoment:
    return BlockMoment(
        seq=row.seq,
        step=row.step,
        wall_ns=row.wall_ns,
        kind=row.kind,
        kv_group=row.kv_group,
        request_id=row.request_id,
        by_request_id=row.by_request_id,
    )
