"""Eviction policies of the literature, block by block: LRU, S3-FIFO, SIEVE, LIRS. Pure; for `policy_trials.py`.

A block is a key here, and any block may leave. A request finds its blocks as far as there is no hole; then each of its
blocks is used once, head first, and comes in if it is not there. So LRU gives up heads before tails, as vLLM does.
"""

from collections import OrderedDict
from collections.abc import Sequence

MAX_USES = 3
SMALL_SHARE = 0.1
GHOSTS_PER_BLOCK = 4


class BlockTier:
    """A tier of `capacity` blocks.

    Attributes:
        capacity: in blocks.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity

    def has(self, key: int) -> bool:
        raise NotImplementedError

    def use(self, key: int) -> None:
        """The block is asked for, and comes in if it is not there."""
        raise NotImplementedError

    def ask(self, keys: Sequence[int], num_asked: int, now: float) -> int:
        """A request whose first `num_asked` blocks are its prompt's. Returns how many of those it finds."""
        found = 0
        while found < num_asked and self.has(keys[found]):
            found += 1
        for key in keys:
            self.use(key)
        return found


class BlockLru(BlockTier):
    """The least recently used block goes."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.order: OrderedDict[int, None] = OrderedDict()

    def has(self, key: int) -> bool:
        return key in self.order

    def use(self, key: int) -> None:
        if key in self.order:
            self.order.move_to_end(key)
            return
        if len(self.order) == self.capacity:
            self.order.popitem(last=False)
        self.order[key] = None


class BlockS3Fifo(BlockTier):
    """S3-FIFO (Yang et al., SOSP '23): a small queue for what is new, a main queue, and names of what left the first.

    What leaves the small queue with two uses or more goes over to the main one, and to the ghosts with fewer; a ghost
    that comes back goes to the main queue. There a use buys another round.

    Attributes:
        small, main, ghosts: keys, the oldest first.
        uses: of each block that is there, since it came in or last went round; at most 3.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.small: OrderedDict[int, None] = OrderedDict()
        self.main: OrderedDict[int, None] = OrderedDict()
        self.ghosts: OrderedDict[int, None] = OrderedDict()
        self.uses: dict[int, int] = {}
        self._small_size = max(1, round(SMALL_SHARE * capacity))

    def has(self, key: int) -> bool:
        return key in self.uses

    def use(self, key: int) -> None:
        if key in self.uses:
            self.uses[key] = min(MAX_USES, self.uses[key] + 1)
            return
        while len(self.uses) >= self.capacity:
            self._evict()
        if key in self.ghosts:
            del self.ghosts[key]
            self.main[key] = None
        else:
            self.small[key] = None
        self.uses[key] = 0

    def _evict(self) -> None:
        if self.small and (len(self.small) >= self._small_size or not self.main):
            key, _ = self.small.popitem(last=False)
            if self.uses[key] > 1:
                self.uses[key] = 0
                self.main[key] = None
                return
            del self.uses[key]
            self.ghosts[key] = None
            if len(self.ghosts) > self.capacity - self._small_size:
                self.ghosts.popitem(last=False)
            return
        key, _ = self.main.popitem(last=False)
        if self.uses[key]:
            self.uses[key] -= 1
            self.main[key] = None
        else:
            del self.uses[key]


class _Node:
    __slots__ = ("is_visited", "key", "newer", "older")

    def __init__(self, key: int) -> None:
        self.key = key
        self.is_visited = False
        self.newer: _Node | None = None
        self.older: _Node | None = None


class BlockSieve(BlockTier):
    """SIEVE (Zhang et al., NSDI '24): one queue in the order of coming in, and a hand that goes from old to new.

    The hand takes back the mark of who was used since it last came by, and takes out the first that bears none.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._nodes: dict[int, _Node] = {}
        self._newest: _Node | None = None
        self._oldest: _Node | None = None
        self._hand: _Node | None = None

    def has(self, key: int) -> bool:
        return key in self._nodes

    def use(self, key: int) -> None:
        node = self._nodes.get(key)
        if node is not None:
            node.is_visited = True
            return
        if len(self._nodes) == self.capacity:
            self._evict()
        node = self._nodes[key] = _Node(key)
        node.older = self._newest
        if self._newest is not None:
            self._newest.newer = node
        self._newest = node
        self._oldest = self._oldest or node

    def keys(self) -> list[int]:
        """What is there, the oldest first."""
        return list(self._nodes)

    def _evict(self) -> None:
        node = self._hand or self._oldest
        assert node is not None
        while node.is_visited:
            node.is_visited = False
            node = node.newer or self._oldest
            assert node is not None
        self._hand = node.newer
        if node.older is not None:
            node.older.newer = node.newer
        else:
            self._oldest = node.newer
        if node.newer is not None:
            node.newer.older = node.older
        else:
            self._newest = node.older
        del self._nodes[node.key]


class BlockLirs(BlockTier):
    """LIRS (Jiang and Zhang, SIGMETRICS '02): who came back soon the last time stays, however long ago that was.

    Args:
        hir_share: of the tier, for blocks whose last two uses lie far apart or that were used once.

    Attributes:
        stack: by last use, the longest ago first: blocks of low recency between uses, and all that were used since the
            oldest of these, ghosts too.
        low: blocks of low recency between uses.
        queue: the others that are there; the first goes next.
    """

    def __init__(self, capacity: int, hir_share: float = 0.01) -> None:
        super().__init__(capacity)
        self.stack: OrderedDict[int, None] = OrderedDict()
        self.low: set[int] = set()
        self.queue: OrderedDict[int, None] = OrderedDict()
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._num_low = capacity - max(1, round(hir_share * capacity))

    def has(self, key: int) -> bool:
        return key in self.low or key in self.queue

    def use(self, key: int) -> None:
        is_recent = key in self.stack
        if key in self.low:
            self.stack.move_to_end(key)
            self._prune()
            return
        if key not in self.queue:
            if len(self.low) + len(self.queue) == self.capacity:
                self._evict()
            if len(self.low) < self._num_low:
                is_recent = True  # the tier is not full yet
        self.stack[key] = None
        self.stack.move_to_end(key)
        self._ghosts.pop(key, None)
        self.queue.pop(key, None)
        if not is_recent:
            self.queue[key] = None
            return
        self.low.add(key)
        if len(self.low) > self._num_low:
            oldest, _ = self.stack.popitem(last=False)
            self.low.remove(oldest)
            self.queue[oldest] = None
        self._prune()

    def _evict(self) -> None:
        key, _ = self.queue.popitem(last=False)
        if key in self.stack:
            self._ghosts[key] = None
            if len(self._ghosts) > GHOSTS_PER_BLOCK * self.capacity:
                dropped, _ = self._ghosts.popitem(last=False)
                del self.stack[dropped]

    def _prune(self) -> None:
        """The oldest of the stack is one of low recency."""
        while (oldest := next(iter(self.stack))) not in self.low:
            del self.stack[oldest]
            self._ghosts.pop(oldest, None)
