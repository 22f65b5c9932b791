"""Who owns which block, and which owned blocks the CPU tier has lost: what makes `tracked` cost O(evicted) a step.

Pure: standard library only. A *key* is a block hash with its KV-cache group, as vLLM packs them. A key's place in its
chain is the same for every request that owns it, since a hash covers its whole prefix.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

COMPACT_ABOVE = 1_024


@dataclass(slots=True, eq=False)
class OwnedBlock:
    """A block that running requests own. `index` counts blocks of its group, `depth` tokens from the head of its
    chain."""

    key: bytes
    group: int
    index: int
    depth: int
    owners: str | dict[str, int]
    """One request id, or request ids with their admission numbers, lowest first. Most blocks have one owner: a string
    spares a dict for each of them."""
    lost_ticket: int = 0
    """The newest ticket under which it waits in the heaps; 0 while the CPU tier has it, or a copy is on its way."""


Entry = tuple[int, int, int, int, OwnedBlock]


class OwnerIndex:
    """Running requests, the blocks below their cursors, and those of them that were lost.

    Lost blocks wait in two orders: as a scan over the requests would meet them (admission, group, index), and nearest
    the head first (depth, admission). Entries are dropped lazily: a ticket that is not the block's newest means
    nothing. A block whose first owner has given it up stands where it stood: who walks defers it to an owner's turn.
    """

    def __init__(self) -> None:
        self._blocks: dict[bytes, OwnedBlock] = {}
        self._keys_of: dict[str, list[bytes]] = {}
        self._starts_of: dict[str, dict[int, int]] = {}
        self._number_of: dict[str, int] = {}
        self._next_number = 1
        self._next_ticket = 1
        self._num_lost = 0
        self._scan_order: list[Entry] = []
        self._depth_order: list[Entry] = []

    def __len__(self) -> int:
        """Distinct blocks that running requests own."""
        return len(self._blocks)

    @property
    def num_lost(self) -> int:
        return self._num_lost

    def get(self, key: bytes) -> OwnedBlock | None:
        return self._blocks.get(key)

    # --- requests come and go -------------------------------------------------------------------------------------

    def admit(self, request_id: str) -> int:
        """Give a request its admission number; a request that has one keeps it (it was preempted and came back)."""
        number = self._number_of.get(request_id)
        if number is None:
            number = self._number_of[request_id] = self._next_number
            self._next_number += 1
        return number

    def own(self, request_id: str, group: int, index: int, depth: int, key: bytes) -> None:
        """The request's cursor passed this block."""
        block = self._blocks.get(key)
        if block is None:
            self._blocks[key] = OwnedBlock(key, group, index, depth, request_id)
        elif isinstance(block.owners, str):
            if block.owners == request_id:
                return
            block.owners = self._in_order({block.owners, request_id})
        elif request_id in block.owners:
            return
        else:
            number = self.admit(request_id)
            is_last = number > next(reversed(block.owners.values()))
            block.owners[request_id] = number
            if not is_last:
                block.owners = self._in_order(block.owners)
        self._keys_of.setdefault(request_id, []).append(key)
        if block is not None and block.lost_ticket:
            self._enqueue(block)  # its first owner may be another one now

    def own_run(self, request_id: str, group: int, first: int, keys: Sequence[bytes], block_depth: int) -> None:
        """The request's cursor passed these blocks of a group, from index `first` on. `block_depth`: what a block adds
        to the depth of the next."""
        blocks, mine = self._blocks, self._keys_of.setdefault(request_id, [])
        for index, key in enumerate(keys, first):
            if key in blocks:
                self.own(request_id, group, index, index * block_depth, key)
            else:
                blocks[key] = OwnedBlock(key, group, index, index * block_depth, request_id)
                mine.append(key)

    def disown(self, request_id: str) -> None:
        """The request gave its blocks back (preempted). Its admission number stays."""
        self._starts_of.pop(request_id, None)
        blocks = self._blocks
        for key in self._keys_of.pop(request_id, ()):
            block = blocks.get(key)
            if block is not None and block.owners == request_id:
                del blocks[key]
                if block.lost_ticket:
                    self._clear(block)
            else:
                self.give_up(request_id, key)

    def give_up(self, request_id: str, key: bytes) -> None:
        """The request holds this block no longer. Nothing happens where it did not own it."""
        block = self._blocks.get(key)
        if block is None:
            return
        if isinstance(block.owners, str):
            if block.owners == request_id:
                del self._blocks[key]
                self._clear(block)
        elif request_id in block.owners:
            del block.owners[request_id]
            if len(block.owners) == 1:
                block.owners = next(iter(block.owners))

    def starts_of(self, request_id: str) -> dict[int, int]:
        """By group, the first block that the request has not given up: all before it left its window."""
        return self._starts_of.setdefault(request_id, {})

    def forget(self, request_id: str) -> None:
        """The request is over."""
        self.disown(request_id)
        self._number_of.pop(request_id, None)

    def clear(self) -> None:
        """Nobody owns anything (the tier was reset). Admission numbers stay."""
        self._blocks.clear()
        self._keys_of.clear()
        self._starts_of.clear()
        self._scan_order.clear()
        self._depth_order.clear()
        self._num_lost = 0

    # --- blocks get lost and found --------------------------------------------------------------------------------

    def lose(self, key: bytes) -> OwnedBlock | None:
        """The CPU tier has this key no longer. Returns the block if a running request owns it: it waits from now on."""
        block = self._blocks.get(key)
        if block is not None and not block.lost_ticket:
            self._num_lost += 1
            self._enqueue(block)
        return block

    def find(self, key: bytes) -> None:
        """The key is in the CPU tier again, or a copy of it is on its way, or nobody can copy it any more."""
        block = self._blocks.get(key)
        if block is not None:
            self._clear(block)

    def lost_of(self, request_id: str) -> list[OwnedBlock]:
        """The lost blocks that one request owns, head first. Costs a look at each that it owns, where any is lost."""
        if not self._num_lost:
            return []
        blocks = (self._blocks.get(key) for key in self._keys_of.get(request_id, ()))
        lost = {b.key: b for b in blocks if b is not None and b.lost_ticket and request_id in self.owners_of(b)}
        return sorted(lost.values(), key=lambda b: (b.group, b.index))

    def scan(self) -> "ScanPass":
        """A walk over the lost blocks in the order in which a scan over the requests would meet them."""
        return ScanPass(self._scan_order)

    def lost_by_depth(self) -> Iterator[OwnedBlock]:
        """Each lost block, nearest the head of its chain first. One that is still lost after it was yielded stays in
        the queue."""
        heap = self._depth_order
        kept: list[Entry] = []
        try:
            while heap:
                entry = heappop(heap)
                block = entry[-1]
                if block.lost_ticket != entry[3]:
                    continue
                kept.append(entry)
                yield block
        finally:
            for entry in kept:
                if entry[-1].lost_ticket == entry[3]:
                    heappush(heap, entry)

    def owners_of(self, block: OwnedBlock) -> Iterator[str]:
        """The block's owners, in the order in which they were admitted."""
        if isinstance(block.owners, str):
            yield block.owners
        else:
            yield from block.owners

    def number(self, block: OwnedBlock) -> int:
        """The admission number of the block's first owner."""
        if isinstance(block.owners, str):
            return self.admit(block.owners)
        return next(iter(block.owners.values()))

    def _enqueue(self, block: OwnedBlock) -> None:
        ticket = block.lost_ticket = self._next_ticket
        self._next_ticket += 1
        number = self.number(block)
        # (admission, group, index) of a scan in one integer each would hide the order; the ticket breaks ties.
        heappush(self._scan_order, (number, block.group, block.index, ticket, block))
        heappush(self._depth_order, (block.depth, number, block.group, ticket, block))
        # Only the heap that is walked sheds its stale entries by itself.
        if max(len(self._scan_order), len(self._depth_order)) > COMPACT_ABOVE + 2 * self._num_lost:
            self._compact()

    def _clear(self, block: OwnedBlock) -> None:
        if block.lost_ticket:
            block.lost_ticket = 0
            self._num_lost -= 1

    def _compact(self) -> None:
        for heap in (self._scan_order, self._depth_order):
            heap[:] = [entry for entry in heap if entry[4].lost_ticket == entry[3]]
            heapify(heap)

    def _in_order(self, request_ids: "set[str] | dict[str, int]") -> dict[str, int]:
        return dict(sorted(((r, self.admit(r)) for r in request_ids), key=lambda item: item[1]))


