"""What a worker reports to the scheduler half: vLLM's completed store events, and the ones whose copy failed.

Engine ring. It crosses processes pickled, so it stays plain.
"""

from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorWorkerMetadata
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata


@dataclass
class ReStoreWorkerMetadata(SimpleCPUOffloadWorkerMetadata):
    """A failed store event stands in both dictionaries: it is over, and it holds nothing.

    Attributes:
        failed_store_events: store event to what went wrong, in one line.
        store_ns: store event to the nanoseconds that its copy took.
        loads: load event to (nanoseconds, blocks).
    """

    failed_store_events: dict[int, str] = field(default_factory=dict)
    store_ns: dict[int, int] = field(default_factory=dict)
    loads: dict[int, tuple[int, int]] = field(default_factory=dict)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "ReStoreWorkerMetadata":
        """Add up over workers: a store is complete when all have reported, and failed where one of them failed."""
        completed = super().aggregate(other)
        assert isinstance(completed, SimpleCPUOffloadWorkerMetadata)
        failed, store_ns, loads = dict(self.failed_store_events), dict(self.store_ns), dict(self.loads)
        if isinstance(other, ReStoreWorkerMetadata):
            failed |= other.failed_store_events
            for event, ns in other.store_ns.items():
                store_ns[event] = max(ns, store_ns.get(event, 0))
            for event, load in other.loads.items():
                loads[event] = max(load, loads.get(event, (0, 1)))
        return ReStoreWorkerMetadata(completed.completed_store_events, failed, store_ns, loads)
