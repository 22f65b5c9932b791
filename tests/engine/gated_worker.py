"""vLLM's worker on the CPU, with a gate before each copy of our worker half, and a look at it after each preemption.

vLLM loads it by name (`--worker-cls`), in the process of each rank.
"""

import os
from pathlib import Path

from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.worker.cpu_worker import CPUWorker

from connector.kv_connector import ReStoreConnector
from connector.worker import CopyJob, HostCopyWorker
from tests.engine import gate


class GatedWorker(CPUWorker):
    def initialize_from_config(self, kv_cache_config: KVCacheConfig) -> None:
        super().initialize_from_config(kv_cache_config)
        connector = get_kv_transfer_group()
        assert isinstance(connector, ReStoreConnector)
        half = connector.worker_handler
        assert isinstance(half, HostCopyWorker)
        folder, rank = Path(os.environ[gate.FOLDER]), self.rank
        copy, flush = half._copy, half.handle_preemptions

        def copy_through_gate(job: CopyJob) -> None:
            with gate.passing(folder, rank):
                copy(job)

        def flush_all(metadata: SimpleCPUOffloadMetadata) -> None:
            flush(metadata)
            # Blocks of a preempted request are given away now. A copy that still reads them would end the engine here.
            assert not metadata.need_flush or not half._jobs.unfinished_tasks

        half._copy = copy_through_gate
        half.handle_preemptions = flush_all
