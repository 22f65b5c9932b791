"""How a request's tokens lie in blocks: which groups can be walked by position, and what hash each position should
have.

Engine ring.
"""

from typing import TYPE_CHECKING

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id, resolve_block_hashes
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request


class Layout:
    """The KV-cache groups of one engine.

    Attributes:
        block_sizes: tokens a block of each group holds.
        groups: the groups whose block tables only grow, so that a position names a block, and which can be hit at all.
    """

    def __init__(self, manager: SimpleCPUOffloadScheduler) -> None:
        self._hash_block_size = manager.hash_block_size
        self.block_sizes: list[int] = list(manager.group_block_sizes)
        managers = manager.cpu_coordinator.single_type_managers
        cacheable = sorted(manager.prefix_cacheable_group_ids)
        self.groups = tuple(g for g in cacheable if managers[g].has_positionally_stable_blocks)

    def hashes(self, request: "Request", group: int) -> "BlockHashList":
        """The hash that each full block of the request should have in this group, head first."""
        return resolve_block_hashes(request.block_hashes, self._hash_block_size, self.block_sizes[group])

    def key(self, hashes: "BlockHashList", group: int, index: int) -> bytes:
        return make_block_hash_with_group_id(hashes[index], group)

    def depth(self, group: int, index: int) -> int:
        """Tokens before a block, so that blocks of groups with different block sizes compare."""
        return index * self.block_sizes[group]
