"""The scheduler half: vLLM's `SimpleCPUOffloadScheduler` plus the re-store, and the story of both told to the journal.

Engine ring. Every decision of vLLM's own code stays vLLM's: with `enabled: false` the metadata that leaves here is byte for
byte what the stock class makes. A re-store is one more transfer in the stock queue of transfers that wait for the next step
(`_pending_finished_stores`), so its copy, its completion and its references go the stock way.

Each hook calls the stock method first or last and does its own work behind one broad `except`: a fault of ours is counted,
logged, shown, turns re-store off, and vLLM goes on as without us.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm.logger import init_logger
from vllm.v1.core.kv_cache_utils import (
    generate_block_hash_extra_keys,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
    resolve_block_hashes,
)
from vllm.v1.simple_kv_offload.manager import (
    BlockStoreMeta,
    SimpleCPUOffloadScheduler,
    StoreRequestState,
    TransferMeta,
)

from connector.admission import Admission
from connector.events import StepTaken
from connector.journal import Copy, Eviction, Journal, group_of, hash_of
from connector.observer import EvictionObserver
from connector.owners import OwnedBlock, OwnerIndex
from connector.policy import Policy, VersionedPolicy
from connector.recorder import Recorder, policy_applied
from connector.worker_meta import ReStoreWorkerMetadata

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

logger = init_logger("vllm.restore.scheduler")

MAX_FAILED_COPIES_IN_A_ROW = 10
OFF = Policy(enabled=False)



class Candidate(NamedTuple):
    """A block that may be copied again. `index` counts blocks of the group."""

    request_id: str
    group: int
    index: int
    key: bytes
    gpu_block_id: int


class ReStoreScheduler(SimpleCPUOffloadScheduler):
    """Stores, loads and looks up as vLLM does, and copies again what the CPU tier lost of requests that still run.

    Args:
        stock: a freshly built manager. Its state is taken over as it is, so that this class has no second idea of how vLLM
            sizes and builds its pools. `stock` must not be used afterwards.
        recorder: where the story goes.
    """

    def __init__(self, stock: SimpleCPUOffloadScheduler, recorder: Recorder) -> None:
        vars(self).update(vars(stock))
        assert not self._lazy_mode, "lazy mode stays stock"
        self._recorder = recorder
        pool = self.cpu_block_pool
        num_blocks = pool.num_gpu_blocks
        gpu_blocks = self.kv_cache_config.num_blocks
        self._block_bytes = self.cpu_kv_cache_config.kv_cache_tensors[0].size // num_blocks
        self._journal = Journal(
            recorder, self.hash_block_size, self._block_bytes, memory=65_536 + 4 * (num_blocks + gpu_blocks)
        )
        self._owners = OwnerIndex()
        self._evictions = EvictionObserver(self._fault)
        assert pool.metrics_collector is None
        pool.metrics_collector = self._evictions  # type: ignore[assignment]

        self._versioned = recorder.policy
        self._policy = recorder.policy.policy
        self._step = 0
        self._budget_left: int | None = self._policy.max_restore_blocks_per_step or None
        self._failed_in_a_row = 0
        # What lies in each CPU block that can be found, by block id.
        self._resident: list[Copy | None] = [None] * num_blocks
        # Copies that were chosen and not yet handed to the worker, by GPU block; then, by store event.
        self._chosen: dict[int, Copy] = {}
        self._copies_of_event: dict[int, list[Copy | None]] = {}
        self._keys_in_flight: set[bytes] = set()
        self._num_in_flight = 0
        self._completing: list[Copy | None] | None = None
        self._load_steps: dict[str, int] = {}
        self._failed_events: dict[int, str] = {}
        self._moves: list[tuple[str, int, int, int]] = []
        self._last_chooser: str | None = None
        self._num_evicted_in_step = 0
        self._num_resident = 0
        self._is_broken = False
        self._admission = Admission(pool.free_block_queue, self._owners)

    # --- hooks: requests --------------------------------------------------------------------------------------------

    def on_new_request(self, request: "Request") -> None:
        """The scheduler took a request in."""
        try:
            self._journal.request_started(request)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("on_new_request", e)

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        found = super().get_num_new_matched_tokens(request, num_computed_tokens)
        try:
            self._admission.tier_changed()  # a pin came or went
            self._journal.lookup_tried(request.request_id, num_computed_tokens)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("get_num_new_matched_tokens", e)
        return found

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        try:
            self._admission.tier_changed()
            self._owners.admit(request.request_id)
            self._journal.request_admitted(request, num_external_tokens)
            if request.request_id in self._reqs_to_load:
                self._load_steps.setdefault(request.request_id, self._recorder.step + 1)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("update_state_after_alloc", e)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        result = super().request_finished(request, block_ids)
        try:
            self._admission.tier_changed()
            self._owners.forget(request.request_id)
            self._journal.request_finished(request, request.status.name)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("request_finished", e)
        return result

    def _queue_finished_eager_store(self, request: "Request", block_ids: tuple[list[int], ...]) -> None:
        state = self._reqs_to_store.get(request.request_id)
        if state is None or state.finished or self._gpu_block_pool is None:
            super()._queue_finished_eager_store(request, block_ids)
            return
        try:
            if self._policy.enabled:
                self._restore_at_finish(state)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("restore_at_finish", e)
        super()._queue_finished_eager_store(request, block_ids)
        try:
            self._moves.clear()  # the request is over: nothing moves its cursor any more
            self._drain_evictions(request.request_id)
            self._report_dropped(state, block_ids)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("request_finished", e)

    # --- hooks: the step --------------------------------------------------------------------------------------------

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> "SimpleCPUOffloadMetadata":
        started_ns = time.perf_counter_ns()
        try:
            self._step, versioned = self._recorder.begin_step()
            if versioned is not self._versioned:
                self._obey(versioned)
            self._admission.begin_step()
            self._note_preemptions(scheduler_output)
            self._drain_evictions(None)
            if self._policy.enabled:
                self._restore(scheduler_output.preempted_req_ids or ())
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("restore", e)
        meta = super().build_connector_meta(scheduler_output)
        try:
            # What is chosen from here on, at the finish of a request, leaves with the next step and counts in its budget.
            self._budget_left = self._policy.max_restore_blocks_per_step or None
            self._drain_evictions(self._last_chooser)
            copies = self._note_store_event(meta) if meta.store_event >= 0 else []
            self._note_moves()
            self._note_step(scheduler_output, meta, copies, started_ns)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("build_connector_meta", e)
        return meta

    def _select_eager_blocks_to_store(
        self, state: StoreRequestState, block_ids_by_group: tuple[list[int], ...]
    ) -> tuple[list[int], list[int], list[dict[Any, Any]] | None]:
        if self._last_chooser is not None:
            try:
                self._drain_evictions(self._last_chooser)
            except Exception as e:  # noqa: BLE001 - boundary to vLLM
                self._fault("evictions", e)
        selected = super()._select_eager_blocks_to_store(state, block_ids_by_group)
        if not any(selected[1]):
            return selected  # no cursor moves: the usual case while a request decodes
        try:
            return self._review(state, block_ids_by_group, *selected)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("first_store", e)
            return selected

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        try:
            self._admission.tier_changed()
            self._note_worker_output(connector_output)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("update_connector_output", e)
        super().update_connector_output(connector_output)
        try:
            self._journal.note_first_tokens()
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("first_tokens", e)

    def _process_store_event(self, event_idx: int) -> None:
        copies = self._copies_of_event.pop(event_idx, [])
        is_live = event_idx in self._store_event_to_blocks
        failure = self._failed_events.pop(event_idx, None)
        self._num_in_flight -= len(copies)
        self._keys_in_flight.difference_update(c.key for c in copies if c is not None)
        if failure is not None and is_live:
            self._give_up_store(event_idx, copies, failure)
            return
        self._completing = copies
        try:
            super()._process_store_event(event_idx)
        finally:
            self._completing = None
        if is_live:
            try:
                self._failed_in_a_row = 0
                self._note_stored(copies)
            except Exception as e:  # noqa: BLE001 - boundary to vLLM
                self._fault("store_completion", e)

    def _process_store_completion(
        self, gpu_block_ids: list[int], cpu_block_ids: list[int], block_meta: list[dict[Any, Any]] | None = None
    ) -> None:
        """As stock, except that a copy is registered only under the hash that its source had when the copy was ordered.

        The source block is referenced while it is copied, so nobody can write to it; but its hash can be taken from it (a
        failed load withdraws it), and the stock code would stop the engine then.
        """
        assert self._gpu_block_pool is not None
        sources = [self._gpu_block_pool.blocks[bid] for bid in gpu_block_ids]
        copies: list[Copy | None] = self._completing or [None] * len(sources)
        good = [
            i
            for i, (source, copy) in enumerate(zip(sources, copies, strict=True))
            if source.block_hash is not None and (copy is None or source.block_hash == copy.key)
        ]
        if len(good) == len(sources):
            super()._process_store_completion(gpu_block_ids, cpu_block_ids, block_meta)
            return
        bad = sorted(set(range(len(sources))).difference(good))
        self._release_transfer_refs(TransferMeta([gpu_block_ids[i] for i in bad], [cpu_block_ids[i] for i in bad]))
        super()._process_store_completion(
            [gpu_block_ids[i] for i in good],
            [cpu_block_ids[i] for i in good],
            None if block_meta is None else [block_meta[i] for i in good],
        )

    def reset(self) -> bool:
        running = {r: s for r, s in self._reqs_to_store.items() if not s.finished} if self._policy.enabled else {}
        num_cached = self._num_resident
        is_reset = super().reset()
        try:
            self._forget_everything(is_reset)
            # Stock forgets running requests here for good; with re-store on they are stored again, from the start.
            for request_id, state in running.items():
                self._reqs_to_store[request_id] = StoreRequestState(
                    request=state.request, block_ids=state.block_ids, num_stored_blocks=[0] * len(state.block_ids)
                )
            if is_reset:
                self._journal.cache_reset(num_cached)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("reset", e)
        return is_reset

    # --- re-store ---------------------------------------------------------------------------------------------------

    def _restore(self, preempted: Iterable[str]) -> None:
        """Order copies of blocks that the CPU tier has lost of running requests, within the budget of the step."""
        if self._policy.mode == "rescan":
            self._restore_by_scan(preempted)
        elif self._owners.num_lost:
            if self._is_tight():
                self._restore_by_depth()
            else:
                self._restore_in_scan_order()

    def _restore_by_scan(self, preempted: Iterable[str]) -> None:
        """Walk every block below every cursor. The reference: what is found missing was evicted."""
        for request_id, state in self._reqs_to_store.items():
            if state.finished or request_id in preempted:
                continue
            room = self._room()
            if room <= 0:
                break
            chosen: list[Candidate] = []
            for candidate in self._scan(state):
                chosen.append(candidate)
                self._keys_in_flight.add(candidate.key)  # so that the same content on another block is not taken too
                if len(chosen) >= room:
                    break
            self._order_restore(chosen)

    def _restore_in_scan_order(self) -> None:
        """Take what was observed to be lost, in the order in which a scan would have met it, request by request."""
        current = 0
        chosen: list[Candidate] = []
        for number, block in self._owners.lost_in_scan_order():
            if chosen and number != current:
                self._order_restore(chosen)
                chosen = []
            if number < current or (number == current and not chosen):
                # Lost to a copy that was ordered just now: a scan would have passed it already. Its turn is the next step.
                continue
            if len(chosen) >= self._room():
                break
            candidate = self._locate(block)
            self._owners.find(block.key)
            if candidate is not None:
                current = number
                chosen.append(candidate)
        self._order_restore(chosen)

    def _restore_by_depth(self) -> None:
        """The tier is too small for what runs: repair the hole nearest a head first, and stop where nothing is gained."""
        walk = self._admission.walk()
        chosen: list[Candidate] = []
        for _, block in self._owners.lost_by_depth():
            if len(chosen) >= self._room():
                break
            candidate = self._locate(block)
            if candidate is not None:
                if not walk.admit(block.depth):
                    break
                chosen.append(candidate)
            self._owners.find(block.key)
        self._order_restore(chosen)

    def _restore_at_finish(self, state: StoreRequestState) -> None:
        """The last moment at which the request's lost blocks are still on the GPU."""
        if self._policy.mode == "rescan":
            candidates = self._scan(state)
            walk = None
        else:
            request_id = state.request.request_id
            found = (self._locate(block, request_id) for block in self._owners.lost_of(request_id))
            candidates = (c for c in found if c is not None)
            walk = self._admission.walk() if self._is_tight() else None
        room = self._room()
        chosen: list[Candidate] = []
        for candidate in candidates:
            if len(chosen) >= room:
                break
            if walk is not None and not walk.admit(self._depth(candidate.group, candidate.index)):
                break
            chosen.append(candidate)
            self._keys_in_flight.add(candidate.key)
        for candidate in chosen:
            self._owners.find(candidate.key)
        self._order_restore(chosen)

    def _room(self) -> int:
        """Blocks that may be re-stored now: what is free in the tier, and what is left of the step's budget."""
        free = self.cpu_block_pool.get_num_free_blocks()
        return free if self._budget_left is None else min(free, self._budget_left)

    def _is_tight(self) -> bool:
        """Whether running requests own more blocks than the tier can hold for them.

        Blocks that are pinned for a waiting request's load count as room that is taken; copies in flight are the running
        requests' own.
        """
        return len(self._owners) > self.cpu_block_pool.get_num_free_blocks() + self._num_in_flight

    def _scan(self, state: StoreRequestState) -> Iterator[Candidate]:
        """Blocks below the request's cursors that are on the GPU under the right hash and not in the CPU tier."""
        request_id = state.request.request_id
        for g in self._storable_groups:
            group_block_ids = state.block_ids[g]
            hashes = self._hashes_of(state.request, g)
            for i in range(min(state.num_stored_blocks[g], len(group_block_ids), len(hashes))):
                key = make_block_hash_with_group_id(hashes[i], g)
                if self._is_restorable(group_block_ids[i], key):
                    yield Candidate(request_id, g, i, key, group_block_ids[i])

    def _locate(self, block: OwnedBlock, only: str | None = None) -> Candidate | None:
        """The block on the GPU, through the first running request that still has it there, or None."""
        for request_id in (only,) if only is not None else self._owners.owners_of(block):
            state = self._reqs_to_store.get(request_id)
            if state is None or state.finished:
                continue
            group_block_ids = state.block_ids[block.group]
            if block.index < len(group_block_ids) and self._is_restorable(group_block_ids[block.index], block.key):
                return Candidate(request_id, block.group, block.index, block.key, group_block_ids[block.index])
        return None

    def _is_restorable(self, gpu_block_id: int, key: bytes) -> bool:
        assert self._gpu_block_pool is not None
        block = self._gpu_block_pool.blocks[gpu_block_id]
        # The hash is compared with what this position should hold: a block that left a sliding window may be someone else's.
        return (
            block.block_hash == key
            and not block.is_null
            and gpu_block_id not in self._in_flight_store_gpu_blocks
            and key not in self._keys_in_flight
            and self.cpu_block_pool.cached_block_hash_to_block.get_one_block(key) is None
        )

    def _order_restore(self, chosen: list[Candidate]) -> None:
        """Allocate the CPU blocks in one batch and queue the copy: it leaves with the step that is being built, or the next."""
        if not chosen:
            return
        assert self._gpu_block_pool is not None
        copies = [self._copy(c, is_restore=True) for c in chosen]
        block_meta = [self._kv_event_meta(c) for c in chosen] if self.enable_kv_cache_events else None
        gpu_block_ids = [c.gpu_block_id for c in chosen]
        # From here to the end nothing may fail: the references below are given back when the copy is done.
        cpu_blocks = self.cpu_block_pool.get_new_blocks(len(chosen))
        self._pending_finished_stores.append(
            TransferMeta(gpu_block_ids, [b.block_id for b in cpu_blocks], block_meta)
        )
        self._in_flight_store_gpu_blocks.update(gpu_block_ids)
        self._gpu_block_pool.touch([self._gpu_block_pool.blocks[bid] for bid in gpu_block_ids])
        self._keys_in_flight.update(c.key for c in chosen)
        self._chosen.update(zip(gpu_block_ids, copies, strict=True))
        if self._budget_left is not None:
            self._budget_left -= len(chosen)
        self._drain_evictions(chosen[0].request_id)

    # --- first stores -----------------------------------------------------------------------------------------------

    def _review(
        self,
        state: StoreRequestState,
        block_ids_by_group: tuple[list[int], ...],
        gpu_block_ids: list[int],
        advanced: list[int],
        block_meta: list[dict[Any, Any]] | None,
    ) -> tuple[list[int], list[int], list[dict[Any, Any]] | None]:
        """Look at what vLLM chose to store for one request, and at how far its cursors go.

        The cursor of a group moves to the absolute position up to which its blocks were looked at; re-stores walk old ground
        and never move it. With re-store on, two things are changed: content that is on its way already is not copied a second
        time, and while the tier is too small for what runs, `tracked` stores nothing that would cost a running request a block
        nearer its head: the cursor stays before it.
        """
        request = state.request
        request_id = request.request_id
        self._journal.tell_chain(request)
        order = {block_id: n for n, block_id in enumerate(gpu_block_ids)}
        kept: list[Candidate] = []
        may_refuse = self._policy.enabled and self._policy.mode == "tracked" and self._is_tight()
        walk = self._admission.walk() if may_refuse and order else None
        reviewed = list(advanced)
        for g, count in enumerate(advanced):
            if not count:
                continue
            start = state.num_stored_blocks[g]
            hashes = self._hashes_of(request, g)
            end = start + count
            for i in range(start, end):
                found = self._gpu_block_at(block_ids_by_group[g][i], hashes, i, g)
                if found is None:
                    continue
                gpu_block_id, key = found
                if gpu_block_id in order:
                    is_twin = self._policy.enabled and key in self._keys_in_flight
                    if not is_twin:
                        if walk is not None and not walk.admit(self._depth(g, i)):
                            end = i
                            break
                        self._keys_in_flight.add(key)
                        kept.append(Candidate(request_id, g, i, key, gpu_block_id))
                self._owners.own(request_id, g, i, self._depth(g, i), key)
            reviewed[g] = end - start
            if end > start:
                self._moves.append((request_id, g, start, end))
        self._chosen.update((c.gpu_block_id, self._copy(c, is_restore=False)) for c in kept)
        if kept:
            self._last_chooser = request_id
        if len(kept) == len(gpu_block_ids):
            return gpu_block_ids, advanced, block_meta
        return (
            [c.gpu_block_id for c in kept],
            reviewed,
            None if block_meta is None else [block_meta[order[c.gpu_block_id]] for c in kept],
        )

    def _gpu_block_at(self, gpu_block_id: int, hashes: "BlockHashList", index: int, group: int) -> tuple[int, bytes] | None:
        """(GPU block id, key) of a request's block at one position; None where it can never be hit."""
        assert self._gpu_block_pool is not None
        if index >= len(hashes):
            return None
        block = self._gpu_block_pool.blocks[gpu_block_id]
        if block.is_null:
            # It left the window before it was stored. Stock takes it from the free queue while its hash is still there.
            recovered = self._cached_gpu_block(hashes, index, group)
            return None if recovered is None else (recovered.block_id, make_block_hash_with_group_id(hashes[index], group))
        key = block.block_hash
        if key is None or hash_of(key) != hashes[index]:
            return None
        return gpu_block_id, key

    # --- notes ------------------------------------------------------------------------------------------------------

    def _obey(self, versioned: VersionedPolicy) -> None:
        self._versioned = versioned
        self._policy = versioned.policy
        self._budget_left = self._policy.max_restore_blocks_per_step or None
        self._failed_in_a_row = 0
        if self._is_broken:
            # Someone looked at the fault and asked again. What was noted before it cannot be trusted.
            self._is_broken = False
            self._owners.clear()
            self._chosen.clear()
            self._keys_in_flight = {c.key for copies in self._copies_of_event.values() for c in copies if c is not None}
            for state in self._reqs_to_store.values():
                if not state.finished:
                    self._own_again(state)

    def _own_again(self, state: StoreRequestState) -> None:
        request_id = state.request.request_id
        for g in self._storable_groups:
            hashes = self._hashes_of(state.request, g)
            for i in range(min(state.num_stored_blocks[g], len(state.block_ids[g]), len(hashes))):
                key = make_block_hash_with_group_id(hashes[i], g)
                self._owners.own(request_id, g, i, self._depth(g, i), key)
                if self.cpu_block_pool.cached_block_hash_to_block.get_one_block(key) is None:
                    self._owners.lose(key)

    def _fault(self, origin: str, error: Exception) -> None:
        """Something of ours failed: say so, and be stock until someone changes the policy."""
        logger.exception("Re-store is off after a fault in %s: %s", origin, error)
        try:
            self._is_broken = True
            self._journal.fault(origin, f"{type(error).__name__}: {error}")
            self._turn_off()
        except Exception:  # noqa: BLE001 - boundary to vLLM, and the log itself may be what failed
            logger.exception("The fault could not be written to the log")

    def _turn_off(self) -> None:
        if self._policy.enabled:
            self._policy = OFF
            self._budget_left = None
            off = VersionedPolicy(self._versioned.version, replace(self._versioned.policy, enabled=False))
            self._recorder.record(policy_applied(off, is_idle=False, reason="fault"))

    def _note_preemptions(self, scheduler_output: "SchedulerOutput") -> None:
        for request_id in scheduler_output.preempted_req_ids or ():
            self._owners.disown(request_id)
            self._admission.tier_changed()
            state = self._reqs_to_store.get(request_id)
            if state is not None:
                self._journal.request_preempted(state.request)

    def _note_store_event(self, meta: "SimpleCPUOffloadMetadata") -> list[Copy | None]:
        copies: list[Copy | None] = []
        for gpu_block_id, cpu_block_id in zip(meta.store_gpu_blocks, meta.store_cpu_blocks, strict=True):
            copy = self._chosen.pop(gpu_block_id, None) or self._copy_of_unknown(gpu_block_id)
            if copy is not None:
                copy.cpu_block_id = cpu_block_id
                copy.scheduled_step = self._step
                self._keys_in_flight.add(copy.key)
            copies.append(copy)
        self._copies_of_event[meta.store_event] = copies
        self._num_in_flight += len(copies)
        return copies

    def _note_stored(self, copies: list[Copy | None]) -> None:
        now = time.monotonic_ns()
        done: list[Copy] = []
        for copy in copies:
            if copy is None:
                continue
            if self.cpu_block_pool.blocks[copy.cpu_block_id].block_hash != copy.key:
                self._journal.dropped(copy.request_id, copy.group, copy.index, 1, "rehashed")
                continue
            copy.stored_ns = now
            self._resident[copy.cpu_block_id] = copy
            self._num_resident += 1
            self._owners.find(copy.key)
            done.append(copy)
        self._journal.copies_done(done)

    def _give_up_store(self, event_idx: int, copies: list[Copy | None], message: str) -> None:
        """A worker could not copy: nothing is registered, every reference goes back, and the blocks may be copied again."""
        transfer = self._store_event_to_blocks.pop(event_idx)
        self._in_flight_store_gpu_blocks.difference_update(transfer.gpu_block_ids)
        self._release_transfer_refs(transfer)
        for request_id in self._store_event_to_reqs.pop(event_idx, []):
            state = self._reqs_to_store.get(request_id)
            if state is not None:
                state.store_events.discard(event_idx)
                if state.finished and not state.store_events:
                    self._cleanup_store_request(request_id)
        try:
            self._failed_in_a_row += 1
            self._journal.fault("copy", message)
            for copy in copies:
                if copy is not None and self._owners.lose(copy.key) is None:
                    self._journal.dropped(copy.request_id, copy.group, copy.index, 1, "copy_failed")
            if self._failed_in_a_row >= MAX_FAILED_COPIES_IN_A_ROW:
                logger.error("Re-store is off: %d copies to the CPU tier failed in a row", self._failed_in_a_row)
                self._turn_off()
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("copy", e)

    def _note_worker_output(self, connector_output: "KVConnectorOutput") -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, ReStoreWorkerMetadata):
            self._failed_events.update(meta.failed_store_events)
        for request_id in connector_output.finished_recving or ():
            load = self._reqs_to_load.get(request_id) or self._abandoned_reqs_to_load.get(request_id)
            step = self._load_steps.pop(request_id, self._step)
            if load is None or load.load_event is None:
                continue
            failed = connector_output.invalid_block_ids
            if failed and failed.intersection(load.transfer_meta.gpu_block_ids):
                self._journal.fault("load", f"loading {len(failed)} blocks for {request_id} failed; they are computed again")
                continue
            copies = (self._resident[block_id] for block_id in load.transfer_meta.cpu_block_ids)
            self._journal.load_done(request_id, [c for c in copies if c is not None], step)

    def _drain_evictions(self, by_request_id: str | None) -> None:
        """Take note of hashes that left the tier since the last call, through a block that `by_request_id` wanted."""
        evictions: list[Eviction] = []
        for block_id, key in self._evictions.drain():
            copy = self._resident[block_id]
            self._resident[block_id] = None
            self._num_resident -= copy is not None
            if self.cpu_block_pool.cached_block_hash_to_block.get_one_block(key) is not None:
                continue  # another block of the tier still answers for this hash
            owned = self._owners.lose(key)
            if copy is not None:
                evictions.append(Eviction(copy, next(self._owners.owners_of(owned)) if owned else None))
        if evictions:
            self._num_evicted_in_step += len(evictions)
            self._journal.evicted(evictions, by_request_id)
        self._last_chooser = None

    def _note_moves(self) -> None:
        for move in self._moves:
            self._journal.cursor_moved(*move)
        self._moves.clear()

    def _note_step(
        self,
        scheduler_output: "SchedulerOutput",
        meta: "SimpleCPUOffloadMetadata",
        copies: list[Copy | None],
        started_ns: int,
    ) -> None:
        num_evicted, self._num_evicted_in_step = self._num_evicted_in_step, 0
        if not self._journal.wants_step(is_quiet=not (copies or meta.load_gpu_blocks or num_evicted)):
            return
        num_restored = sum(1 for c in copies if c is not None and c.is_restore)
        num_used = self._num_resident + self._num_in_flight
        assert self._gpu_block_pool is not None
        self._journal.step_taken(
            StepTaken(
                num_running=len(scheduler_output.num_scheduled_tokens),
                num_scheduled_tokens=scheduler_output.total_num_scheduled_tokens,
                num_stored=len(copies) - num_restored,
                num_restored=num_restored,
                num_loaded=len(meta.load_gpu_blocks),
                num_evicted=num_evicted,
                num_restorable=self._owners.num_lost,
                cpu_blocks_free=self.cpu_block_pool.num_gpu_blocks - 1 - num_used,
                cpu_blocks_cached=self._num_resident,
                cpu_blocks_in_flight=self._num_in_flight,
                gpu_blocks_free=self._gpu_block_pool.get_num_free_blocks(),
                hook_ns=time.perf_counter_ns() - started_ns,
            )
        )

    def _report_dropped(self, state: StoreRequestState, block_ids: tuple[list[int], ...]) -> None:
        """Say what a finished request leaves on the GPU without a copy, and why."""
        request = state.request
        if self.cpu_block_pool.get_num_free_blocks() == 0:
            reason = "cpu_full"
        elif self._budget_left == 0:
            reason = "budget"
        else:
            reason = "no_gain"
        confirmed = request.num_computed_tokens - request.num_output_placeholders
        for g in self._storable_groups:
            cacheable = self.cpu_coordinator.get_num_cacheable_tokens(confirmed, g)
            hashes = self._hashes_of(request, g)
            ready = min(len(block_ids[g]), cacheable // self.group_block_sizes[g], len(hashes))
            left: list[int] = []
            for i in range(state.num_stored_blocks[g], ready):
                found = self._gpu_block_at(block_ids[g][i], hashes, i, g)
                if found is not None and self._is_restorable(*found):
                    left.append(i)
            if left:
                self._journal.dropped(request.request_id, g, left[0], len(left), reason)
        if self._policy.enabled:
            lost = [b for b in self._owners.lost_of(request.request_id) if isinstance(b.owners, str)]
            if lost:
                self._journal.dropped(request.request_id, lost[0].group, lost[0].index, len(lost), reason)

    def _forget_everything(self, is_reset: bool) -> None:
        self._owners.clear()
        self._chosen.clear()
        self._moves.clear()
        self._keys_in_flight.clear()
        self._admission.tier_changed()
        if is_reset:
            self._resident = [None] * len(self._resident)
            self._num_resident = 0

    # --- small things -----------------------------------------------------------------------------------------------

    @cached_property
    def _storable_groups(self) -> tuple[int, ...]:
        """Groups whose block tables only grow, so that a position names a block."""
        managers = self.cpu_coordinator.single_type_managers
        return tuple(g for g in sorted(self.prefix_cacheable_group_ids) if managers[g].has_positionally_stable_blocks)

    def _hashes_of(self, request: "Request", group: int) -> "BlockHashList":
        return resolve_block_hashes(request.block_hashes, self.hash_block_size, self.group_block_sizes[group])

    def _depth(self, group: int, index: int) -> int:
        """Tokens before a block, so that blocks of groups with different block sizes compare."""
        return index * self.group_block_sizes[group]

    def _copy(self, c: Candidate, *, is_restore: bool) -> Copy:
        hashes = self._hashes_of(self._reqs_to_store[c.request_id].request, c.group)
        parent = hashes[c.index - 1] if c.index else None
        return Copy(c.request_id, c.key, c.group, c.index, parent, is_restore, self._step)

    def _copy_of_unknown(self, gpu_block_id: int) -> Copy | None:
        """A copy that vLLM ordered on a path of its own (a Mamba boundary, a partial tail): placed by what its hash covers."""
        assert self._gpu_block_pool is not None
        block = self._gpu_block_pool.blocks[gpu_block_id]
        if block.block_hash is None:
            return None
        group = group_of(block.block_hash)
        size = self.group_block_sizes[group]
        index = max(0, -(-(block.block_hash_num_tokens or size) // size) - 1)
        return Copy(None, block.block_hash, group, index, None, False, self._step)

    def _kv_event_meta(self, c: Candidate) -> dict[Any, BlockStoreMeta]:
        """What vLLM's `BlockStored` event says about a re-stored block."""
        request = self._reqs_to_store[c.request_id].request
        hashes = self._hashes_of(request, c.group)
        start = self._depth(c.group, c.index)
        end = start + self.group_block_sizes[c.group]
        lora = request.lora_request
        extra_keys, _ = generate_block_hash_extra_keys(request, start, end, 0)
        return {
            c.key: BlockStoreMeta(
                token_ids=list(request.all_token_ids[start:end]),
                parent_block_hash=maybe_convert_block_hash(hashes[c.index - 1]) if c.index else None,
                lora_id=lora.adapter_id if lora else None,
                lora_name=lora.name if lora else None,
                extra_keys=extra_keys,
            )
        }
