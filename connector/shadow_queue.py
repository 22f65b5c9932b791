"""Blocks of a tier that holds no bytes, and the queue in which the next victims stand.

Pure: standard library only. The same shape as vLLM's `FreeKVCacheBlockQueue`, so that `admission` walks either.
"""

from collections.abc import Iterable


class ShadowBlock:
    """One block: its number, what it holds and where in its chain that stands, how many pin it, and its neighbours
    while it is free."""

    __slots__ = ("block_hash", "block_id", "index", "next_free_block", "prev_free_block", "ref_cnt")

    def __init__(self, block_id: int = 0) -> None:
        self.block_id = block_id
        self.block_hash: bytes | None = None
        self.index = 0
        self.ref_cnt = 0
        self.next_free_block: ShadowBlock | None = None
        self.prev_free_block: ShadowBlock | None = None


class ShadowQueue:
    """Free blocks, the next victim first: a doubly linked list between two ends that are no blocks."""

    def __init__(self, blocks: Iterable[ShadowBlock]) -> None:
        self.num_free_blocks = 0
        self.fake_free_list_head = ShadowBlock()
        self.fake_free_list_tail = ShadowBlock()
        self._join(self.fake_free_list_head, self.fake_free_list_tail)
        self.append_n(list(blocks))

    def popleft_n(self, count: int) -> list[ShadowBlock]:
        """Take the next victims.

        Raises:
            IndexError: so many are not free.
        """
        if count > self.num_free_blocks:
            raise IndexError(f"{count} blocks are wanted, and {self.num_free_blocks} are free")
        blocks: list[ShadowBlock] = []
        block = self.fake_free_list_head.next_free_block
        for _ in range(count):
            assert block is not None
            blocks.append(block)
            block = block.next_free_block
        assert block is not None
        self._join(self.fake_free_list_head, block)
        self.num_free_blocks -= count
        return blocks

    def remove(self, block: ShadowBlock) -> None:
        """Take one block out, wherever it stands."""
        before, after = block.prev_free_block, block.next_free_block
        assert before is not None
        assert after is not None
        before.next_free_block, after.prev_free_block = after, before
        self.num_free_blocks -= 1

    def append_n(self, blocks: list[ShadowBlock]) -> None:
        """Put blocks at the back, the first of them as the first victim."""
        tail = self.fake_free_list_tail
        last = tail.prev_free_block
        assert last is not None
        for block in blocks:
            last.next_free_block = block
            block.prev_free_block = last
            last = block
        last.next_free_block = tail
        tail.prev_free_block = last
        self.num_free_blocks += len(blocks)

    def prepend_n(self, blocks: list[ShadowBlock]) -> None:
        """Put blocks at the front, in their order."""
        for block in reversed(blocks):
            first = self.fake_free_list_head.next_free_block
            assert first is not None
            self._join(self.fake_free_list_head, block)
            self._join(block, first)
        self.num_free_blocks += len(blocks)

    @staticmethod
    def _join(before: ShadowBlock, after: ShadowBlock) -> None:
        before.next_free_block, after.prev_free_block = after, before
