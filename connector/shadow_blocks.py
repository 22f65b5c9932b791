"""What lies in a tier that holds no bytes: blocks, what they hold, which copies are on their way, which are pinned.

Pure: standard library only. It does what it is told and decides nothing; `shadow` decides.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from connector.shadow_queue import ShadowBlock, ShadowQueue


@dataclass(slots=True)
class _Copies:
    """Copies that were ordered in a step, and the blocks that they go to."""

    step: int
    blocks: list[tuple[ShadowBlock, bytes]] = field(default_factory=list[tuple[ShadowBlock, bytes]])


class ShadowBlocks:
    """The blocks of one tier.

    Args:
        num_blocks: None for as many as there is content: nothing ever leaves, and a copy is there at once.
        on_gone: told of content that no block holds any more.
        on_found: told of content that can be found from now on.

    Attributes:
        queue: free blocks, the next victim first.
        in_flight: content that is being copied, and how often.
        num_in_flight: blocks that copies are being written to.
    """

    def __init__(
        self, num_blocks: int | None, on_gone: Callable[[bytes], object], on_found: Callable[[bytes], object]
    ) -> None:
        self.is_bounded = num_blocks is not None
        self.queue = ShadowQueue(ShadowBlock() for _ in range(num_blocks or 0))
        self.in_flight: Counter[bytes] = Counter()
        self.num_in_flight = 0
        self._on_gone = on_gone
        self._on_found = on_found
        self._resident: dict[bytes, ShadowBlock] = {}
        # Further blocks with the same content: stock copies it twice where two requests compute it at the same time.
        self._twins: dict[bytes, list[ShadowBlock]] = {}
        self._copies: deque[_Copies] = deque()
        self._pins: dict[ShadowBlock, int] = {}

    def __contains__(self, key: bytes) -> bool:
        return key in self._resident

    def __len__(self) -> int:
        return len(self._resident)

    @property
    def num_free(self) -> int:
        """How many more copies can be ordered."""
        return self.queue.num_free_blocks if self.is_bounded else 2**62

    # --- copies to the tier -----------------------------------------------------------------------------------------

    def copy(self, keys: Iterable[bytes], step: int) -> None:
        """Order copies, into the blocks that stand first in the queue."""
        for key in keys:
            if not self.is_bounded:
                self._resident[key] = ShadowBlock()
                self._on_found(key)
                continue
            block = self.queue.popleft()
            self._empty(block)
            self.in_flight[key] += 1
            self.num_in_flight += 1
            self._ordered_in(step).blocks.append((block, key))

    def copies_over(self, step: int) -> bool:
        """Copies that were ordered up to this step can be found from now on. Returns whether there were any."""
        is_any = False
        while self._copies and self._copies[0].step <= step:
            freed: list[ShadowBlock] = []
            for block, key in self._copies.popleft().blocks:
                self.in_flight[key] -= 1
                if not self.in_flight[key]:
                    del self.in_flight[key]
                self.num_in_flight -= 1
                block.block_hash = key
                if key in self._resident:
                    self._twins.setdefault(key, []).append(block)
                else:
                    self._resident[key] = block
                self._on_found(key)
                freed.append(block)
            self.queue.append_n(freed)
            is_any = True
        return is_any

    def _empty(self, block: ShadowBlock) -> None:
        key, block.block_hash = block.block_hash, None
        if key is None:
            return
        twins = self._twins.get(key)
        if twins is None:
            del self._resident[key]
            self._on_gone(key)
            return
        if self._resident[key] is block:
            self._resident[key] = twins.pop(0)
        else:
            twins.remove(block)
        if not twins:
            del self._twins[key]

    def _ordered_in(self, step: int) -> _Copies:
        at = len(self._copies)
        while at and self._copies[at - 1].step > step:
            at -= 1
        if not at or self._copies[at - 1].step != step:
            self._copies.insert(at, _Copies(step))
            return self._copies[at]
        return self._copies[at - 1]

    # --- hits -------------------------------------------------------------------------------------------------------

    def pin(self, keys: Iterable[bytes]) -> list[ShadowBlock]:
        """Keep content that is there from being a victim."""
        if not self.is_bounded:
            return []
        blocks = [self._resident[key] for key in keys]
        for block in blocks:
            count = self._pins.get(block, 0)
            if not count:
                self.queue.remove(block)
            self._pins[block] = count + 1
        return blocks

    def unpin(self, blocks: Iterable[ShadowBlock]) -> None:
        """What nobody pins any more goes to the back of the queue, in this order."""
        freed: list[ShadowBlock] = []
        for block in blocks:
            self._pins[block] -= 1
            if not self._pins[block]:
                del self._pins[block]
                freed.append(block)
        self.queue.append_n(freed)
