"""Two of vLLM's open proposals for the same gap, as a replay can play them: the idea alone, on the stock class.

Engine ring. `refresh` is that of vllm-project/vllm#39972: a block that a request would store, and that the tier has,
becomes the most recently used. `pin` is that of #57813: what running requests own in the tier stays until they end.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import SimpleCPUOffloadConnector
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import KVCacheBlock
    from vllm.v1.request import Request


class Refreshing(SimpleCPUOffloadScheduler):
    """Stock, but that a block is used where a request comes past it with its copy there."""

    def __init__(self, stock: SimpleCPUOffloadScheduler) -> None:
        vars(self).update(vars(stock))

    def _classify_store_candidate(self, gpu_block: "KVCacheBlock") -> Any:
        copy = self._copy_of(gpu_block)
        if copy is not None:
            # Out of the queue of those that may go, and in again at its end.
            self.cpu_block_pool.touch([copy])
            self.cpu_block_pool.free_blocks([copy])
        return super()._classify_store_candidate(gpu_block)

    def _copy_of(self, gpu_block: "KVCacheBlock") -> "KVCacheBlock | None":
        if gpu_block.is_null or gpu_block.block_hash is None:
            return None
        return self.cpu_block_pool.cached_block_hash_to_block.get_one_block(gpu_block.block_hash)


class Pinning(Refreshing):
    """Stock, but that each running request holds a reference to its blocks in the tier."""

    def __init__(self, stock: SimpleCPUOffloadScheduler) -> None:
        super().__init__(stock)
        self._selecting = ""
        self._owner_of: dict[int, str] = {}
        self._pins: defaultdict[str, list[KVCacheBlock]] = defaultdict(list)

    def _select_eager_blocks_to_store(self, state: Any, block_ids_by_group: tuple[list[int], ...]) -> Any:
        self._selecting = state.request.request_id
        selection = super()._select_eager_blocks_to_store(state, block_ids_by_group)
        self._owner_of.update(dict.fromkeys(selection[0], self._selecting))
        return selection

    def _classify_store_candidate(self, gpu_block: "KVCacheBlock") -> Any:
        copy = self._copy_of(gpu_block)
        if copy is not None:
            self._pin(self._selecting, copy)
        return SimpleCPUOffloadScheduler._classify_store_candidate(self, gpu_block)

    def _process_store_completion(
        self, gpu_block_ids: list[int], cpu_block_ids: list[int], block_meta: Any = None
    ) -> None:
        for gpu_block_id, cpu_block_id in zip(gpu_block_ids, cpu_block_ids, strict=True):
            owner = self._owner_of.pop(gpu_block_id, None)
            if owner in self._reqs_to_store and not self._reqs_to_store[owner].finished:
                self._pin(owner, self.cpu_block_pool.blocks[cpu_block_id])
        super()._process_store_completion(gpu_block_ids, cpu_block_ids, block_meta)

    def request_finished_all_groups(self, request: "Request", block_ids: tuple[list[int], ...]) -> Any:
        answer = super().request_finished_all_groups(request, block_ids)
        self.cpu_block_pool.free_blocks(self._pins.pop(request.request_id, []))
        return answer

    def _pin(self, request_id: str, block: "KVCacheBlock") -> None:
        self.cpu_block_pool.touch([block])
        self._pins[request_id].append(block)


class RefreshConnector(SimpleCPUOffloadConnector):
    """vLLM's connector over `Refreshing`."""

    half = Refreshing

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert self.scheduler_manager is not None
        self.scheduler_manager = self.half(self.scheduler_manager)


class PinConnector(RefreshConnector):
    """vLLM's connector over `Pinning`."""

    half = Pinning
