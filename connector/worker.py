"""The worker half where the KV cache is host memory (vLLM on the CPU): copies blocks on one background thread.

Engine ring. On CUDA and ROCm vLLM's own `SimpleCPUOffloadWorker` is used untouched; it needs device streams and
cannot run here. The regions that a block is made of, the metadata and the reports are the stock worker's.
"""

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.logger import init_logger
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

from connector.worker_meta import ReStoreWorkerMetadata

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

logger = init_logger("vllm.restore.worker")


@dataclass(slots=True)
class CopyJob:
    """One event's copies, block by block in the same order. `is_store`: device cache to CPU tier; else back."""

    event: int
    is_store: bool
    source_blocks: list[int]
    target_blocks: list[int]
    request_ids: list[str] = field(default_factory=list)
    """Of a load: the requests that wait for it."""
    error: str | None = None
    copy_ns: int = 0


def block_regions(kv_caches: dict[str, torch.Tensor], kv_cache_config: "KVCacheConfig") -> list[torch.Tensor]:
    """The memory of a KV cache as int8 views of shape [num_blocks, bytes]: row b of every view together is block b.

    The same regions as the stock worker registers: layers that share an allocation appear once.

    Raises:
        ValueError: an allocation is smaller than the configuration says.
    """
    num_blocks = kv_cache_config.num_blocks
    regions: dict[int, torch.Tensor] = {}
    for placement in kv_cache_config.kv_cache_tensors:
        name = next((layer for layer in placement.layers if layer in kv_caches), None)
        if name is None:
            continue
        block_bytes = placement.block_stride
        span = num_blocks * block_bytes
        start = 0
        if placement.layer_stride >= span:
            # Each layer lies by itself, all its blocks in a row.
            start = placement.offset
            span = len(placement.layers) * placement.layer_stride
        storage = kv_caches[name].untyped_storage()
        if len(storage) < start + span:
            raise ValueError(f"KV cache {name!r} has {len(storage)} bytes, but its blocks reach to byte {start + span}")
        raw = torch.empty(0, dtype=torch.int8).set_(storage)
        for region in raw[start : start + span].view(-1, num_blocks, block_bytes):
            regions.setdefault(region.data_ptr(), region)
    return list(regions.values())


