"""The same policies chain by chain: LRU, S3-FIFO, SIEVE, LIRS. Pure; for `policy_trials.py`.

What a policy orders are chains of block hashes (`connector/chains.py`); the end of the chain whose turn it is goes, and
only where nothing that hangs on it is there, so no chain has a hole. Sizes are counted in blocks. Where a request's
arrival splits a chain, both parts stand where the chain stood.
"""

from collections import OrderedDict
from collections.abc import Sequence

from connector.chains import Chain, ChainTree, Path
from connector.views import View

MAX_USES = 3
SMALL_SHARE = 0.1
GHOSTS_PER_BLOCK = 4
LAP = 1e9


class ChainTier:
    """A tier of `capacity` blocks, and the least recently used chain's end goes: LRU.

    Others say otherwise where a chain is used, comes in, has left, and who gives the next block.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tree = ChainTree(
            1,
            (GHOSTS_PER_BLOCK + 1) * capacity,
            on_split=self.was_split,
            on_dropped=lambda chain, _: self.forgot(chain),
        )
        self.view = View(0, capacity, self.queue_of, self.order_of)
        self._tickets: dict[Chain, float] = {}
        self._last_ticket = 0.0

    def ask(self, keys: Sequence[int], num_asked: int, now: float) -> int:
        """A request whose first `num_asked` blocks are its prompt's. Returns how many of those it finds."""
        path = self.tree.arrive(keys)
        found = min(num_asked, self.view.found(path.chains()))
        for key in keys[path.length :]:
            self.tree.advance(path, key, now)
        chains = path.chains()
        for chain in reversed(chains):  # the head is the last one used: it is wanted longest
            self.use(chain)
        self._take_in(path, chains)
        for chain in chains:
            chain.last_used = now
        self.tree.leave(path, now)
        self.tree.forget(lambda chain, wanted: max(self.view.count(chain), len(chain.keys) - wanted), now)
        return found

    def _take_in(self, path: Path, chains: list[Chain]) -> None:
        """First hole first, until it is all there or nobody gives a block."""
        for chain in chains:
            while (missing := len(chain.keys) - self.view.count(chain)) > 0:
                if self.view.num_free:
                    if not self.view.count(chain):
                        self.comes_in(chain)
                    num_blocks = min(missing, self.view.num_free)
                    self.view.grow(chain, num_blocks)
                    self.grew(chain, num_blocks)
                    continue
                victim = self.victim(path, chain)
                if victim is None:
                    return
                num_blocks = min(missing, self.view.count(victim))
                self.view.shrink(victim, num_blocks)
                self.grew(victim, -num_blocks)
                if not self.view.count(victim):
                    self.left(victim)

    def next_ticket(self) -> float:
        self._last_ticket += 1
        return self._last_ticket

    # --- the policy -------------------------------------------------------------------------------------------------

    def queue_of(self, chain: Chain) -> int:
        return 0

    def order_of(self, chain: Chain) -> float:
        return self._tickets.get(chain, 0.0)  # heaps remember chains longer than the tree

    def use(self, chain: Chain) -> None:
        """A request goes through the chain, which may be new, or not be there."""
        self._tickets[chain] = self.next_ticket()
        self.view.note(chain)

    def comes_in(self, chain: Chain) -> None:
        """Its first block is about to come in."""

    def grew(self, chain: Chain, num_blocks: int) -> None:
        """So many of its blocks came in, or went (below 0)."""

    def left(self, chain: Chain) -> None:
        """Its last block has gone."""

    def victim(self, path: Path, chain: Chain) -> Chain | None:
        """Who gives the next block for one of `chain`; never one that the request goes through."""
        return next(self.view.candidates(path.chain), None)

    def was_split(self, head: Chain, rest: Chain) -> None:
        self._tickets[head] = self._tickets[rest]
        self.view.note(head)
        self.view.note(rest)

    def forgot(self, chain: Chain) -> None:
        """The tree has forgotten it."""
        del self._tickets[chain]


