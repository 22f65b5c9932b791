"""What is known of the CPU tier beyond vLLM's pool: what each block holds, which copies are on their way, what was
lost.

Engine ring. It follows the pool and tells the owners' index and the journal; it decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from connector.directory import Directory, Evicted
from connector.journal import Copy, Eviction, Journal, group_of
from connector.observer import EvictionObserver
from connector.owners import OwnerIndex

if TYPE_CHECKING:
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

    from connector.keeper import Keeper


class Tier:
    """One engine's CPU tier.

    Attributes:
        keys_in_flight: content that is being copied to the tier, by key, and how often: stock copies twins twice.
        num_in_flight: blocks of the tier that copies are being written to.
        num_abandoned: of these, those whose copy was ordered before a reset: taken, and for nobody.
        num_chosen: blocks of the tier that are set aside for copies which leave with the next metadata.
        num_resident: blocks of the tier whose hash can be found.
        step: the step that is being built.
        keeper: told of what came and went, where the retention is `adaptive`.
    """

    def __init__(
        self,
        manager: SimpleCPUOffloadScheduler,
        observer: EvictionObserver,
        owners: OwnerIndex,
        directory: Directory,
        journal: Journal,
    ) -> None:
        self._m = manager
        self._directory = directory
        self._observer = observer
        self._owners = owners
        self._journal = journal
        self._resident: list[Copy | None] = [None] * manager.cpu_block_pool.num_gpu_blocks
        # Copies that were chosen and not yet handed to the worker, by GPU block; then, by store event.
        self._chosen: dict[int, Copy] = {}
        self._copies_of_event: dict[int, list[Copy | None]] = {}
        self.keys_in_flight: Counter[bytes] = Counter()
        self.num_in_flight = 0
        self.num_abandoned = 0
        self._abandoned_events: set[int] = set()
        self.num_resident = 0
        self._num_copies: Counter[bytes] = Counter()
        self._num_evicted = 0
        self.step = 0
        self.keeper: Keeper | None = None

    def has(self, key: bytes) -> bool:
        """Whether the tier can answer for this key."""
        return self._m.cpu_block_pool.cached_block_hash_to_block.get_one_block(key) is not None

    @property
    def num_chosen(self) -> int:
        return len(self._chosen)

    # --- copies on their way ----------------------------------------------------------------------------------------

    def choose(self, copies: Iterable[tuple[int, Copy]]) -> None:
        """(GPU block id, copy) of blocks that will leave with the next step's metadata."""
        for gpu_block_id, copy in copies:
            replaced = self._chosen.get(gpu_block_id)
            if replaced is not None:
                self._landed([replaced])
            self._chosen[gpu_block_id] = copy
            self.keys_in_flight[copy.key] += 1

    def copies_ordered(self, meta: "SimpleCPUOffloadMetadata", step: int) -> list[Copy | None]:
        """The step's metadata is complete: its store event holds these copies, in the order of its blocks."""
        if meta.store_event < 0:
            return []
        copies: list[Copy | None] = []
        for gpu_block_id, cpu_block_id in zip(meta.store_gpu_blocks, meta.store_cpu_blocks, strict=True):
            copy = self._chosen.pop(gpu_block_id, None)
            if copy is None:
                copy = self._copy_of_unknown(gpu_block_id)
                if copy is not None:
                    self.keys_in_flight[copy.key] += 1
            if copy is not None:
                copy.cpu_block_id = cpu_block_id
                copy.scheduled_step = step
            copies.append(copy)
        self._copies_of_event[meta.store_event] = copies
        self.num_in_flight += len(copies)
        return copies

    def copies_over(self, event: int) -> list[Copy | None]:
        """The worker has ended a store event, well or not: nothing of it is on its way any more."""
        copies = self._copies_of_event.pop(event, [])
        self.num_in_flight -= len(copies)
        if event in self._abandoned_events:
            self._abandoned_events.remove(event)
            self.num_abandoned -= len(copies)
        self._landed(copies)
        return copies

    def _landed(self, copies: Iterable[Copy | None]) -> None:
        for copy in copies:
            # Not counted any more where a reset or a fault has forgotten it meanwhile.
            if copy is not None and (left := self.keys_in_flight.pop(copy.key, 0)) > 1:
                self.keys_in_flight[copy.key] = left - 1

    def copies_found(self, copies: Sequence[Copy | None], copy_ns: int | None) -> None:
        """vLLM has registered the copies of an event: they can be found from now on. `copy_ns`: what the worker took
        for all of them."""
        now = self._journal.clock.monotonic_ns()
        done: list[Copy] = []
        share = None if copy_ns is None or not copies else copy_ns // len(copies)
        for copy in copies:
            if copy is None:
                continue
            if self._m.cpu_block_pool.blocks[copy.cpu_block_id].block_hash != copy.key:
                self._journal.dropped(copy.request_id, copy.group, copy.index, [copy.key], "rehashed")
                self._gone(copy)
                if not self.has(copy.key):
                    self._owners.lose(copy.key)  # another owner may have it on the GPU still
                continue
            copy.stored_ns = now
            copy.copy_ns = share
            self._directory.stored(copy.key)
            self._resident[copy.cpu_block_id] = copy
            self.num_resident += 1
            self._num_copies[copy.key] += 1
            self._owners.find(copy.key)
            if self.keeper is not None:
                self.keeper.found_in(copy.key, copy.group, copy.index, copy.cpu_block_id)
            done.append(copy)
        self._journal.copies_done(done)

    def copies_lost(self, copies: Iterable[Copy | None]) -> None:
        """The worker could not copy: what running requests own may be copied again, the rest is dropped."""
        for copy in copies:
            if copy is None:
                continue
            self._directory.dropped(copy.key, "copy_failed")
            self._gone(copy)
            if self._owners.lose(copy.key) is None:
                self._journal.dropped(copy.request_id, copy.group, copy.index, [copy.key], "copy_failed")

    def _gone(self, copy: Copy) -> None:
        if self.keeper is not None and not self.has(copy.key):
            self.keeper.gone(copy.key, copy.group, copy.index)

    def _copy_of_unknown(self, gpu_block_id: int) -> Copy | None:
        """A copy that vLLM ordered on a path of its own (a Mamba boundary, a partial tail): placed by what its hash
        covers."""
        gpu_pool = self._m._gpu_block_pool
        assert gpu_pool is not None
        block = gpu_pool.blocks[gpu_block_id]
        if block.block_hash is None:
            return None
        group = group_of(block.block_hash)
        size = self._m.group_block_sizes[group]
        index = max(0, -(-(block.block_hash_num_tokens or size) // size) - 1)
        return Copy(None, block.block_hash, group, index, None, is_restore=False, scheduled_step=0)

    # --- what lies in the tier --------------------------------------------------------------------------------------

    def drain_evictions(self, by_request_id: str | None, *, is_by_restore: bool = False) -> None:
        """Take note of hashes that left the tier since the last call, through blocks that `by_request_id` took."""
        evictions: list[Eviction] = []
        now = self._journal.clock.monotonic_ns()
        for block_id, key in self._observer.drain():
            copy = self._resident[block_id]
            self._resident[block_id] = None
            exchange = None if self.keeper is None else self.keeper.emptied(block_id)
            if copy is not None:
                self.num_resident -= 1
                self._num_copies[key] -= 1
                if self._num_copies[key]:
                    continue  # a twin still answers for this hash
                del self._num_copies[key]
            # A larger block may answer for it still, as for a boundary within: then nothing was lost.
            owner: str | None = None
            if not self.has(key):
                owned = self._owners.lose(key)
                owner = next(self._owners.owners_of(owned)) if owned else None
                age = now - copy.stored_ns if copy is not None and copy.stored_ns else None
                self._directory.evicted(key, Evicted(self.step, now, by_request_id, owner, age, is_by_restore))
                if copy is not None:
                    self._gone(copy)
            if copy is not None:
                evictions.append(Eviction(copy, owner, exchange))
        if evictions:
            self._num_evicted += len(evictions)
            self._journal.evicted(evictions, by_request_id, is_by_restore=is_by_restore)

    def take_num_evicted(self) -> int:
        """Hashes that were evicted since the last call."""
        count, self._num_evicted = self._num_evicted, 0
        return count

    def held(self, cpu_block_ids: Iterable[int]) -> list[Copy]:
        """What blocks of the tier hold."""
        copies = (self._resident[block_id] for block_id in cpu_block_ids)
        return [c for c in copies if c is not None]

    def loaded(
        self, request_id: str, cpu_block_ids: Iterable[int], scheduled_step: int, copy_ns_per_block: float | None
    ) -> None:
        """A request's CPU hits were copied back to the GPU."""
        copies = self.held(cpu_block_ids)
        for copy in copies:
            copy.num_loads += 1
        self._journal.load_done(request_id, copies, scheduled_step, copy_ns_per_block)

    def forget_orders(self) -> None:
        """What was chosen and not yet handed to the worker will not be."""
        self._chosen.clear()
        self.keys_in_flight.clear()

    def abandon_orders(self) -> None:
        """The tier is being reset: no copy will be registered. Those that the worker has still occupy their blocks."""
        self.forget_orders()
        self._abandoned_events.update(self._copies_of_event)
        self.num_abandoned = self.num_in_flight
        # By its end, an abandoned copy must not speak for a new one of the same content.
        self._copies_of_event = {event: [None] * len(copies) for event, copies in self._copies_of_event.items()}

    def recount_orders(self) -> None:
        """Forget what was chosen, keep what the worker has."""
        self.forget_orders()
        self.keys_in_flight.update(c.key for copies in self._copies_of_event.values() for c in copies if c is not None)

    def emptied(self) -> None:
        """The tier was reset: nothing can be found in it."""
        self._observer.drain()
        self._resident = [None] * len(self._resident)
        self._num_copies.clear()
        self._directory.reset()
        self._journal.cache_reset(self.num_resident)
        self.num_resident = 0