class HostCopyWorker(SimpleCPUOffloadWorker):
    """Copies between a KV cache in host memory and the CPU tier, in the order in which the steps asked for it.

    One thread takes jobs first in, first out. `wait_for_save` runs after the step's forward pass, which is
    synchronous on the CPU, so a store reads what the step has computed. Every job is reported exactly once, the
    failed ones too.

    Args:
        stock: the worker that vLLM built; its settings are taken over.

    Raises:
        ValueError: the tier was asked to be on disk.
    """

    def __init__(self, stock: SimpleCPUOffloadWorker) -> None:
        if stock.disk_mode:
            raise ValueError('kv_offload_backend "disk" needs a KV cache on a GPU; on the CPU use the backend "cpu"')
        vars(self).update(vars(stock))
        self._regions: list[np.ndarray] = []
        self._tier: list[np.ndarray] = []
        self._jobs: queue.Queue[CopyJob | None] = queue.Queue()
        self._done: queue.SimpleQueue[CopyJob] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failed_load_blocks: set[int] = set()
        self._failed_load_requests: set[str] = set()
        self._failed_stores: dict[int, str] = {}
        self._store_ns: dict[int, int] = {}
        self._loads: dict[int, tuple[int, int]] = {}

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Take the engine's KV cache, allocate the CPU tier beside it, and start the copy thread."""
        if not kv_caches:
            logger.warning("No KV cache to copy from")
            return
        assert self.kv_cache_config is not None
        self._regions = [region.numpy() for region in block_regions(kv_caches, self.kv_cache_config)]
        block_bytes = sum(region.shape[1] for region in self._regions)
        self.num_cpu_blocks = max(1, self.cpu_capacity_bytes // block_bytes)
        self._tier = [np.zeros((self.num_cpu_blocks, r.shape[1]), dtype=np.int8) for r in self._regions]
        self._thread = threading.Thread(target=self._copy_loop, name="restore-copy", daemon=True)
        self._thread.start()
        logger.info(
            "Host copy worker: %d regions, %d CPU blocks of %d bytes",
            len(self._regions),
            self.num_cpu_blocks,
            block_bytes,
        )

    def start_load_kv(self) -> None:
        meta = self._connector_metadata
        if meta is not None and meta.load_cpu_blocks:
            # Which requests wait for a load is known now; a later step's metadata may not name it any more.
            requests = list(meta.load_event_to_reqs.get(meta.load_event, ()))
            self._submit(CopyJob(meta.load_event, False, meta.load_cpu_blocks, meta.load_gpu_blocks, requests))

    def wait_for_save(self) -> None:
        meta = self._connector_metadata
        if meta is not None and meta.store_gpu_blocks:
            self._submit(CopyJob(meta.store_event, True, meta.store_gpu_blocks, meta.store_cpu_blocks))

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """(None, requests whose load is over): stores are reported by `build_connector_worker_meta`."""
        loaded: set[str] = set()
        for job in self._take_done():
            if job.is_store:
                self._pending_store_event_indices.discard(job.event)
                self._completed_store_events[job.event] = 1
                if job.error is not None:
                    self._failed_stores[job.event] = job.error
                else:
                    self._store_ns[job.event] = job.copy_ns
                continue
            self._pending_load_event_indices.discard(job.event)
            loaded.update(job.request_ids)
            if job.error is not None:
                self._note_failed_load(job)
            else:
                self._loads[job.event] = (job.copy_ns, len(job.source_blocks))
        return None, loaded or None

    def _note_failed_load(self, job: CopyJob) -> None:
        assert self.kv_cache_config is not None
        # vLLM stops where a model with several groups names single blocks: there the request has to start again.
        if len(self.kv_cache_config.kv_cache_groups) == 1:
            self._failed_load_blocks.update(job.target_blocks)
        else:
            self._failed_load_requests.update(job.request_ids)

    def take_load_errors(self) -> set[int]:
        """GPU blocks whose load failed since the last call."""
        failed, self._failed_load_blocks = self._failed_load_blocks, set()
        return failed

    def take_failed_requests(self) -> set[str]:
        """Requests whose load failed since the last call, where blocks cannot be named."""
        failed, self._failed_load_requests = self._failed_load_requests, set()
        return failed

    def build_connector_worker_meta(self) -> ReStoreWorkerMetadata | None:
        if not self._completed_store_events and not self._loads:
            return None
        meta = ReStoreWorkerMetadata(self._completed_store_events, self._failed_stores, self._store_ns, self._loads)
        self._completed_store_events = {}
        self._failed_stores, self._store_ns, self._loads = {}, {}, {}
        return meta

    def handle_preemptions(self, kv_connector_metadata: "SimpleCPUOffloadMetadata") -> None:
        """Blocks of preempted requests are about to be given away: let every copy that reads or writes them end
        first."""
        if kv_connector_metadata.need_flush:
            self._jobs.join()

    def shutdown(self) -> None:
        """End the copy thread after the jobs that it has."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(timeout=5.0)
            self._thread = None

    def _submit(self, job: CopyJob) -> None:
        if self._thread is None:
            job.error = "there is no copy thread: no KV cache was registered, or the worker was shut down"
            self._done.put(job)
            return
        self._jobs.put(job)

    def _take_done(self) -> list[CopyJob]:
        done: list[CopyJob] = []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def _copy_loop(self) -> None:
        while (job := self._jobs.get()) is not None:
            started_ns = time.perf_counter_ns()
            try:
                self._copy(job)
                job.copy_ns = time.perf_counter_ns() - started_ns
            except Exception as e:
                job.error = f"{'store' if job.is_store else 'load'} of {len(job.source_blocks)} blocks: {e}"
                logger.exception("Copy failed: %s", job.error)
            self._done.put(job)
            self._jobs.task_done()
        self._jobs.task_done()

    def _copy(self, job: CopyJob) -> None:
        sources, targets = (self._regions, self._tier) if job.is_store else (self._tier, self._regions)
        # NumPy, not torch: a row is one memcpy, other threads run meanwhile, and no OpenMP team of this thread's own
        # competes with the model's (vLLM's CPU worker has made `torch.set_num_threads` a refusal by now).
        for source, target in zip(sources, targets, strict=True):
            target[job.target_blocks] = source[job.source_blocks]
