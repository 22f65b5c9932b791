"""How a request's tokens lie in blocks: which groups can be walked by position, and what hash each position should
have.

Engine ring.
"""

from typing import TYPE_CHECKING, Any

from vllm.utils.math_utils import cdiv
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
    resolve_block_hashes,
)
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheSpec,
    MambaSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)
from vllm.v1.simple_kv_offload.manager import BlockStoreMeta, SimpleCPUOffloadScheduler

from connector.causes import Group

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request


class Layout:
    """The KV-cache groups of one engine.

    Attributes:
        block_sizes: tokens a block of each group holds.
        groups: the groups whose block tables only grow, so that a position names a block, and which can be hit at all.
        hit_groups: all that a hit must satisfy, full attention first.
    """

    def __init__(self, manager: SimpleCPUOffloadScheduler) -> None:
        self._hash_block_size = manager.hash_block_size
        self.block_sizes: list[int] = list(manager.group_block_sizes)
        managers = manager.cpu_coordinator.single_type_managers
        cacheable = sorted(manager.prefix_cacheable_group_ids)
        self.groups = tuple(g for g in cacheable if managers[g].has_positionally_stable_blocks)

        specs = [group.kv_cache_spec for group in manager.cpu_kv_cache_config.kv_cache_groups]
        self.hit_groups = [
            Group(g, kind_of(specs[g]), max(1, self.block_sizes[g] // self._hash_block_size), blocks_needed(specs[g]))
            for g in sorted(cacheable, key=lambda g: (blocks_needed(specs[g]) is not None, g))
        ]

    def hashes(self, request: "Request", group: int) -> "BlockHashList":
        """The hash that each full block of the request should have in this group, head first."""
        return resolve_block_hashes(request.block_hashes, self._hash_block_size, self.block_sizes[group])

    def key(self, hashes: "BlockHashList", group: int, index: int) -> bytes:
        return make_block_hash_with_group_id(hashes[index], group)

    def depth(self, group: int, index: int) -> int:
        """Tokens before a block, so that blocks of groups with different block sizes compare."""
        return index * self.block_sizes[group]

    def event_meta(self, request: "Request", group: int, index: int, key: bytes) -> dict[Any, BlockStoreMeta]:
        """What vLLM's `BlockStored` events say about a block that is copied again: the same as about its first
        copy."""
        start, size, fine = self.depth(group, index), self.block_sizes[group], self._hash_block_size
        meta: dict[Any, BlockStoreMeta] = {key: self._block_meta(request, start, size, None)}
        # Where hashes are finer than this group's blocks, the block may answer for boundaries within it too.
        for fine_start in range(start, start + size, fine):
            fine_key = self.key(request.block_hashes, group, fine_start // fine)
            if fine_key not in meta:
                meta[fine_key] = self._block_meta(request, fine_start, fine, fine)
        return meta

    def _block_meta(self, request: "Request", start: int, size: int, event_block_size: int | None) -> BlockStoreMeta:
        end = start + size
        lora = request.lora_request
        extra_keys, _ = generate_block_hash_extra_keys(request, start, end, 0)
        parent = start // self._hash_block_size - 1
        return BlockStoreMeta(
            token_ids=list(request.all_token_ids[start:end]),
            parent_block_hash=maybe_convert_block_hash(request.block_hashes[parent]) if parent >= 0 else None,
            lora_id=lora.adapter_id if lora else None,
            lora_name=lora.name if lora else None,
            extra_keys=extra_keys,
            block_size=event_block_size,
        )


def _one(spec: KVCacheSpec) -> KVCacheSpec:
    return next(iter(spec.kv_cache_specs.values())) if isinstance(spec, UniformTypeKVCacheSpecs) else spec


def kind_of(spec: KVCacheSpec) -> str:
    """The name of vLLM's spec, of one layer."""
    return type(_one(spec)).__name__


def window_of(spec: KVCacheSpec) -> int | None:
    """Tokens that a layer of this group looks back; None where it looks at all."""
    one = _one(spec)
    return one.sliding_window if isinstance(one, SlidingWindowSpec) else None


def blocks_needed(spec: KVCacheSpec) -> int | None:
    """How many of the last blocks a prefix hit needs of this group; None where it needs all."""
    one = _one(spec)
    if isinstance(one, SlidingWindowSpec):
        return cdiv(one.sliding_window - 1, one.block_size)
    if isinstance(one, ChunkedLocalAttentionSpec):
        return cdiv(one.attention_chunk_size, one.block_size)
    if isinstance(one, MambaSpec):
        return 1
    return None if isinstance(one, FullAttentionSpec) else 0
