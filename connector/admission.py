"""May this block have a place in the CPU tier, when the tier is too small for what runs?

Pure: it walks vLLM's free-block queue by its four public operations. Only `tracked` asks, and only while running
requests own more blocks than the tier can hold: then vLLM's LRU order would push out heads to bring in tails and back
again, for ever.

A lookup uses the contiguous prefix, so a block nearer the head of its chain is worth more. A victim must be worth
less than the newcomer: nobody's, or deeper in its chain. A page that left a sliding window is nobody's. Every
exchange then lowers the sum of depths, so the exchanges end.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from connector.owners import OwnedBlock, OwnerIndex

WINDOW = 32
LOOKS_PER_STEP = 16


class FreeQueue(Protocol):
    """What is used of vLLM's `FreeKVCacheBlockQueue`: the block at its front is the next victim."""

    num_free_blocks: int
    fake_free_list_head: Any
    fake_free_list_tail: Any

    def remove(self, block: Any) -> None: ...
    def append_n(self, blocks: list[Any]) -> None: ...
    def prepend_n(self, blocks: list[Any]) -> None: ...


class Admission:
    """Remembers between steps that nothing could be gained, so that a tier at rest costs nothing.

    Args:
        queue: vLLM's, of the CPU pool.
        owners: who owns what, without pages that left their window.
    """

    def __init__(self, queue: FreeQueue, owners: OwnerIndex) -> None:
        self._queue = queue
        self._owners = owners
        self._looks_left = LOOKS_PER_STEP
        self._num_refused = 0
        self._refused_depth: int | None = None

    def begin_step(self) -> None:
        self._looks_left = LOOKS_PER_STEP

    def tier_changed(self) -> None:
        """A block was freed, pinned, given up by its owner or stored: what was refused may be admitted now."""
        self._num_refused = 0
        self._refused_depth = None

    @property
    def is_exhausted(self) -> bool:
        """Whether all looks of this step are taken."""
        return not self._looks_left

    def walk(self) -> "VictimWalk":
        return VictimWalk(self, self._queue)

    def owned_in(self, block: Any) -> OwnedBlock | None:
        """What running requests want of a block of the tier; None where they want nothing."""
        return self._owners.get(block.block_hash) if block.block_hash is not None else None

    def must_wait(self, depth: int) -> bool:
        """Whether a block at `depth` would be refused without a look: it has no victim, or all looks are taken."""
        return (self._refused_depth is not None and depth >= self._refused_depth) or not self._looks_left

    def may_look(self, depth: int) -> bool:
        if self.must_wait(depth):
            return False
        self._looks_left -= 1
        return True

    def refuse(self, depth: int, num_seen: int) -> None:
        self._num_refused += num_seen
        # Only when the whole queue has been seen without a victim is there none.
        if self._num_refused >= self._queue.num_free_blocks and (
            self._refused_depth is None or depth < self._refused_depth
        ):
            self._refused_depth = depth


class VictimWalk:
    """Admits the blocks of one allocation, one by one: as many victims then stand at the front of the queue."""

    def __init__(self, admission: Admission, queue: FreeQueue) -> None:
        self._admission = admission
        self._queue = queue
        self._last: Any = queue.fake_free_list_head

    def admit(self, depth: int) -> bool:
        """Find a victim for a block at `depth` tokens, and put it where vLLM's pool takes its next block from.

        The victim is the least recently used block that no running request wants, among those that are looked at; else
        the deepest of them if it lies deeper than `depth`. Where there is none, the blocks that were looked at move
        to the back of the queue: running requests use them, as a hit would have shown.
        """
        if not self._admission.may_look(depth):
            return False
        victim = None
        victim_depth = depth
        seen: list[Any] = []
        for block in self._window():
            owned = self._admission.owned_in(block)
            if owned is None:
                victim = block
                break
            seen.append(block)
            if owned.depth > victim_depth:
                victim, victim_depth = block, owned.depth
        if victim is None:
            for block in seen:
                self._queue.remove(block)
            self._queue.append_n(seen)
            self._admission.refuse(depth, len(seen))
            return False
        if self._last.next_free_block is not victim:
            self._queue.remove(victim)
            self._queue.prepend_n([victim])
        if self._last is self._queue.fake_free_list_head or self._last.next_free_block is victim:
            self._last = victim
        return True

    def _window(self) -> Iterable[Any]:
        block = self._last.next_free_block
        for _ in range(WINDOW):
            if block is None or block is self._queue.fake_free_list_tail:
                return
            following = block.next_free_block
            yield block
            block = following
