"""The simulated worker: copies that are over some steps later, for vLLM's two families of offloading connectors.

No byte is copied. What is counted here is what the scheduler half ordered.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorWorkerMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import (
    OffloadingConnectorMetadata,
    OffloadingWorkerMetadata,
)
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata, SimpleCPUOffloadWorkerMetadata


@dataclass(slots=True)
class _Copy:
    """Copies of one event or job. `due`: steps until they are over; `loaded`: requests that wait for them."""

    number: int
    due: int
    loaded: tuple[str, ...] = ()
    is_load: bool = False


class Copies:
    """One worker. `copy_steps`: after how many further steps a copy is over; 0 is within its own step."""

    def __init__(self, copy_steps: int) -> None:
        self._copy_steps = copy_steps
        self._under_way: list[_Copy] = []
        self._is_native = False
        self.num_stored = 0
        """Blocks, re-stores included."""
        self.num_loaded = 0
        """Blocks."""

    def submit(self, meta: KVConnectorMetadata | None) -> None:
        """Take a step's orders."""
        if isinstance(meta, SimpleCPUOffloadMetadata):
            self._submit_simple(meta)
        elif isinstance(meta, OffloadingConnectorMetadata):
            self._is_native = True
            self._submit_native(meta)
        else:
            assert meta is None, f"no connector that is replayed sends {type(meta).__name__}"

    def _submit_simple(self, meta: SimpleCPUOffloadMetadata) -> None:
        if meta.need_flush:
            self._hurry(self._under_way)
        if meta.load_event >= 0:
            requests = tuple(meta.load_event_to_reqs[meta.load_event])
            self._under_way.append(_Copy(meta.load_event, self._copy_steps, requests, is_load=True))
            self.num_loaded += len(meta.load_gpu_blocks)
        if meta.store_event >= 0:
            self._under_way.append(_Copy(meta.store_event, self._copy_steps))
            self.num_stored += len(meta.store_gpu_blocks)

    def _submit_native(self, meta: OffloadingConnectorMetadata) -> None:
        flushed = meta.jobs_to_flush or ()
        self._hurry(c for c in self._under_way if c.number in flushed)
        for number, job in meta.load_jobs.items():
            self._under_way.append(_Copy(number, self._copy_steps, (job.req_id,), is_load=True))
            self.num_loaded += len(job.dst_spec.block_ids)
        for number, job in meta.store_jobs.items():
            self._under_way.append(_Copy(number, self._copy_steps))
            self.num_stored += len(job.src_spec.block_ids)

    @staticmethod
    def _hurry(copies: Iterable[_Copy]) -> None:
        """The worker waits for these before it computes anything."""
        for copy in copies:
            copy.due = 0

    def complete(self) -> KVConnectorOutput:
        """End the copies that are due, and report as a worker does after every step, also when nothing has ended."""
        if not self._under_way:
            return KVConnectorOutput()
        over = [c for c in self._under_way if c.due <= 0]
        self._under_way = [c for c in self._under_way if c.due > 0]
        for copy in self._under_way:
            copy.due -= 1
        if not over:
            return KVConnectorOutput()
        meta: KVConnectorWorkerMetadata | None = None
        if self._is_native:
            meta = OffloadingWorkerMetadata({c.number: 1 for c in over})
        elif stored := {c.number: 1 for c in over if not c.is_load}:
            meta = SimpleCPUOffloadWorkerMetadata(stored)
        loaded = {request_id for c in over for request_id in c.loaded}
        return KVConnectorOutput(finished_recving=loaded or None, kv_connector_worker_meta=meta)