class ScanPass:
    """One walk in scan order. Blocks that get lost or found meanwhile are taken into account.

    A context manager: what was set aside waits for the next walk.
    """

    def __init__(self, heap: list[Entry]) -> None:
        self._heap = heap
        self._deferred: list[Entry] = []
        self._aside: list[Entry] = []

    def __enter__(self) -> "ScanPass":
        return self

    def __exit__(self, *_: object) -> None:
        for entry in self._aside:
            if entry[4].lost_ticket == entry[3]:
                heappush(self._heap, entry)

    def peek(self) -> tuple[int, OwnedBlock] | None:
        """(admission number, block) of the next lost block; None at the end."""
        for heap in (self._heap, self._deferred):
            while heap and heap[0][4].lost_ticket != heap[0][3]:
                heappop(heap)
        entry = min((heap[0] for heap in (self._heap, self._deferred) if heap), default=None)
        return None if entry is None else (entry[0], entry[4])

    def set_aside(self) -> None:
        """Leave the next block for the next walk."""
        self._pop()

    def defer(self, number: int) -> None:
        """Meet the next block again in this walk, at the turn of the request with this admission number."""
        _, group, index, ticket, block = self._pop()
        heappush(self._deferred, (number, group, index, ticket, block))

    def _pop(self) -> Entry:
        is_deferred = not self._heap or (bool(self._deferred) and self._deferred[0] < self._heap[0])
        entry = heappop(self._deferred if is_deferred else self._heap)
        if not is_deferred:
            self._aside.append(entry)
        return entry
