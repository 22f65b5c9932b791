"""Watches a vLLM block pool through its `metrics_collector` seam: what was cached where, and which hashes were evicted.

Pure: it reads blocks by the few attributes that it names, and calls nobody. The scheduler half drains it.
"""

from collections.abc import Callable
from typing import Any, Protocol


class Block(Protocol):
    """What is read of vLLM's `KVCacheBlock`."""

    block_id: int
    block_hash: bytes | None


class EvictionObserver:
    """Stands where vLLM's `KVCacheMetricsCollector` stands and notes evictions of hashed blocks, in their order.

    The pool calls it before it forgets the hash. An exception here would come up inside vLLM's allocator, so none
    leaves.

    Args:
        on_fault: told of an exception of ours.
    """

    def __init__(self, on_fault: Callable[[str, Exception], None]) -> None:
        self._on_fault = on_fault
        self._evicted: list[tuple[int, bytes]] = []

    def drain(self) -> list[tuple[int, bytes]]:
        """(block id, key) of each block that lost its hash since the last call."""
        evicted = self._evicted
        if evicted:
            self._evicted = []
        return evicted

    def on_block_evicted(self, block: Block) -> None:
        try:
            if block.block_hash is not None:
                self._evicted.append((block.block_id, block.block_hash))
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._on_fault("on_block_evicted", e)

    def on_block_allocated(self, block: Block) -> None:
        """Part of the seam; an allocation is seen where it is asked for."""

    def on_block_accessed(self, block: Block) -> None:
        """Part of the seam; a touch changes nothing that is tracked here."""

    def reset(self) -> None:
        """The pool was emptied; whoever asked for it says so in the log."""
        self._evicted.clear()

    def drain_events(self) -> list[Any]:
        """Part of the seam; this observer produces no vLLM metrics."""
        return []
