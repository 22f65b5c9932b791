"""One tier as the tree of chains sees it: how many of each chain's first blocks it holds, and which goes next.

Pure: standard library only. Blocks leave from the end of chains whose continuation the tier holds nothing of, so that
no chain loses its head before its tail. Candidates stand in heaps, one for each class of chains, least recently used
first; an entry that is not true any more is dropped when it comes up.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush

from connector.chains import Chain

Entry = tuple[float, int, int, Chain]


class View:
    """What a tier of `capacity` blocks holds.

    Args:
        index: which of a chain's `counts` it is.
        classify: the heap that a chain stands in.
        may_leave: asked before a chain gives a block, for what the tree does not know (references, copies under way). A
            chain that may not is set aside until `unpark`.

    Attributes:
        used: blocks it holds.
    """

    def __init__(
        self,
        index: int,
        capacity: int,
        classify: Callable[[Chain], int],
        order: Callable[[Chain], float] = lambda chain: chain.last_used,
        may_leave: Callable[[Chain], bool] = lambda chain: True,
    ) -> None:
        self.index = index
        self.capacity = capacity
        self.used = 0
        self._classify = classify
        self._order = order
        self._may_leave = may_leave
        self._heaps: dict[int, list[Entry]] = {}
        self._parked: dict[Chain, None] = {}
        self._ticket = 0

    @property
    def num_free(self) -> int:
        return self.capacity - self.used

    def count(self, chain: Chain) -> int:
        return chain.counts[self.index]

    # --- contents ---------------------------------------------------------------------------------------------------

    def found(self, chains: Iterable[Chain]) -> int:
        """Blocks of the tier that a request through these chains finds, from the head on."""
        found = 0
        for chain in chains:
            count = self.count(chain)
            found += count
            if count < len(chain.keys):
                break
        return found

    def grow(self, chain: Chain, num_blocks: int) -> None:
        """The tier holds so many more blocks of the chain."""
        v = self.index
        if not chain.counts[v] and chain.parent is not None:
            chain.parent.num_kids[v] += 1
        chain.counts[v] += num_blocks
        self.used += num_blocks
        self.note(chain)

    def shrink(self, chain: Chain, num_blocks: int) -> None:
        """So many blocks at its end left the tier."""
        v = self.index
        assert 0 < num_blocks <= chain.counts[v]
        chain.counts[v] -= num_blocks
        self.used -= num_blocks
        parent = chain.parent
        if not chain.counts[v] and parent is not None:
            parent.num_kids[v] -= 1
            self.note(parent)

    def note(self, chain: Chain) -> None:
        """The chain's place among the candidates may be another one now."""
        if self.is_candidate(chain):
            self._ticket += 1
            heap = self._heaps.setdefault(self._classify(chain), [])
            # Oldest first; of equal age the one that was first seen last.
            heappush(heap, (self._order(chain), -chain.number, self._ticket, chain))
            if len(heap) > 64 and len(heap) > 8 * (self.used + 1):
                self._compact()

    def is_candidate(self, chain: Chain) -> bool:
        v = self.index
        return chain.counts[v] > 0 and not chain.num_kids[v] and chain.parent is not None

    def unpark(self) -> None:
        """References were given back: who was set aside may leave now."""
        parked, self._parked = self._parked, {}
        for chain in parked:
            self.note(chain)

    def candidates(self, protected: Chain | None) -> Iterator[Chain]:
        """Of each class the least recently used chain that can give a block; never one that `protected` goes through,
        which ends there or beyond."""
        for kind in list(self._heaps):
            heap = self._heaps[kind]
            aside: list[Entry] = []
            while heap:
                entry = heap[0]
                chain = entry[3]
                if entry[0] != self._order(chain) or not self.is_candidate(chain) or self._classify(chain) != kind:
                    heappop(heap)
                elif not self._may_leave(chain):
                    heappop(heap)
                    self._parked[chain] = None
                elif protected is not None and _goes_through(protected, chain):
                    aside.append(heappop(heap))
                else:
                    yield chain
                    break
            for entry in aside:
                heappush(heap, entry)

    def _compact(self) -> None:
        for kind, heap in self._heaps.items():
            newest = {
                id(e[3]): e
                for e in heap
                if e[0] == self._order(e[3]) and self.is_candidate(e[3]) and self._classify(e[3]) == kind
            }
            heap[:] = newest.values()
            heapify(heap)


def _goes_through(end: Chain, chain: Chain) -> bool:
    step: Chain | None = end
    while step is not None and step.start >= chain.start:
        if step is chain:
            return True
        step = step.parent
    return False
