"""A lookup as the scheduler half sees it: what both tiers gave of a request, and why no more.

Engine ring: it shows vLLM's pools and requests to `causes`, which decides.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from connector.causes import Causes, Finding
from connector.directory import Directory
from connector.journal import Journal
from connector.layout import Layout
from connector.tier import Tier

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request


class Lookups:
    """Explains each lookup to the journal, once its request is admitted."""

    def __init__(
        self, manager: SimpleCPUOffloadScheduler, layout: Layout, tier: Tier, directory: Directory, journal: Journal
    ) -> None:
        self._m = manager
        self._layout = layout
        self._tier = tier
        self._directory = directory
        self._journal = journal
        self._causes = Causes(
            directory,
            _Tier(tier),
            layout.hit_groups,
            manager.hash_block_size,
            drops_last_block=bool(manager.cpu_coordinator.eagle_group_ids),
        )

        self._tables: list[Mapping[str, Sequence[Any]]] = []

    def bind_block_tables(self, tables: "list[Mapping[str, Sequence[Any]]]") -> None:
        """vLLM's own block tables, by group and request."""
        self._tables = tables

    def arrived(self, request: "Request") -> None:
        """The scheduler took a request in. To be told before its chain is told to the journal."""
        self._causes.arrived(request.request_id, self._directory.tell(request.request_id, request.block_hashes))

    def ended(self, request_id: str) -> None:
        """The request is over."""
        self._causes.ended(request_id)

    def admitted(self, request: "Request", cpu_hit_tokens: int) -> None:
        """The scheduler took what was found, and maybe less of the CPU tier's part than there was."""
        lookup = self._journal.take_lookup(request.request_id)
        if lookup is None:
            return
        self._tier.drain_evictions(None)
        finding = self._explain(request, lookup[0] + cpu_hit_tokens)
        restored = self._restored_tokens(request, lookup[0], cpu_hit_tokens)
        self._journal.request_admitted(request, lookup, cpu_hit_tokens, restored, finding)

    def _explain(self, request: "Request", found_tokens: int) -> Finding:
        cut = found_tokens // self._m.hash_block_size
        chain = _Chain(request, self._layout, self._m, self._tables)
        return self._causes.explain(chain, cut, is_resumed=request.num_preemptions > 0)

    def _restored_tokens(self, request: "Request", first_token: int, num_tokens: int) -> int:
        """Tokens of the CPU hit in blocks that are there thanks to a re-store, each counted once however many groups
        hold it."""
        load = self._m._reqs_to_load.get(request.request_id)
        if load is None or not num_tokens:
            return 0
        size = self._m.hash_block_size
        covered: set[int] = set()
        for copy in self._tier.held(load.transfer_meta.cpu_block_ids):
            if copy.is_restore:
                start = self._layout.depth(copy.group, copy.index)
                covered.update(range(start // size, (start + self._layout.block_sizes[copy.group]) // size))
        hit = range(first_token // size, (first_token + num_tokens) // size)
        return sum(index in hit for index in covered) * size


class _Tier:
    """The CPU tier, by key."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self.is_in_tier = tier.has

    def is_in_flight(self, key: bytes) -> bool:
        return key in self._tier.keys_in_flight


class _Chain:
    """One request, as `causes` reads it."""

    def __init__(
        self,
        request: "Request",
        layout: Layout,
        manager: SimpleCPUOffloadScheduler,
        tables: "list[Mapping[str, Sequence[Any]]]",
    ) -> None:
        self._request = request
        self._layout = layout
        self._pool = manager._gpu_block_pool
        self._tables = tables
        self._hashes: dict[int, BlockHashList] = {}
        self.request_id = request.request_id
        self.num_tokens = request.num_tokens
        self.num_hashes = len(request.block_hashes)
        self.is_skipped = request.skip_reading_prefix_cache

    def hash_at(self, index: int) -> bytes:
        return self._request.block_hashes[index]

    def key_at(self, group: int, index: int) -> bytes:
        hashes = self._hashes.get(group)
        if hashes is None:
            hashes = self._hashes[group] = self._layout.hashes(self._request, group)
        return self._layout.key(hashes, group, index)

    def was_on_gpu(self, group: int, index: int) -> bool:
        if self._pool is None:
            return False
        found = self._pool.cached_block_hash_to_block.get_one_block(self.key_at(group, index))
        # vLLM hashes a request's new blocks when it allocates them, before they are computed. An older block with the
        # same content is found first.
        blocks = self._tables[group].get(self.request_id, ())
        return found is not None and not (index < len(blocks) and blocks[index].block_id == found.block_id)