SMALL, MAIN = 0, 1


class ChainS3Fifo(ChainTier):
    """S3-FIFO. A chain that grows or is split keeps its place in its queue.

    Args:
        uses_to_stay: how often a chain of the small queue must have been used to go over to the main one.

    Attributes:
        num_small: blocks in the small queue.
        num_ghosts: blocks of chains that left it.
    """

    def __init__(self, capacity: int, uses_to_stay: int = 2) -> None:
        super().__init__(capacity)
        self.uses: dict[Chain, int] = {}
        self.queues: dict[Chain, int] = {}
        self.ghosts: OrderedDict[Chain, int] = OrderedDict()
        self._uses_to_stay = uses_to_stay
        self.num_ghosts = 0
        self.num_small = 0
        self._small_size = max(1, round(SMALL_SHARE * capacity))

    def queue_of(self, chain: Chain) -> int:
        return self.queues[chain]

    def use(self, chain: Chain) -> None:
        if self.view.count(chain):
            self.uses[chain] = min(MAX_USES, self.uses[chain] + 1)

    def comes_in(self, chain: Chain) -> None:
        is_ghost = chain in self.ghosts
        self._drop_ghost(chain)
        self._enqueue(chain, MAIN if is_ghost else SMALL)
        self.uses[chain] = 0

    def _enqueue(self, chain: Chain, queue: int) -> None:
        self.queues[chain] = queue
        self._tickets[chain] = self.next_ticket()

    def grew(self, chain: Chain, num_blocks: int) -> None:
        if self.queues[chain] == SMALL:
            self.num_small += num_blocks

    def left(self, chain: Chain) -> None:
        if self.queues[chain] == SMALL:
            self.ghosts[chain] = len(chain.keys)
            self.num_ghosts += len(chain.keys)
            while self.num_ghosts > self.capacity - self._small_size:
                self._drop_ghost(next(iter(self.ghosts)))

    def _drop_ghost(self, chain: Chain) -> None:
        self.num_ghosts -= self.ghosts.pop(chain, 0)

    def victim(self, path: Path, chain: Chain) -> Chain | None:
        while True:
            found = {self.queues[c]: c for c in self.view.candidates(path.chain)}
            small, main = found.get(SMALL), found.get(MAIN)
            if small is not None and (self.num_small >= self._small_size or main is None):
                if self.uses[small] < self._uses_to_stay:
                    return small
                self.num_small -= self.view.count(small)
                self._enqueue(small, MAIN)
                self.uses[small] = 0
                self.view.note(small)
            elif main is None:
                return None
            elif not self.uses[main]:
                return main
            else:
                self.uses[main] -= 1
                self._enqueue(main, MAIN)
                self.view.note(main)

    def was_split(self, head: Chain, rest: Chain) -> None:
        if rest in self.queues:
            self.queues[head], self.uses[head] = self.queues[rest], self.uses[rest]
            self._tickets[head] = self._tickets[rest]
            self.view.note(head)
            self.view.note(rest)
        if (size := self.ghosts.get(rest)) is not None:
            self.ghosts[head], self.ghosts[rest] = len(head.keys), len(rest.keys)
            self.num_ghosts += len(head.keys) + len(rest.keys) - size

    def forgot(self, chain: Chain) -> None:
        self._drop_ghost(chain)
        for known in (self._tickets, self.queues, self.uses):
            known.pop(chain, None)


