"""The runs of blocks in the log that touch one chain of block hashes, found by the hash of their first block.

A row of the log names a run by its head and its tail. It touches a chain exactly if its head lies on the chain; how far
it then goes along the chain, and does not end in a sibling's branch, its tail says.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from app.queries.branches import Branches, driver_of

MAX_BLOCKS = 200_000
"""Blocks of runs that are read for one page. The first blocks of a much used prompt can have more than a page can wait
for."""
SHARE = 20
"""One head may take up to the 20th part of what is left of them, so that no deep one takes it all."""

_COLUMNS = "seq, step, wall_ns, kind, request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash"
# Rows that say that a copy was wanted, or not made, name runs too, but change nothing. The plus keeps SQLite on the
# index of the head, or of the request.
_MOVES = "+kind IN ('blocks_stored', 'blocks_restored', 'blocks_evicted', 'blocks_loaded')"
_OF_HEAD = f"SELECT {_COLUMNS} FROM events WHERE head_hash = ? AND engine_id = ? AND {_MOVES} ORDER BY seq DESC"
_OF_REQUEST = f"SELECT {_COLUMNS}, head_hash FROM events WHERE request_id = ? AND engine_id = ? AND {_MOVES}"
_BETWEEN = f"""
SELECT {_COLUMNS} FROM events
WHERE head_hash = ? AND engine_id = ? AND {_MOVES} AND seq > ? AND seq < ? AND first_index + num_blocks > ?
ORDER BY seq DESC
"""


class Run(NamedTuple):
    """One row of the log, of a kind that has a run."""

    seq: int
    step: int
    wall_ns: int
    kind: Any
    request_id: str | None
    by_request_id: str | None
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes


class ChainRuns:
    """Reads the runs of one engine that touch a chain.

    Args:
        chain: (hash, depth), head first, depths without a hole.
        ratios: for each KV-cache group, how many hashes one of its blocks covers.
    """

    def __init__(
        self, conn: Connection, engine_id: int, chain: Sequence[tuple[bytes, int]], ratios: Sequence[int]
    ) -> None:
        self._execute = driver_of(conn).execute
        self._engine_id = engine_id
        self._chain = chain
        self._ratios = ratios
        self._branches = Branches(conn, engine_id, chain)

    def newest(self, request_id: str) -> tuple[list[Run], int | None]:
        """Runs in the log's order, and the row from which on there are all; None if nothing was left out.

        Where the log has too many the older ones are left out, head by head, but not those of this request.
        """
        found: dict[int, Run] = {}
        left_out = 0
        left = MAX_BLOCKS
        # From the tail: deep blocks are few requests' own, and what they do not need is left for the common ones.
        for num_heads, (block_hash, _) in zip(range(len(self._chain), 0, -1), reversed(self._chain), strict=True):
            least = left - left // min(num_heads, SHARE)
            for run in self._runs(_OF_HEAD, block_hash, self._engine_id):
                num_blocks = run.num_blocks * self._ratio(run.kv_group)
                if left - num_blocks < least:
                    left_out = max(left_out, run.seq)
                    break
                left -= num_blocks
                found[run.seq] = run
        if left_out:
            hashes = {block_hash for block_hash, _ in self._chain}
            for *columns, head in self._execute(_OF_REQUEST, (request_id, self._engine_id)):
                if head in hashes:
                    found[columns[0]] = Run._make(columns)
        return [found[seq] for seq in sorted(found)], left_out + 1 if left_out else None

    def last_on(self, index: int, before_seq: int) -> Run | None:
        """The newest run before a row that covers this block of the chain, however long before."""
        last: Run | None = None
        reach = index // max(self._ratios)
        for block_hash, depth in reversed(self._chain):
            # A block of a group is named by the last hash that it covers.
            if depth >= index + max(self._ratios):
                continue
            after = last.seq if last else 0
            runs = self._runs(_BETWEEN, block_hash, self._engine_id, after, before_seq, reach)
            last = next((run for run in runs if index in self.covered(run)), last)
        return last

    def covered(self, run: Run) -> range:
        """Indices of the chain's blocks that a run covers. Its head lies on the chain."""
        ratio = self._ratio(run.kv_group)
        num_blocks = run.num_blocks
        if num_blocks > 1:
            meeting = self._branches.meeting(run.tail_hash)
            # A group's block belongs to the chain only if its last hash does. Where the log lost the way from the tail
            # to the head, the head itself is known to be the chain's.
            reach = 0 if meeting is None else (meeting + 1) // ratio - run.first_index
            num_blocks = max(1, min(num_blocks, reach))
        first = max(run.first_index * ratio, self._chain[0][1])
        return range(first, min((run.first_index + num_blocks) * ratio, self._chain[-1][1] + 1))

    def reaches(self, tail: bytes, index: int) -> bool:
        """Whether the path from the head to some hash goes through this block of the chain."""
        meeting = self._branches.meeting(tail)
        return meeting is not None and meeting >= index

    def _ratio(self, group: int) -> int:
        return self._ratios[group] if group < len(self._ratios) else 1

    def _runs(self, query: str, *values: Any) -> Iterator[Run]:
        return map(Run._make, self._execute(query, values))
