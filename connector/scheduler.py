"""The scheduler half: vLLM's `SimpleCPUOffloadScheduler` plus the re-store, and the story of both told to the journal.

Engine ring. Every decision of vLLM's own code stays vLLM's: with `enabled: false` and `retention: lru` the metadata
that leaves here is byte for byte what the stock class makes. A re-store is one more transfer in the stock queue of
transfers that wait for the next step, so its copy, its completion and its references go the stock way.

Each hook calls the stock method and does its own work behind one broad `except`: a fault of ours is counted, logged,
shown, turns re-store off, and vLLM goes on as without us.
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm.logger import init_logger
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler, StoreRequestState, TransferMeta

from connector.directory import Directory
from connector.engine_row import policy_applied
from connector.events import StepTaken
from connector.journal import Copy, Journal
from connector.keeper import Keeper
from connector.layout import Layout
from connector.lookups import Lookups
from connector.observer import EvictionObserver
from connector.owners import OwnerIndex
from connector.policy import Policy, VersionedPolicy
from connector.ready import only_ready
from connector.recorder import Pen
from connector.restore import Restorer, Selection
from connector.tier import Tier
from connector.timing import CopyTimes, PreviousStep
from connector.worker_meta import ReStoreWorkerMetadata

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.outputs import KVConnectorOutput
    from vllm.v1.request import Request
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

logger = init_logger("vllm.restore.scheduler")

MAX_FAILED_COPIES_IN_A_ROW = 10
OFF = Policy(enabled=False)
# Hashes that the log was told, remembered so that each is told once: this many, and four for each block of both pools.
HASH_MEMORY = 65_536


def directory_capacity(manager: SimpleCPUOffloadScheduler) -> int:
    """How many hashes an engine remembers to have seen."""
    return HASH_MEMORY + 4 * (manager.cpu_block_pool.num_gpu_blocks + manager.kv_cache_config.num_blocks)


_stock_select = SimpleCPUOffloadScheduler._select_eager_blocks_to_store


class ReStoreScheduler(SimpleCPUOffloadScheduler):
    """Stores, loads and looks up as vLLM does, and copies again what the CPU tier lost of requests that still run.

    Args:
        stock: a freshly built manager. Its state is taken over as it is, so that this class has no second idea of how
        vLLM
            sizes and builds its pools. `stock` must not be used afterwards.
        recorder: where the story goes.
    """

    def __init__(self, stock: SimpleCPUOffloadScheduler, recorder: Pen) -> None:
        vars(self).update(vars(stock))
        assert not self._lazy_mode, "lazy mode stays stock"
        pool = self.cpu_block_pool
        assert pool.metrics_collector is None
        num_blocks = pool.num_gpu_blocks
        block_bytes = self.cpu_kv_cache_config.kv_cache_tensors[0].size // num_blocks
        memory = directory_capacity(self)
        self._recorder = recorder
        self._versioned = recorder.policy
        self._directory = Directory(memory, len(self.group_block_sizes))
        self._journal = Journal(recorder, self._directory, self.hash_block_size, block_bytes, memory)
        self._owners = OwnerIndex()
        observer = EvictionObserver(self._fault)
        pool.metrics_collector = observer  # type: ignore[assignment]
        layout = Layout(self)
        self._tier = Tier(self, observer, self._owners, self._directory, self._journal)
        self._lookups = Lookups(self, layout, self._tier, self._directory, self._journal)
        self._stored_groups = [(g, layout.block_sizes[g]) for g in layout.groups]
        self._restorer = Restorer(self, layout, self._owners, self._tier, self._journal, self._versioned.policy)
        self._is_broken = False
        self._faulty: set[str] = set()
        self._failed_in_a_row = 0
        self._failed_events: dict[int, str] = {}
        self._failed_loads: set[str] = set()
        self._completing: list[Copy | None] | None = None
        self._load_steps: dict[str, int] = {}
        self._copy_times = CopyTimes()
        self._previous = PreviousStep()
        self._layout = layout
        self._keep(recorder.policy.policy)

    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        """vLLM's scheduler has built its block tables."""
        managers = kv_cache_manager.coordinator.single_type_managers
        tables = [manager.req_to_blocks for manager in managers]
        self._restorer.bind_block_tables(tables)
        self._lookups.bind_block_tables(tables)

    # --- hooks: requests --------------------------------------------------------------------------------------------

    def on_new_request(self, request: "Request") -> None:
        """The scheduler took a request in."""
        try:
            self._lookups.arrived(request)
            self._journal.request_started(request)
            if self._restorer.keeper is not None:
                self._restorer.keeper.arrived(request)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("on_new_request", e)

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int) -> tuple[int | None, bool]:
        had_pin = request.request_id in self._pending_cpu_hits
        found = super().get_num_new_matched_tokens(request, num_computed_tokens)
        try:
            if had_pin:
                self._restorer.tier_changed()
            self._journal.lookup_tried(request, num_computed_tokens, found[0] or 0)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("get_num_new_matched_tokens", e)
        return found

    def update_state_after_alloc(self, request: "Request", blocks: "KVCacheBlocks", num_external_tokens: int) -> None:
        super().update_state_after_alloc(request, blocks, num_external_tokens)
        try:
            self._restorer.tier_changed()
            self._owners.admit(request.request_id)
            if self._restorer.keeper is not None:
                self._restorer.keeper.began(request.request_id)
            self._lookups.admitted(request, num_external_tokens)
            if request.request_id in self._reqs_to_load:
                # The load leaves with the metadata of the step that is being scheduled.
                self._load_steps.setdefault(request.request_id, self._recorder.step + 1)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("update_state_after_alloc", e)

    def request_finished(self, request: "Request", block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        result = super().request_finished(request, block_ids)
        try:
            self._restorer.tier_changed()
            self._owners.forget(request.request_id)
            if self._restorer.keeper is not None:
                self._restorer.keeper.ended(request)
            self._journal.request_finished(request, request.status.name)
            self._lookups.ended(request.request_id)
            if request.request_id not in self._reqs_to_load:
                self._load_steps.pop(request.request_id, None)  # its load was never handed to a worker
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("request_finished", e)
        return result

    def _queue_finished_eager_store(self, request: "Request", block_ids: tuple[list[int], ...]) -> None:
        state = self._reqs_to_store.get(request.request_id)
        if state is None or state.finished or self._gpu_block_pool is None:
            super()._queue_finished_eager_store(request, block_ids)
            return
        try:
            self._tier.drain_evictions(None)  # what was lost since the last step is lost here too
            if self._restorer.keeper is not None:
                self._restorer.keeper.begin_batch()
                self._restorer.keeper.ask_again(request.request_id)
            if self._restorer.policy.enabled:
                self._restorer.restore_at_finish(state)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("restore_at_finish", e)
        super()._queue_finished_eager_store(request, block_ids)
        try:
            self._restorer.moves.clear()  # the request is over: nothing moves its cursor any more
            self._tier.drain_evictions(request.request_id)
            if self._restorer.keeper is not None:
                self._restorer.keeper.begin_batch()
            self._restorer.report_dropped(state, block_ids)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("request_finished", e)

    # --- hooks: the step --------------------------------------------------------------------------------------------

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> "SimpleCPUOffloadMetadata":
        started_ns, now_ns = time.perf_counter_ns(), self._recorder.clock.monotonic_ns()
        shown = scheduler_output
        try:
            step, versioned = self._recorder.begin_step()
            self._restorer.begin_step(step)
            self._tier.step = step
            if versioned is not self._versioned:
                self._obey(versioned)
            self._journal.note_waiting()
            self._note_preemptions(scheduler_output)
            self._tier.drain_evictions(None)
            if self._restorer.policy.enabled:
                self._restorer.restore(scheduler_output.preempted_req_ids or ())
            shown = only_ready(scheduler_output, self._reqs_to_store, self._stored_groups)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("restore", e)
        meta = super().build_connector_meta(shown)
        try:
            # What is chosen from here on, at the finish of a request, leaves with the next step and counts in its
            # budget.
            self._restorer.refill()
            self._drain_evictions()
            if self._restorer.keeper is not None:
                self._restorer.keeper.begin_batch()
            copies = self._tier.copies_ordered(meta, self._restorer.step)
            for move in self._restorer.moves:
                self._journal.cursor_moved(*move)
            self._restorer.moves.clear()
            self._note_step(scheduler_output, meta, copies, started_ns, now_ns)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("build_connector_meta", e)
        return meta

    def _select_eager_blocks_to_store(
        self, state: StoreRequestState, block_ids_by_group: tuple[list[int], ...]
    ) -> Selection:
        # A request is shown when it got blocks, too, and what it computed need not be confirmed: seeing that none of
        # its blocks has become ready costs a fraction of what stock's own look does, and the answer is the same.
        request, stored = state.request, state.num_stored_blocks
        confirmed = request.num_computed_tokens - request.num_output_placeholders
        for g, size in self._stored_groups:
            if confirmed >= (stored[g] + 1) * size:
                break
        else:
            return [], [0] * len(stored), [] if self.enable_kv_cache_events else None
        try:
            if self._restorer.last_chooser is not None:
                self._drain_evictions()
            if not state.request.resumable and self._restorer.must_wait(state):
                return [], [0] * len(block_ids_by_group), [] if self.enable_kv_cache_events else None
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("first_store", e)
        selection = _stock_select(self, state, block_ids_by_group)
        if not any(selection[1]) or state.request.resumable:
            # No cursor moves: the usual case while a request decodes. Or a session of streamed inputs, whose block
            # table stock appends anew with each input: a position names no block there, so all is left to stock.
            return selection
        try:
            return self._restorer.review(state, block_ids_by_group, selection)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("first_store", e)
            return selection

    def update_connector_output(self, connector_output: "KVConnectorOutput") -> None:
        try:
            if connector_output.kv_connector_worker_meta is not None or connector_output.finished_recving:
                self._restorer.tier_changed()
            self._note_worker_output(connector_output)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("update_connector_output", e)
        super().update_connector_output(connector_output)
        try:
            self._journal.note_first_tokens()
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("first_tokens", e)

    def _process_store_event(self, event_idx: int) -> None:
        is_live = event_idx in self._store_event_to_blocks
        failure = self._failed_events.pop(event_idx, None)
        copies: list[Copy | None] = []
        copy_ns: int | None = None
        try:
            copies = self._tier.copies_over(event_idx)
            copy_ns = self._copy_times.take_store(event_idx)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("store_completion", e)
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
                self._tier.copies_found(copies, copy_ns)
            except Exception as e:  # noqa: BLE001 - boundary to vLLM
                self._fault("store_completion", e)

    def _process_store_completion(
        self, gpu_block_ids: list[int], cpu_block_ids: list[int], block_meta: list[dict[Any, Any]] | None = None
    ) -> None:
        """As stock, except that a copy is registered only under the hash that its source had when the copy was ordered.

        The source block is referenced while it is copied, so nobody can write to it; but its hash can be taken from
        it (a failed load withdraws it), and the stock code would stop the engine then.
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
        is_ours = self._restorer.policy.enabled or self._restorer.keeper is not None
        running = dict(self._reqs_to_store) if is_ours else {}
        is_reset = super().reset()
        try:
            self._owners.clear()
            self._tier.abandon_orders()
            self._restorer.moves.clear()
            self._restorer.tier_changed()
            # Stock forgets running requests here for good; with re-store on they are stored again, from the start.
            for request_id, state in running.items():
                if not state.finished and not state.request.resumable:
                    self._reqs_to_store[request_id] = StoreRequestState(
                        request=state.request, block_ids=state.block_ids, num_stored_blocks=[0] * len(state.block_ids)
                    )
            if is_reset:
                self._tier.emptied()
            self._keep(self._restorer.policy)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("reset", e)
        return is_reset

    # --- policy and faults ------------------------------------------------------------------------------------------

    def _obey(self, versioned: VersionedPolicy) -> None:
        self._versioned = versioned
        self._restorer.obey(versioned.policy)
        if (self._restorer.keeper is not None) != (versioned.policy.retention == "adaptive"):
            self._keep(versioned.policy)
        self._failed_in_a_row = 0
        if self._is_broken:
            # Someone looked at the fault and asked again. What was noted before it cannot be trusted.
            self._is_broken = False
            self._faulty.clear()
            self._tier.recount_orders()
            self._restorer.own_again()

    def _seconds(self) -> float:
        return self._recorder.clock.monotonic_ns() / 1e9

    def _keep(self, policy: Policy) -> None:
        """Begin to keep the tier by chains, or anew, or leave it to vLLM's order, as the policy says."""
        keeper, old = None, self._restorer.keeper
        if policy.retention == "adaptive":
            reason = Keeper.why_not(self, self._layout)
            if reason is None:
                keeper = Keeper(self, self._layout, self._seconds, self._journal.reason, old)
            else:
                logger.warning("Retention stays lru: %s", reason)
        self._restorer.keeper = self._tier.keeper = keeper

    def _fault(self, origin: str, error: Exception) -> None:
        """Something of ours failed: say so, and be stock until someone changes the policy."""
        try:
            self._is_broken = True
            self._turn_off()
            if origin in self._faulty:
                self._journal.num_faults += 1  # it would be said in every step; the next one that is said counts it
                return
            self._faulty.add(origin)
            logger.exception("Re-store is off after a fault in %s: %s", origin, error)
            self._journal.fault(origin, f"{type(error).__name__}: {error}")
        except Exception:
            logger.exception("The fault could not be written to the log")

    def _turn_off(self) -> None:
        if self._restorer.policy.enabled or self._restorer.keeper is not None:
            self._restorer.obey(OFF)
            self._keep(OFF)
            off = VersionedPolicy(
                self._versioned.version, replace(self._versioned.policy, enabled=False, retention="lru")
            )
            self._recorder.record(policy_applied(off, is_idle=False, reason="fault"))

    def _give_up_store(self, event_idx: int, copies: list[Copy | None], message: str) -> None:
        """A worker could not copy: nothing is registered, every reference goes back, and the blocks may be copied
        again."""
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
            self._tier.copies_lost(copies)
            if self._failed_in_a_row >= MAX_FAILED_COPIES_IN_A_ROW and self._restorer.policy.enabled:
                logger.error("Re-store is off: %d copies to the CPU tier failed in a row", self._failed_in_a_row)
                self._turn_off()
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._fault("copy", e)

    # --- notes ------------------------------------------------------------------------------------------------------

    def _drain_evictions(self) -> None:
        """Evictions since the last look were made by the request whose blocks were allocated since."""
        chooser, self._restorer.last_chooser = self._restorer.last_chooser, None
        self._tier.drain_evictions(chooser)

    def _note_preemptions(self, scheduler_output: "SchedulerOutput") -> None:
        for request_id in scheduler_output.preempted_req_ids or ():
            self._owners.disown(request_id)
            self._restorer.tier_changed()
            state = self._reqs_to_store.get(request_id)
            if state is not None:
                self._journal.request_preempted(state.request)

    def _note_worker_output(self, connector_output: "KVConnectorOutput") -> None:
        meta = connector_output.kv_connector_worker_meta
        if isinstance(meta, ReStoreWorkerMetadata):
            self._failed_events.update(meta.failed_store_events)
            self._copy_times.note(meta)
        # One rank may say that a load failed steps before the last one says that it is over.
        loads = self._reqs_to_load.keys() | self._abandoned_reqs_to_load.keys()
        self._failed_loads.update(loads & connector_output.failed_recving)
        if connector_output.invalid_block_ids:
            for request_id, load in (*self._reqs_to_load.items(), *self._abandoned_reqs_to_load.items()):
                if not connector_output.invalid_block_ids.isdisjoint(load.transfer_meta.gpu_block_ids):
                    self._failed_loads.add(request_id)
        for request_id in connector_output.finished_recving or ():
            load = self._reqs_to_load.get(request_id) or self._abandoned_reqs_to_load.get(request_id)
            step = self._load_steps.pop(request_id, self._restorer.step)
            if load is None or load.load_event is None:
                continue
            if request_id in self._failed_loads:
                self._failed_loads.discard(request_id)
                self._journal.fault("load", f"loading blocks for {request_id} failed")
                # What could not be loaded once must not be found again: the request would be given the same blocks
                # for ever.
                self.cpu_block_pool.evict_blocks(set(load.transfer_meta.cpu_block_ids))
                self._tier.drain_evictions(None)
            else:
                per_block = self._copy_times.load_ns_per_block(load.load_event)
                self._tier.loaded(request_id, load.transfer_meta.cpu_block_ids, step, per_block)
        if self._copy_times.loads:
            loads = (*self._reqs_to_load.values(), *self._abandoned_reqs_to_load.values())
            over = connector_output.finished_recving or ()
            self._copy_times.keep_loads({s.load_event for s in loads if s.request.request_id not in over})

    def _note_step(
        self,
        scheduler_output: "SchedulerOutput",
        meta: "SimpleCPUOffloadMetadata",
        copies: list[Copy | None],
        started_ns: int,
        now_ns: int,
    ) -> None:
        num_evicted = self._tier.take_num_evicted()
        num_running, num_tokens = (
            len(scheduler_output.num_scheduled_tokens),
            scheduler_output.total_num_scheduled_tokens,
        )
        previous = self._previous
        self._previous = PreviousStep(now_ns, num_tokens, num_running)
        was_idle, self._journal.was_idle = self._journal.was_idle, False
        if was_idle:
            previous = PreviousStep()
        if not self._journal.wants_step(
            is_quiet=not (copies or meta.load_gpu_blocks or num_evicted or previous.is_prefill)
        ):
            return
        num_restored = sum(1 for c in copies if c is not None and c.is_restore)
        num_resident, num_in_flight = self._tier.num_resident, self._tier.num_in_flight
        assert self._gpu_block_pool is not None
        self._journal.step_taken(
            StepTaken(
                num_running=num_running,
                num_scheduled_tokens=num_tokens,
                num_stored=len(copies) - num_restored,
                num_restored=num_restored,
                num_loaded=len(meta.load_gpu_blocks),
                num_evicted=num_evicted,
                num_restorable=self._owners.num_lost,
                cpu_blocks_free=self.cpu_block_pool.num_gpu_blocks - 1 - num_resident - num_in_flight,
                cpu_blocks_cached=num_resident,
                cpu_blocks_in_flight=num_in_flight,
                gpu_blocks_free=self._gpu_block_pool.get_num_free_blocks(),
                hook_ns=time.perf_counter_ns() - started_ns,
                previous_ns=previous.ns_until(now_ns),
                previous_tokens=previous.num_tokens,
                previous_running=previous.num_running,
                num_forgotten=self._directory.num_forgotten,
            )
        )
