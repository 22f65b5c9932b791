"""What happened to the CPU copy of each block of one chain."""

from collections import defaultdict, deque
from collections.abc import Sequence
from heapq import merge

from sqlalchemy import Connection

from app.models import BlockMoment
from app.queries.branches import driver_of
from app.queries.runs import ChainRuns, Run

MAX_MOMENTS = 100
"""Of one block, the newest ones."""
MAX_ALL_MOMENTS = 20_000
"""Of all blocks of a long chain; each has ten all the same."""

# A reset names no block and fits all.
_RESETS = "SELECT seq, step, wall_ns FROM events WHERE kind = 'cache_reset' AND engine_id = ? ORDER BY seq"

_LOOKUPS = """
SELECT request_id, num_blocks, tail_hash, missing_hash FROM events
WHERE kind = 'lookup' AND engine_id = ? AND seq < ? AND request_id <> ?
"""
_END = "SELECT tail_hash FROM events WHERE request_id = ? AND engine_id = ? AND kind = 'request_finished' AND seq < ?"


class History:
    """The moments of every block of a request's chain.

    Args:
        chain: (hash, depth), head first, depths without a hole.
        ratios: for each KV-cache group, how many hashes one of its blocks covers.

    Attributes:
        first_seq: The row from which on nothing is left out; None if nothing is at all.
        runs: What was read, in the log's order; `covered` says which blocks of the chain each touched.
    """

    def __init__(
        self,
        conn: Connection,
        engine_id: int,
        request_id: str,
        chain: Sequence[tuple[bytes, int]],
        ratios: Sequence[int],
    ) -> None:
        self._execute = driver_of(conn).execute
        self._engine_id = engine_id
        self._request_id = request_id
        self._chain = chain
        self._num_groups = len(ratios)
        self._runs = ChainRuns(conn, engine_id, chain, ratios)
        most = max(10, min(MAX_MOMENTS, MAX_ALL_MOMENTS // len(chain)))
        self._moments: defaultdict[int, deque[BlockMoment]] = defaultdict(lambda: deque(maxlen=most))
        self._num_moments: defaultdict[int, int] = defaultdict(int)
        # For each block, the groups that ever had a copy of it, whether they have it now, and the row that says so.
        self._held: defaultdict[int, dict[int, tuple[bool, int]]] = defaultdict(dict)
        self._resets = [
            BlockMoment(
                seq=seq, step=step, wall_ns=ns, kind="cache_reset", kv_group=None, request_id=None, by_request_id=None
            )
            for seq, step, ns in self._execute(_RESETS, (engine_id,))
        ]
        self.runs, self.first_seq = self._runs.newest(request_id)
        for row in merge(self.runs, self._resets, key=lambda row: row.seq):
            if isinstance(row, Run):
                self._add(row)
            else:
                self._reset(row)

    @property
    def resets(self) -> list[BlockMoment]:
        """When the CPU tier was emptied."""
        return self._resets

    def covered(self, run: Run) -> range:
        """Indices of the chain's blocks that a run touched."""
        return self._runs.covered(run)

    def moments(self, index: int) -> list[BlockMoment]:
        """The newest of what happened to the block at this index of the chain, in order."""
        return list(self._moments[index])

    def num_moments(self, index: int) -> int:
        """How many moments of this block were read."""
        return self._num_moments[index]

    def is_held(self, index: int) -> bool | None:
        """Whether every group that had a copy still has it; None where what is left out might say otherwise."""
        held = self._held.get(index, {})
        first_seq = self.first_seq or 0
        if first_seq == 0 or (self._resets and self._resets[-1].seq >= first_seq):
            return bool(held) and all(is_held for is_held, _ in held.values())
        sure = [is_held for is_held, seq in held.values() if seq >= first_seq]
        if not all(sure):
            return False
        return True if len(sure) == self._num_groups else None

    def last_before(self, index: int, seq: int) -> BlockMoment | None:
        """The newest moment of one block before a row, however long before."""
        run = self._runs.last_on(index, seq)
        if run is None:
            return None
        # A reset is a moment of this block only if there was a copy to lose.
        resets = () if run.kind == "blocks_evicted" else self._resets
        return next((reset for reset in resets if run.seq < reset.seq < seq), _moment(run))

    def was_asked_before(self, index: int, seq: int) -> bool:
        """Whether a request that was looked up before a row had this block, in its prompt or its output."""
        hashes = {block_hash for block_hash, depth in self._chain if depth <= index}
        for request_id, num_blocks, tail, missing in self._execute(_LOOKUPS, (self._engine_id, seq, self._request_id)):
            if num_blocks <= index:
                # Its prompt would have to be a begin of this chain, and its output to have gone on along it.
                if tail is not None and tail not in hashes:
                    continue
                end = self._execute(_END, (request_id, self._engine_id, seq)).fetchone()
                tail = end[0] if end else None
            elif missing is not None and missing not in hashes:
                # Whoever has the block first computes it: that lookup was cut at this block or before it.
                continue
            if tail is not None and self._runs.reaches(tail, index):
                return True
        return False

    def _add(self, run: Run) -> None:
        moment = _moment(run)
        for index in self._runs.covered(run):
            self._append(index, moment)
            self._held[index][run.kv_group] = run.kind != "blocks_evicted", run.seq

    def _reset(self, moment: BlockMoment) -> None:
        for index, held in self._held.items():
            if any(is_held for is_held, _ in held.values()):
                self._append(index, moment)
                self._held[index] = dict.fromkeys(held, (False, moment.seq))

    def _append(self, index: int, moment: BlockMoment) -> None:
        self._moments[index].append(moment)
        self._num_moments[index] += 1


def _moment(run: Run) -> BlockMoment:
    return BlockMoment(
        seq=run.seq,
        step=run.step,
        wall_ns=run.wall_ns,
        kind=run.kind,
        kv_group=run.kv_group,
        request_id=run.request_id,
        by_request_id=run.by_request_id,
    )
