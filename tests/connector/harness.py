"""vLLM's real Scheduler, KV-cache manager, block pools and this connector, without a model: the worker is simulated.

What is simulated is the machine: the forward pass writes, into each block that it fills, the bytes that belong there,
and copies really move bytes between small memories, after a delay, in an order and with failures that the test
chooses. Everything that decides is the real thing.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from configs import BLOCK, full_attention, kv_cache_config, mamba, ring_buffer, sliding_window, vllm_config
from machine import Conditions, CopyTask, Memory, Over, Worker, unfinished
from sqlalchemy import text
from vllm.config import KVTransferConfig, VllmConfig
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiConnector,
    MultiKVConnectorMetadata,
    MultiKVConnectorWorkerMetadata,
)
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import (
    get_request_block_hasher,
    init_none_hash,
    make_block_hash_with_group_id,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import KVCacheSpec, MambaSpec
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.structured_output import StructuredOutputManager

from connector import log
from connector.kv_connector import ReStoreConnector
from connector.plugin import register
from connector.policy import Policy
from connector.scheduler import ReStoreScheduler
from connector.worker_meta import ReStoreWorkerMetadata

__all__ = ["BLOCK", "Engine", "Step", "full_attention", "mamba", "prompt", "ring_buffer", "sliding_window"]

OURS = "ReStoreConnector"
STOCK = "SimpleCPUOffloadConnector"
WRONG_DRAFT = 3
TURN_IS_OVER = (RequestStatus.WAITING, RequestStatus.WAITING_FOR_STREAMING_REQ)


@dataclass
class Step:
    """What one step ordered. `meta`: of the connector under test; `metas`: of each child of a `MultiConnector`."""

    output: SchedulerOutput
    metas: tuple[SimpleCPUOffloadMetadata, ...]
    meta: SimpleCPUOffloadMetadata

    @property
    def scheduled(self) -> dict[str, int]:
        return self.output.num_scheduled_tokens


@dataclass
class _Pass:
    """One request's part of a forward pass, as it was when the step was scheduled."""

    request: Request
    start: int
    end: int
    block_ids: tuple[list[int], ...]
    is_sampling: bool
    num_rejected_before: int = 0
    """Draft tokens of the request that were known to be wrong when the step was scheduled."""
    num_rejected: int = 0
    """Draft tokens at the pass's end that turned out to be wrong."""
    frontier: int | None = None
    """Where a session's turn ended, in tokens: what was computed beyond it is discarded."""
    is_stale: bool = False
    """The turn had ended before this pass was computed."""


