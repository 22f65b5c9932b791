"""What lies in a tier that holds no bytes: blocks, what they hold, which copies are on their way, which are pinned.

Pure: standard library only. It does what it is told and decides nothing; `shadow` decides.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from connector.shadow_queue import ShadowBlock, ShadowQueue

Listener = Callable[[list[bytes]], object]
_ENDLESS = ShadowBlock()  # what an endless tier holds everything in: none of its blocks is ever asked for


class Observer(Protocol):
    """What is told of every block, in the order in which the engine's tier tells its keeper."""

    def vacated(self, block_id: int) -> object:
        """A block holds nothing any more."""
        ...

    def gone(self, key: bytes, group: int, index: int) -> object:
        """No block holds this any more."""
        ...

    def found(self, key: bytes, group: int, index: int, block: ShadowBlock) -> object:
        """This can be found in the block from now on."""
        ...


@dataclass(slots=True)
class _Copies:
    """Copies that were ordered in a step, and the blocks that they go to."""

    step: int
    blocks: list[tuple[ShadowBlock, bytes, int]] = field(default_factory=list[tuple[ShadowBlock, bytes, int]])


class ShadowBlocks:
    """The blocks of one tier.

    Args:
        num_blocks: None for as many as there is content: nothing ever leaves, and a copy is there at once.
        on_gone: told of content that no block holds any more; None where nobody asks.
        on_found: told of content that can be found from now on; None where nobody asks.

    Attributes:
        queue: free blocks, the next victim first.
        resident: what can be found, and in which block.
        in_flight: content that is being copied, and for each of its copies whose it is.
        num_in_flight: blocks that copies are being written to.
        num_evicted: content that was gone, so far.
        observer: told of every block; None where nobody asks.
    """

    def __init__(
        self, num_blocks: int | None, on_gone: Listener | None = None, on_found: Listener | None = None
    ) -> None:
        self.is_bounded = num_blocks is not None
        self.queue = ShadowQueue(ShadowBlock(n) for n in range(num_blocks or 0))
        self.resident: dict[bytes, ShadowBlock] = {}
        self.in_flight: dict[bytes, list[int]] = {}
        self.num_in_flight = 0
        self.num_evicted = 0
        self._on_gone = on_gone
        self._on_found = on_found
        self.observer: Observer | None = None
        # Further blocks with the same content: stock copies it twice where two requests compute it at the same time.
        self._twins: dict[bytes, list[ShadowBlock]] = {}
        self._copies: deque[_Copies] = deque()

    def listen(self, on_gone: Listener | None, on_found: Listener | None) -> None:
        """Tell these from now on."""
        self._on_gone, self._on_found = on_gone, on_found

    def __contains__(self, key: bytes) -> bool:
        return key in self.resident

    @property
    def num_free(self) -> int:
        """How many more copies can be ordered."""
        return self.queue.num_free_blocks if self.is_bounded else 2**62

    # --- as `keeping` sees a pool -----------------------------------------------------------------------------------

    def block_of(self, key: bytes) -> ShadowBlock | None:
        """The block that answers for a key; None where there is none."""
        return self.resident.get(key)

    def referenced(self) -> list[ShadowBlock]:
        """Blocks that hold something and are not free, by number."""
        blocks = [*self.resident.values(), *(b for twins in self._twins.values() for b in twins)]
        return sorted((b for b in blocks if b.ref_cnt), key=lambda b: b.block_id)

    # --- copies to the tier -----------------------------------------------------------------------------------------

    def copy(
        self, keys: Sequence[bytes], indices: Iterable[int], step: int, whose: Sequence[int] | None = None
    ) -> None:
        """Order copies, into the blocks that stand first in the queue. `indices`: the place of each in its chain, in
        blocks of its group; `whose`: what `in_flight` is to say of each."""
        if not keys:
            return
        if not self.is_bounded:
            self.resident.update(dict.fromkeys(keys, _ENDLESS))
            if self._on_found is not None:
                self._on_found(list(keys))
            return
        blocks = self.queue.popleft_n(len(keys))
        self._empty(blocks)
        for block, index in zip(blocks, indices, strict=True):
            block.index = index
        whose = [0] * len(keys) if whose is None else whose
        in_flight = self.in_flight
        for key, number in zip(keys, whose, strict=True):
            if key in in_flight:
                in_flight[key].append(number)
            else:
                in_flight[key] = [number]
        self.num_in_flight += len(keys)
        self._ordered_in(step).blocks.extend(zip(blocks, keys, whose, strict=True))

    def copies_over(self, step: int) -> bool:
        """Copies that were ordered up to this step can be found from now on. Returns whether there were any."""
        is_any = False
        in_flight, resident = self.in_flight, self.resident
        while self._copies and self._copies[0].step <= step:
            copies = self._copies.popleft().blocks
            for block, key, number in copies:
                flying = in_flight[key]
                flying.remove(number)
                if not flying:
                    del in_flight[key]
                block.block_hash = key
                if resident.setdefault(key, block) is not block:
                    self._twins.setdefault(key, []).append(block)
            self.num_in_flight -= len(copies)
            if self._on_found is not None:
                self._on_found([key for _, key, _ in copies])
            self.queue.append_n([block for block, _, _ in copies])
            if self.observer is not None:
                for block, key, _ in copies:
                    self.observer.found(key, _group_of(key), block.index, block)
            is_any = True
        return is_any

    def _empty(self, blocks: Iterable[ShadowBlock]) -> None:
        resident, all_twins, gone, observer = self.resident, self._twins, list[bytes](), self.observer
        seen: list[tuple[ShadowBlock, bytes]] = []
        for block in blocks:
            key, block.block_hash = block.block_hash, None
            if key is None:
                continue
            if observer is not None:
                seen.append((block, key))
            if key not in all_twins:
                del resident[key]
                gone.append(key)
                continue
            twins = all_twins[key]
            if resident[key] is block:
                resident[key] = twins.pop(0)
            else:
                twins.remove(block)
            if not twins:
                del all_twins[key]
        self.num_evicted += len(gone)
        if gone and self._on_gone is not None:
            self._on_gone(gone)
        if observer is not None:
            for block, key in seen:
                observer.vacated(block.block_id)
                if key not in resident:
                    observer.gone(key, _group_of(key), block.index)

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
        blocks = [self.resident[key] for key in keys]
        remove = self.queue.remove
        for block in blocks:
            if not block.ref_cnt:
                remove(block)
            block.ref_cnt += 1
        return blocks

    def unpin(self, blocks: Iterable[ShadowBlock]) -> None:
        """What nobody pins any more goes to the back of the queue, in this order."""
        freed: list[ShadowBlock] = []
        for block in blocks:
            block.ref_cnt -= 1
            if not block.ref_cnt:
                freed.append(block)
        self.queue.append_n(freed)


def _group_of(key: bytes) -> int:
    """The group's number stands in the last four bytes of a key."""
    return int.from_bytes(key[-4:], "big")