class ChainSieve(ChainTier):
    """SIEVE. The hand's laps are counted, so that a heap of (lap, place) is the way that lies before it.

    A chain that cannot go yet, since something that is there hangs on it, is looked at when it can.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.visited: set[Chain] = set()
        self._laps: dict[Chain, int] = {}
        self._lap = 0

    def order_of(self, chain: Chain) -> float:
        return self._laps.get(chain, 0) * LAP + self._tickets.get(chain, 0.0)

    def use(self, chain: Chain) -> None:
        if self.view.count(chain):
            self.visited.add(chain)

    def comes_in(self, chain: Chain) -> None:
        # Where nobody is left before the hand it begins anew at the oldest, and gets to who comes in now at the end.
        before_hand = next(self.view.candidates(None), None)
        if before_hand is not None:
            self._lap = max(self._lap, self._laps[before_hand])
        self._laps[chain] = self._lap
        self._tickets[chain] = self.next_ticket()
        self.visited.discard(chain)

    def victim(self, path: Path, chain: Chain) -> Chain | None:
        while (found := super().victim(path, chain)) is not None and found in self.visited:
            self.visited.remove(found)
            self._lap = max(self._lap, self._laps[found])
            self._laps[found] = self._lap + 1
            self.view.note(found)
        return found

    def was_split(self, head: Chain, rest: Chain) -> None:
        if rest in self._laps:
            self._laps[head] = self._laps[rest]
            if rest in self.visited:
                self.visited.add(head)
            super().was_split(head, rest)

    def forgot(self, chain: Chain) -> None:
        self.visited.discard(chain)
        self._laps.pop(chain, None)
        self._tickets.pop(chain, None)


HIGH, LOW = 0, 1


class ChainLirs(ChainTier):
    """LIRS. Only chains of low recency between uses may take blocks of others like them; all others share a small part.

    What is new gets in as far as that part has room: the head of a long prompt, not its last blocks.

    Args:
        hir_share: that part, of the tier.

    Attributes:
        num_low: blocks there of chains of low recency.
    """

    def __init__(self, capacity: int, hir_share: float = 0.01) -> None:
        super().__init__(capacity)
        self.stack: OrderedDict[Chain, None] = OrderedDict()
        self.low: set[Chain] = set()
        self._low_size = capacity - max(1, round(hir_share * capacity))
        self.num_low = 0
        self._was_full = False

    def queue_of(self, chain: Chain) -> int:
        return LOW if chain in self.low else HIGH

    def use(self, chain: Chain) -> None:
        is_recent = chain in self.stack
        self.stack[chain] = None
        self.stack.move_to_end(chain)
        if chain not in self.low:
            if is_recent or (not self._was_full and self.num_low < self._low_size):
                self.low.add(chain)
                self.num_low += self.view.count(chain)
            self._tickets[chain] = self.next_ticket()
            self.view.note(chain)
        self._balance()

    def grew(self, chain: Chain, num_blocks: int) -> None:
        if chain in self.low:
            self.num_low += num_blocks
            self._balance()

    def _balance(self) -> None:
        self._prune()
        while self.num_low > self._low_size and self._demote():
            pass

    def _prune(self) -> None:
        while self.stack and next(iter(self.stack)) not in self.low:
            self.stack.popitem(last=False)

    def _demote(self) -> bool:
        """The chain of low recency whose use is longest ago becomes one of the others, unless a request runs on it."""
        chain = next(iter(self.stack), None)
        if chain is None or chain.num_owners:
            return False
        del self.stack[chain]
        self.low.remove(chain)
        self.num_low -= self.view.count(chain)
        self._tickets[chain] = self.next_ticket()
        self.view.note(chain)
        self._prune()
        return True

    def victim(self, path: Path, chain: Chain) -> Chain | None:
        self._was_full = True
        while True:
            for found in self.view.candidates(path.chain):
                if found not in self.low:
                    return found
            if chain not in self.low or not self._demote():
                return None

    def was_split(self, head: Chain, rest: Chain) -> None:
        super().was_split(head, rest)
        if rest in self.stack:
            self.stack[head] = None  # and it is used at once
        if rest in self.low:
            self.low.add(head)

    def forgot(self, chain: Chain) -> None:
        super().forgot(chain)
        self.stack.pop(chain, None)
        self.low.discard(chain)