class Engine:
    """An engine without a model.

    Args:
        folder: for the log and the model's configuration.
        gpu_blocks, cpu_blocks: pool sizes, vLLM's null block included.
        policy: what is in force from the first step on.
        connector: `ReStoreConnector`, or vLLM's `SimpleCPUOffloadConnector` for comparison.
        children: connectors that a `MultiConnector` holds instead; the last one is the one under test.
        copy_steps: after how many further steps a copy is over; 0 is within its own step.
        groups: one spec a KV-cache group; all have the same page size.
        world_size: ranks, each with a GPU and a CPU tier of its own.
        is_async: step N + 1 is scheduled before the output of step N is known.
        num_draft_tokens: what an EAGLE head proposes a step; `accept` says how many of them are right.
        load_failure_policy: vLLM's `kv_load_failure_policy`.
        stock_loads_fail: whether `conditions.fails` speaks of vLLM's own connector's loads too.
    """

    def __init__(
        self,
        folder: Path,
        *,
        gpu_blocks: int = 64,
        cpu_blocks: int = 8,
        policy: Policy | None = None,
        connector: str = OURS,
        children: Sequence[str] = (),
        copy_steps: int = 0,
        groups: Sequence[KVCacheSpec] | None = None,
        max_num_batched_tokens: int = 8_192,
        max_num_seqs: int = 64,
        world_size: int = 1,
        is_async: bool = False,
        num_draft_tokens: int = 0,
        load_failure_policy: str = "recompute",
        stock_loads_fail: bool = False,
        extra: dict[str, Any] | None = None,
        configure: Callable[[VllmConfig], None] | None = None,
    ) -> None:
        register()
        folder.mkdir(parents=True, exist_ok=True)
        self.url = log.resolve_url(str(folder / "log.db"))
        if not log.path_of(self.url).exists():
            log.path_of(self.url).write_bytes(_empty_log())
        self._policy_writer = log.open_policy_writer(self.url)
        if policy is not None and policy != Policy():
            log.write_policy(self._policy_writer, policy.as_dict(), "test")
        specs = list(groups) if groups is not None else [full_attention()]
        self.kv_cache_config = kv_cache_config(specs, gpu_blocks)
        page = self.kv_cache_config.kv_cache_tensors[0].size // gpu_blocks
        settings = {"cpu_bytes_to_use_per_rank": page * cpu_blocks, "restore_db": str(folder / "log.db")}
        self.config = vllm_config(
            folder,
            _transfer(connector, list(children), settings | (extra or {}), load_failure_policy),
            max_num_batched_tokens=max_num_batched_tokens,
            max_num_seqs=max_num_seqs,
            is_async=is_async,
            num_draft_tokens=num_draft_tokens,
        )
        if configure is not None:
            configure(self.config)
        self.config.parallel_config.world_size = world_size
        self.config.cache_config.num_gpu_blocks = gpu_blocks
        init_none_hash(sha256)
        block_size, self.hash_block_size = resolve_kv_cache_block_sizes(self.kv_cache_config, self.config)
        self.scheduler = (AsyncScheduler if is_async else Scheduler)(
            vllm_config=self.config,
            kv_cache_config=self.kv_cache_config,
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=block_size,
            hash_block_size=self.hash_block_size,
            log_stats=False,
        )
        self._hasher = get_request_block_hasher(self.hash_block_size, sha256)
        whole = self.scheduler.connector
        self._is_multi = isinstance(whole, MultiConnector)
        self.children = list(whole.sub_connectors) if isinstance(whole, MultiConnector) else [whole]
        self.connector = self.children[-1]
        self.manager = self.connector.scheduler_manager
        self.conditions = Conditions()
        if copy_steps:
            self.conditions.copy_steps = lambda rank, is_store: copy_steps
        self.gpus = [Memory(gpu_blocks) for _ in range(world_size)]
        self.workers = [
            # vLLM's own connector knows no failed store, so none may fail under it.
            [
                Worker(
                    rank,
                    gpu,
                    Memory(cpu_blocks),
                    self.conditions,
                    is_ours=isinstance(child, ReStoreConnector),
                    can_fail=(
                        isinstance(child, ReStoreConnector) or stock_loads_fail,
                        isinstance(child, ReStoreConnector),
                    ),
                )
                for rank, gpu in enumerate(self.gpus)
            ]
            for child in self.children
        ]
        self._aggregator = KVOutputAggregator(world_size)
        self.accept: Callable[[], int] = lambda: num_draft_tokens
        self._num_draft_tokens = num_draft_tokens
        self._depth = 1 if is_async else 0
        self._scheduled: deque[tuple[Step, list[_Pass]]] = deque()
        self.requests: dict[str, Request] = {}
        self.world_size = world_size
        self.num_resets = 0
        self.num_loads_failed = 0
        self.num_loads = 0
        self._num_rejected: Counter[str] = Counter()

    # --- what a client does -----------------------------------------------------------------------------------------

    def add(self, request_id: str, tokens: Sequence[int], max_tokens: int = 1_000, **kwargs: Any) -> Request:
        """A request arrives. `tokens`: its prompt."""
        request = self._request(request_id, tokens, max_tokens, **kwargs)
        self.requests[request_id] = request
        self.scheduler.add_request(request)
        return request

    def _request(self, request_id: str, tokens: Sequence[int], max_tokens: int, **kwargs: Any) -> Request:
        kwargs.setdefault("sampling_params", SamplingParams(max_tokens=max_tokens, ignore_eos=True))
        return Request(
            request_id=request_id,
            prompt_token_ids=list(tokens),
            pooling_params=None,
            block_hasher=self._hasher,
            **kwargs,
        )

    def extend(self, request_id: str, tokens: Sequence[int], max_tokens: int = 1_000) -> None:
        """More input for a session of streamed inputs (a request that was added with `resumable=True`)."""
        self.scheduler.add_request(self._request(request_id, tokens, max_tokens, resumable=True))

    def end_input(self, request_id: str) -> None:
        """A session's input is over: it ends with its last turn, or now if it waits for input."""
        self.scheduler.add_request(self._request(request_id, [], 1))

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def finish(self, request_id: str) -> None:
        """The request ends as it would by a stop token: between two steps."""
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)

    def reset_tier(self) -> bool:
        """The CPU tier is to be emptied (vLLM's `reset_prefix_cache` with `reset_connector`). False: not at once."""
        self.num_resets += 1
        return self.scheduler.reset_connector_cache()

    def preempt_all(self) -> None:
        """Every running request gives its GPU blocks back, as when weights are swapped."""
        self.scheduler.reset_prefix_cache(reset_running_requests=True)

    def reset_all(self, *, with_tier: bool, with_running: bool) -> bool:
        """vLLM's `reset_prefix_cache` with its two flags. False: something still holds blocks."""
        self.num_resets += with_tier
        return self.scheduler.reset_prefix_cache(reset_running_requests=with_running, reset_connector=with_tier)

    def set_policy(self, **changes: Any) -> None:
        """Change the policy as the app does, and wait until the engine's recorder has seen it."""
        version = log.write_policy(self._policy_writer, changes, "test").version
        assert self.connector._recorder.await_policy(version)

    # --- what the machine does --------------------------------------------------------------------------------------

    def step(self) -> Step:
        """One scheduler step, its forward pass, and the copies that are over by then. With async scheduling the
        forward pass is that of the step before."""
        step = self._schedule()
        while len(self._scheduled) > (self._depth if step.scheduled else 0):
            self._execute()
        return step

    def steps(self, count: int) -> list[Step]:
        return [self.step() for _ in range(count)]

    def schedule_ahead(self) -> Step:
        """Schedule a step that no worker has got yet: the forward pass, and its copies, come with the next `step`."""
        return self._schedule()

    def settle(self, limit: int = 400) -> list[Step]:
        """Step until the engine has nothing to do any more."""
        done: list[Step] = []
        while self.scheduler.has_requests():
            done.append(self.step())
            assert len(done) < limit, "the engine does not come to rest"
        return done

    def _schedule(self) -> Step:
        output = self.scheduler.schedule()
        whole = output.kv_connector_metadata
        metas = whole.metadata if isinstance(whole, MultiKVConnectorMetadata) else (whole,)
        step = Step(output, metas, metas[-1])
        passes = []
        for request_id, count in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            end = request.num_computed_tokens
            block_ids = self.scheduler.kv_cache_manager.get_block_ids(request_id)
            passes.append(
                _Pass(
                    request,
                    end - count,
                    end,
                    tuple(map(list, block_ids)),
                    not request.is_prefill_chunk,
                    self._num_rejected[request_id],
                )
            )
        self._scheduled.append((step, passes))
        return step

    def _execute(self) -> None:
        step, passes = self._scheduled.popleft()
        for workers, meta in zip(self.workers, step.metas, strict=True):
            for worker in workers:
                if meta.need_flush:
                    worker.flush()
        for src, dst in step.output.kv_cache_block_copies or ():
            for gpu in self.gpus:
                gpu.write(dst, gpu.read(src))
        self._forward(passes)
        for workers, meta in zip(self.workers, step.metas, strict=True):
            for worker in workers:
                worker.submit(meta)
        ids = list(step.scheduled)
        sampled = [self._sample(p, step.output) for p in passes]
        outputs: list[ModelRunnerOutput | None] = [
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={r: i for i, r in enumerate(ids)},
                sampled_token_ids=sampled,
                kv_connector_output=connector_output,
            )
            for connector_output in self._reports()
        ]
        aggregated = self._aggregator.aggregate(outputs)
        assert aggregated is not None
        self.scheduler.update_from_output(step.output, aggregated)
        self._note_ended_turns(passes)
        if self._num_draft_tokens and not self._depth:
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, [self._draft(p.request) for p in passes]))
        for p in passes:
            self._write(p, computed=p.end - p.num_rejected)  # the tokens, and with them the keys, are known now

    def _note_ended_turns(self, passes: list[_Pass]) -> None:
        """What was scheduled ahead of a session's turn that has ended is computed for nothing, in the session's own
        blocks."""
        for p in passes:
            if p.request.resumable and not p.is_stale and p.request.status in TURN_IS_OVER:
                p.frontier = p.request.num_computed_tokens
                for ahead in (q for _, qs in self._scheduled for q in qs if q.request is p.request):
                    ahead.is_stale, ahead.frontier = True, p.frontier

    def _reports(self) -> list[KVConnectorOutput]:
        """What each rank says."""
        reports = []
        for rank in range(self.world_size):
            overs = [workers[rank].complete() for workers in self.workers]
            metas = tuple(ReStoreWorkerMetadata(o.stored, o.failed_stores) if o.stored else None for o in overs)
            meta = metas[-1]
            if self._is_multi:
                meta = MultiKVConnectorWorkerMetadata(metas) if any(metas) else None
            report = KVConnectorOutput(
                finished_recving=set().union(*(o.loaded for o in overs)) or None, kv_connector_worker_meta=meta
            )
            for over in overs:
                self._report_failed_loads(report, over)
            reports.append(report)
        return reports

    def _report_failed_loads(self, report: KVConnectorOutput, over: Over) -> None:
        """As the worker half does: block by block, or by request where a model has several groups."""
        self.num_loads += len(over.loaded)
        self.num_loads_failed += len(over.failed_loads)
        if len(self.kv_cache_config.kv_cache_groups) == 1:
            report.invalid_block_ids |= over.failed_load_blocks
        else:
            report.failed_recving |= over.failed_loads

    def _forward(self, passes: list[_Pass]) -> None:
        """Read what lies before, write what is computed. A block that is not full holds bytes of no key."""
        for p in passes:
            # The step was scheduled as if every draft before it were right; the GPU knows better by now.
            shift = self._num_rejected[p.request.request_id] - p.num_rejected_before
            p.start -= shift
            p.end -= shift
            if p.start and not p.is_stale and not p.request.is_finished():
                self._read(p)
            self._write(p, computed=p.end)

    def _read(self, p: _Pass) -> None:
        """Attention reads the whole prefix: each full block must hold what belongs there."""
        if p.request.num_computed_tokens < p.start:
            return  # preempted meanwhile: what this pass computes is thrown away
        for g, ids in enumerate(p.block_ids):
            if not self.is_checked(g):
                continue
            size, scale = self.block_size(g), self.block_size(g) // self.hash_block_size
            for i in range(min(p.start // size, len(ids), len(p.request.block_hashes) // scale)):
                if ids[i]:
                    key = make_block_hash_with_group_id(p.request.block_hashes[(i + 1) * scale - 1], g)
                    for rank, gpu in enumerate(self.gpus):
                        assert gpu.read(ids[i]) == key, (
                            f"rank {rank} computes {p.request.request_id} from wrong bytes: group {g}, block {i}"
                        )

    def _write(self, p: _Pass, computed: int) -> None:
        if p.frontier is not None:
            computed = min(computed, p.frontier)
        for g, ids in enumerate(p.block_ids):
            size, scale = self.block_size(g), self.block_size(g) // self.hash_block_size
            for i in range(p.start // size, min(-(-p.end // size), len(ids))):
                if not ids[i]:
                    continue
                full_hashes = min(computed, (i + 1) * size) // self.hash_block_size
                if full_hashes > i * scale and full_hashes <= len(p.request.block_hashes):
                    content = make_block_hash_with_group_id(p.request.block_hashes[full_hashes - 1], g)
                else:
                    content = unfinished(p.request.request_id, g, i, p.start, p.end)
                for gpu in self.gpus:
                    gpu.write(ids[i], content)

    def _sample(self, p: _Pass, output: SchedulerOutput) -> list[int]:
        if not p.is_sampling:
            return []
        drafts = output.scheduled_spec_decode_tokens.get(p.request.request_id) or []
        accepted = min(len(drafts), self.accept()) if drafts else 0
        if p.is_stale:
            return [_token(p.start + n) for n in range(accepted + 1)]  # nobody looks at it
        if p.request.resumable:
            # vLLM takes drafts that were right beyond a turn's end for computed tokens of the next input.
            accepted = max(0, min(accepted, p.request.max_tokens - p.request.num_output_tokens - 1))
        p.num_rejected = len(drafts) - accepted
        self._num_rejected[p.request.request_id] += p.num_rejected
        first = p.request.num_output_tokens
        return [_token(first + n) for n in range(accepted + 1)]

    def _draft(self, request: Request) -> list[int]:
        return [WRONG_DRAFT] * self._num_draft_tokens

    # --- what a test asks -------------------------------------------------------------------------------------------

    @property
    def restore(self) -> ReStoreScheduler:
        assert isinstance(self.manager, ReStoreScheduler)
        return self.manager

    @property
    def cpus(self) -> list[Memory]:
        """The CPU tier of the connector under test, rank by rank."""
        return [worker.cpu for worker in self.workers[-1]]

    @property
    def tasks(self) -> list[CopyTask]:
        """Copies of the connector under test that are not over."""
        return [task for worker in self.workers[-1] for task in worker.tasks]

    @property
    def is_busy(self) -> bool:
        """Whether a copy or a step is under way that holds GPU blocks, also for a request that was aborted since."""
        managers = [child.scheduler_manager for child in self.children]
        return bool(
            self._scheduled
            or self.scheduler.kv_holding_waiting
            or self.scheduler.connector.has_pending_push_work()
            or any(m._reqs_to_load or m._abandoned_reqs_to_load for m in managers)
        )

    @property
    def num_running(self) -> int:
        return len(self.scheduler.running)

    def is_checked(self, group: int) -> bool:
        """Whether a block at one position of this group holds the tokens of that position."""
        return not isinstance(self.kv_cache_config.kv_cache_groups[group].kv_cache_spec, MambaSpec) and (
            group in self.kv_cache_config.prefix_cacheable_group_ids
        )

    @property
    def stored_groups(self) -> list[int]:
        """The groups whose blocks are stored by their position: those a prefix cache can hold, but for states."""
        specs = [group.kv_cache_spec for group in self.kv_cache_config.kv_cache_groups]
        return [g for g in self.kv_cache_config.prefix_cacheable_group_ids if not isinstance(specs[g], MambaSpec)]

    def block_size(self, group: int = 0) -> int:
        """Tokens a block of a group covers, over all ranks of its context parallelism."""
        if hasattr(self.manager, "group_block_sizes"):
            return self.manager.group_block_sizes[group]
        return self.kv_cache_config.kv_cache_groups[group].kv_cache_spec.block_size

    def keys(self, request_id: str, group: int = 0) -> list[bytes]:
        """The keys of a request's full blocks, head first."""
        scale = self.block_size(group) // self.hash_block_size
        hashes = self.requests[request_id].block_hashes
        return [make_block_hash_with_group_id(hashes[(i + 1) * scale - 1], group) for i in range(len(hashes) // scale)]

    def in_cpu(self, request_id: str, group: int = 0) -> list[bool]:
        """For each full block of a request: can its hash be found in the CPU tier?"""
        cached = self.manager.cpu_block_pool.cached_block_hash_to_block
        return [cached.get_one_block(key) is not None for key in self.keys(request_id, group)]

    def prefix_in_cpu(self, request_id: str, group: int = 0) -> int:
        """How many blocks, from the head on without a gap, the CPU tier can answer for."""
        found = self.in_cpu(request_id, group)
        return found.index(False) if False in found else len(found)

    def evict(self, request_id: str, *indices: int, group: int = 0) -> None:
        """The CPU tier loses blocks, as if other content had needed their place: through the pool's own allocation."""
        keys = self.keys(request_id, group)
        for index in indices:
            assert self.evict_key(keys[index]), f"block {index} is not there to be evicted"

    def evict_key(self, key: bytes) -> bool:
        """False: the tier does not have it, or it is in use."""
        pool = self.manager.cpu_block_pool
        block = pool.cached_block_hash_to_block.get_one_block(key)
        if block is None or block.ref_cnt:
            return False
        pool.free_block_queue.remove(block)
        pool.free_block_queue.prepend_n([block])
        (taken,) = pool.get_new_blocks(1)
        assert taken is block
        pool.free_blocks([taken])
        return True

    def forget_gpu_prefixes(self) -> None:
        """The GPU prefix cache is gone (other requests took the blocks)."""
        assert self.scheduler.kv_cache_manager.reset_prefix_cache()

    def close(self) -> None:
        """Flush the log."""
        self.scheduler.shutdown()
        self._policy_writer.dispose()

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the log, as any program may. Close the engine first to see everything."""
        reader = log.open_reader(self.url)
        try:
            with reader.connect() as conn:
                return [tuple(row) for row in conn.execute(text(query))]
        finally:
            reader.dispose()


def prompt(seed: int, blocks: int, extra: int = 1, block_size: int = BLOCK) -> list[int]:
    """A prompt of full blocks and some tokens more, unlike that of any other seed."""
    return [1_000 * (seed + 1) + i % 1_000 for i in range(blocks * block_size + extra)]


def _token(position: int) -> int:
    """What the model samples as a request's output at this position."""
    return 7 + position


@cache
def _empty_log() -> bytes:
    """The file that the migrations make. They take longer than most tests do, so they run once for all engines."""
    with TemporaryDirectory() as folder:
        url = log.resolve_url(f"{folder}/log.db")
        log.upgrade(url)
        return log.path_of(url).read_bytes()


def _transfer(
    connector: str, children: list[str], settings: dict[str, Any], load_failure_policy: str
) -> KVTransferConfig:
    if children:
        settings = {
            "connectors": [
                {"kv_connector": c, "kv_role": "kv_both", "kv_connector_extra_config": settings} for c in children
            ]
        }
        connector = "MultiConnector"
    return KVTransferConfig(
        kv_connector=connector,
        kv_role="kv_both",
        kv_connector_extra_config=settings,
        kv_load_failure_policy=load_failure_policy,
    )
