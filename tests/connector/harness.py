"""vLLM's real Scheduler, KV-cache manager, block pools and this connector, without a model: the worker is simulated.

What is simulated is the machine: the forward pass writes, into each block that it fills, the bytes that belong there,
and copies really move bytes between two small memories, after a delay, in an order and with failures that the test
chooses.
Everything that decides is the real thing.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import text
from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, make_block_hash_with_group_id
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
)
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.structured_output import StructuredOutputManager

from connector import log
from connector.plugin import register
from connector.policy import Policy
from connector.scheduler import ReStoreScheduler
from connector.worker_meta import ReStoreWorkerMetadata

BLOCK = 16
PAGE_BYTES = 64

MODEL_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 50_000,
    "max_position_embeddings": 65_536,
    "torch_dtype": "float32",
}


def full_attention(block_size: int = BLOCK) -> FullAttentionSpec:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=8, dtype=torch.float32)


@dataclass
class CopyTask:
    """One event on its way. It is over `due` steps from now; `error` makes it fail."""

    event: int
    is_store: bool
    sources: list[int]
    targets: list[int]
    requests: list[str]
    due: int
    ranks_left: int = 1
    error: str | None = None


@dataclass
class Step:
    """What one step ordered."""

    output: SchedulerOutput
    meta: SimpleCPUOffloadMetadata

    @property
    def scheduled(self) -> dict[str, int]:
        return self.output.num_scheduled_tokens


@dataclass
class Machine:
    """Two memories and the copies between them. A block holds the key (hash and group) of its content, or None."""

    gpu: list[bytes | None]
    cpu: list[bytes | None]
    tasks: list[CopyTask] = field(default_factory=list)

    def run(self, task: CopyTask) -> None:
        source, target = (self.gpu, self.cpu) if task.is_store else (self.cpu, self.gpu)
        for s, t in zip(task.sources, task.targets, strict=True):
            target[t] = source[s]


class Engine:
    """An engine without a model.

    Args:
        folder: for the log and the model's configuration.
        gpu_blocks, cpu_blocks: pool sizes, vLLM's null block included.
        policy: what is in force from the first step on.
        connector: `ReStoreConnector`, or vLLM's `SimpleCPUOffloadConnector` for comparison.
        copy_steps: after how many further steps a copy is over; 0 is within its own step.
        groups: one spec a KV-cache group; all have the same page size.
    """

    def __init__(
        self,
        folder: Path,
        *,
        gpu_blocks: int = 64,
        cpu_blocks: int = 8,
        policy: Policy | None = None,
        connector: str = "ReStoreConnector",
        copy_steps: int = 0,
        groups: Sequence[KVCacheSpec] | None = None,
        max_num_batched_tokens: int = 8_192,
        max_num_seqs: int = 64,
        world_size: int = 1,
        extra: dict[str, Any] | None = None,
        configure: Callable[[VllmConfig], None] | None = None,
    ) -> None:
        register()
        folder.mkdir(parents=True, exist_ok=True)
        self.url = log.resolve_url(str(folder / "log.db"))
        log.upgrade(self.url)
        self._policy_writer = log.open_policy_writer(self.url)
        if policy is not None and policy != Policy():
            log.write_policy(self._policy_writer, policy.as_dict(), "test")
        specs = list(groups) if groups is not None else [full_attention()]
        self.kv_cache_config = _kv_cache_config(specs, gpu_blocks)
        page = self.kv_cache_config.kv_cache_tensors[0].size // gpu_blocks
        self.config = _vllm_config(
            folder,
            connector,
            {"cpu_bytes_to_use_per_rank": page * cpu_blocks, "restore_db": str(folder / "log.db")} | (extra or {}),
            max_num_batched_tokens,
            max_num_seqs,
        )
        if configure is not None:
            configure(self.config)
        self.config.parallel_config.world_size = world_size
        self.config.cache_config.num_gpu_blocks = gpu_blocks
        init_none_hash(sha256)
        block_size = max(spec.block_size for spec in specs)
        self.hash_block_size = min(spec.block_size for spec in specs)
        self.scheduler = Scheduler(
            vllm_config=self.config,
            kv_cache_config=self.kv_cache_config,
            structured_output_manager=StructuredOutputManager(self.config),
            block_size=block_size,
            hash_block_size=self.hash_block_size,
            log_stats=False,
        )
        self._hasher = get_request_block_hasher(self.hash_block_size, sha256)
        self.connector = self.scheduler.connector
        self.manager = self.connector.scheduler_manager
        self.machine = Machine([None] * gpu_blocks, [None] * cpu_blocks)
        self.copy_steps = copy_steps
        self.fail_copies = False
        self.requests: dict[str, Request] = {}
        self.world_size = world_size

    # --- what a client does -----------------------------------------------------------------------------------------

    def add(self, request_id: str, tokens: Sequence[int], max_tokens: int = 1_000, **kwargs: Any) -> Request:
        """A request arrives. `tokens`: its prompt."""
        request = Request(
            request_id=request_id,
            prompt_token_ids=list(tokens),
            sampling_params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
            pooling_params=None,
            block_hasher=self._hasher,
            **kwargs,
        )
        self.requests[request_id] = request
        self.scheduler.add_request(request)
        return request

    def abort(self, request_id: str) -> None:
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def finish(self, request_id: str) -> None:
        """The request ends as it would by a stop token: between two steps."""
        self.scheduler.finish_requests(request_id, RequestStatus.FINISHED_STOPPED)

    def set_policy(self, **changes: Any) -> None:
        """Change the policy as the app does, and wait until the engine's recorder has seen it."""
        version = log.write_policy(self._policy_writer, changes, "test").version
        recorder = self.connector._recorder
        recorder.await_policy(version)

    # --- what the machine does --------------------------------------------------------------------------------------

    def step(self) -> Step:
        """One scheduler step, its forward pass, and the copies that are over by then."""
        output = self.scheduler.schedule()
        meta = output.kv_connector_metadata
        assert isinstance(meta, SimpleCPUOffloadMetadata)
        if meta.need_flush:
            for task in self.machine.tasks:
                task.due = 0
        self._forward(output)
        self._submit(meta)
        connector_output = self._complete()
        sampled = []
        for request_id, count in output.num_scheduled_tokens.items():
            request = self.requests[request_id]
            # num_computed_tokens was advanced by schedule(); the last prompt token in it means that a token is sampled.
            done = request.num_computed_tokens >= request.num_tokens and count > 0
            sampled.append([7 + request.num_output_tokens] if done else [])
        ids = list(output.num_scheduled_tokens)
        self.scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={r: i for i, r in enumerate(ids)},
                sampled_token_ids=sampled,
                kv_connector_output=connector_output,
            ),
        )
        return Step(output, meta)

    def steps(self, count: int) -> list[Step]:
        return [self.step() for _ in range(count)]

    def settle(self, limit: int = 200) -> list[Step]:
        """Step until the engine has nothing to do any more."""
        done: list[Step] = []
        while self.scheduler.has_requests():
            done.append(self.step())
            assert len(done) < limit, "the engine does not come to rest"
        return done

    def _forward(self, output: SchedulerOutput) -> None:
        for request_id in output.num_scheduled_tokens:
            request = self.requests[request_id]
            tokens = request.num_computed_tokens
            for g, ids in enumerate(self.scheduler.kv_cache_manager.get_block_ids(request_id)):
                size = self.kv_cache_config.kv_cache_groups[g].kv_cache_spec.block_size
                scale = size // self.hash_block_size
                for i in range(min(tokens // size, len(ids), len(request.block_hashes) // scale)):
                    if ids[i]:
                        key = make_block_hash_with_group_id(request.block_hashes[(i + 1) * scale - 1], g)
                        self.machine.gpu[ids[i]] = key

    def _submit(self, meta: SimpleCPUOffloadMetadata) -> None:
        error = "the test said so" if self.fail_copies else None
        if meta.load_event >= 0:
            requests = list(meta.load_event_to_reqs[meta.load_event])
            self.machine.tasks.append(
                CopyTask(meta.load_event, False, meta.load_cpu_blocks, meta.load_gpu_blocks, requests, self.copy_steps)
            )
        if meta.store_event >= 0:
            self.machine.tasks.append(
                CopyTask(
                    meta.store_event,
                    True,
                    list(meta.store_gpu_blocks),
                    list(meta.store_cpu_blocks),
                    [],
                    self.copy_steps,
                    self.world_size,
                    error,
                )
            )

    def _complete(self) -> KVConnectorOutput:
        loaded: set[str] = set()
        stored: dict[int, int] = {}
        failed: dict[int, str] = {}
        left: list[CopyTask] = []
        for task in self.machine.tasks:
            if task.due > 0:
                task.due -= 1
                left.append(task)
                continue
            if task.error is None:
                self.machine.run(task)
            if not task.is_store:
                loaded.update(task.requests)
                continue
            stored[task.event] = stored.get(task.event, 0) + 1
            if task.error is not None:
                failed[task.event] = task.error
            task.ranks_left -= 1
            if task.ranks_left:
                left.append(task)
        self.machine.tasks = left
        meta = ReStoreWorkerMetadata(stored, failed) if stored else None
        return KVConnectorOutput(finished_recving=loaded or None, kv_connector_worker_meta=meta)

    # --- what a test asks -------------------------------------------------------------------------------------------

    @property
    def restore(self) -> ReStoreScheduler:
        assert isinstance(self.manager, ReStoreScheduler)
        return self.manager

    def keys(self, request_id: str, group: int = 0) -> list[bytes]:
        """The keys of a request's full blocks, head first."""
        size = self.kv_cache_config.kv_cache_groups[group].kv_cache_spec.block_size
        scale = size // self.hash_block_size
        hashes = self.requests[request_id].block_hashes
        return [make_block_hash_with_group_id(hashes[(i + 1) * scale - 1], group) for i in range(len(hashes) // scale)]

    def in_cpu(self, request_id: str, group: int = 0) -> list[bool]:
        """For each full block of a request: can its hash be found in the CPU tier?"""
        cached = self.manager.cpu_block_pool.cached_block_hash_to_block
        return [cached.get_one_block(key) is not None for key in self.keys(request_id, group)]

    def evict(self, request_id: str, *indices: int, group: int = 0) -> None:
        """The CPU tier loses blocks, as if other content had needed their place: through the pool's own allocation."""
        pool = self.manager.cpu_block_pool
        keys = self.keys(request_id, group)
        for index in indices:
            block = pool.cached_block_hash_to_block.get_one_block(keys[index])
            assert block is not None, f"block {index} is not there to be evicted"
            assert block.ref_cnt == 0
            pool.free_block_queue.remove(block)
            pool.free_block_queue.prepend_n([block])
            (taken,) = pool.get_new_blocks(1)
            assert taken is block
            pool.free_blocks([taken])

    def forget_gpu_prefixes(self) -> None:
        """The GPU prefix cache is gone (other requests took the blocks)."""
        assert self.scheduler.kv_cache_manager.reset_prefix_cache()

    def close(self) -> None:
        """Flush the log."""
        self.scheduler.shutdown()

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the log, as any program may. Close the engine first to see everything."""
        with log.open_reader(self.url).connect() as conn:
            return [tuple(row) for row in conn.execute(text(query))]


def prompt(seed: int, blocks: int, extra: int = 1, block_size: int = BLOCK) -> list[int]:
    """A prompt of full blocks and some tokens more, unlike that of any other seed."""
    return [1_000 * (seed + 1) + i % 1_000 for i in range(blocks * block_size + extra)]


def _vllm_config(
    folder: Path, connector: str, extra: dict[str, Any], max_num_batched_tokens: int, max_num_seqs: int
) -> VllmConfig:
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL_CONFIG))
    max_len = 32_768
    return VllmConfig(
        model_config=ModelConfig(
            model=str(model), skip_tokenizer_init=True, dtype="float32", max_model_len=max_len, seed=0
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=max_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        kv_transfer_config=KVTransferConfig(kv_connector=connector, kv_role="kv_both", kv_connector_extra_config=extra),
    )


def _kv_cache_config(specs: list[KVCacheSpec], num_blocks: int) -> KVCacheConfig:
    page = specs[0].page_size_bytes
    names = [f"layer.{g}" for g in range(len(specs))]
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[
            KVCacheTensor(size=page * num_blocks, layers=[n], layer_stride=page * num_blocks, block_stride=page)
            for n in names
        ],
        kv_cache_groups=[KVCacheGroupSpec([n], spec) for n, spec in zip(names, specs, strict=True)],
    )
