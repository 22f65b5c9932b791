"""The class that vLLM loads: it puts our halves in the place of the stock ones, and delegates.

Engine ring. Built twice, once in the scheduler's process and once in each worker's; `role` says which.
"""

from typing import TYPE_CHECKING, Any

from vllm.config import VllmConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import SimpleCPUOffloadConnector
from vllm.logger import init_logger
from vllm.platforms import current_platform
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

from connector import log
from connector.engine_info import block_bytes_of, engine_info, why_not
from connector.engine_row import EngineInfo
from connector.prom_metrics import (
    ReStorePromMetrics,
    ReStoreStats,
    ReStoreStatsSource,
    StatsSource,
    StockStatsSource,
)
from connector.recorder import Pen, Recorder
from connector.scheduler import ReStoreScheduler
from connector.worker import HostCopyWorker

if TYPE_CHECKING:
    from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorMetadata, KVConnectorTransferResults
    from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

logger = init_logger("vllm.restore")

SCHEDULER_HALVES = ("restore", "stock")


class ReStoreConnector(SimpleCPUOffloadConnector):
    """vLLM's `SimpleCPUOffloadConnector` with re-store, an event log, and a worker for KV caches in host memory.

    It takes the stock connector's `kv_connector_extra_config`, and two keys more:

    - `restore_db`: the log, as a SQLite URL or a path (else the environment's `RESTORE_DB`, else the user's data
      folder).
    - `restore_scheduler`: `"restore"`, or `"stock"` for vLLM's own scheduler half, unchanged and without a log: the
      baseline on machines whose KV cache is host memory, where vLLM's own connector cannot run.

    Raises:
        ValueError: an unknown `restore_scheduler`.
        connector.log.LogError: the log cannot be used. That is said at start, where it can be mended.
    """

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        self._recorder: Pen | None = None
        self._stats: StatsSource | None = None
        if role == KVConnectorRole.SCHEDULER:
            self._start_scheduler_half(vllm_config, kv_cache_config)
        elif self.worker_handler is not None and current_platform.is_cpu():
            self.worker_handler = HostCopyWorker(self.worker_handler)

    # --- scheduler half ---------------------------------------------------------------------------------------------

    def _start_scheduler_half(self, vllm_config: VllmConfig, kv_cache_config: "KVCacheConfig") -> None:
        extra = self._kv_transfer_config.kv_connector_extra_config or {}
        half = extra.get("restore_scheduler", "restore")
        if half not in SCHEDULER_HALVES:
            raise ValueError(f"restore_scheduler must be one of {', '.join(SCHEDULER_HALVES)}, not {half!r}")
        if half == "stock":
            logger.info("The scheduler half is vLLM's own, as restore_scheduler says; nothing is logged")
            self._stats = StockStatsSource(block_bytes_of(kv_cache_config))
            return
        reason = why_not(self.scheduler_manager)
        info = engine_info(vllm_config, kv_cache_config, self.scheduler_manager, reason)
        self._recorder = self._open_recorder(extra, info)
        if self.scheduler_manager is None or reason is not None:
            logger.warning("Re-store does not apply here (%s): this engine does what stock vLLM does", reason)
            return
        self.scheduler_manager = ReStoreScheduler(self.scheduler_manager, self._recorder)
        self._stats = ReStoreStatsSource(self.scheduler_manager, self._recorder)

    def _open_recorder(self, extra: dict[str, Any], info: EngineInfo) -> Pen:
        """The pen. `extra`: the `kv_connector_extra_config`."""
        url = log.resolve_url(extra.get("restore_db"))
        log.upgrade(url)
        return Recorder(url, info)

    def bind_kv_cache_manager(self, kv_cache_manager: "KVCacheManager") -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        if isinstance(self.scheduler_manager, ReStoreScheduler):
            self.scheduler_manager.bind_kv_cache_manager(kv_cache_manager)

    def on_new_request(self, request: "Request") -> None:
        if isinstance(self.scheduler_manager, ReStoreScheduler):
            self.scheduler_manager.on_new_request(request)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> "KVConnectorMetadata":
        meta = super().build_connector_meta(scheduler_output)
        if isinstance(self._stats, StockStatsSource) and isinstance(meta, SimpleCPUOffloadMetadata):
            self._stats.count(meta)
        return meta

    # --- stats ------------------------------------------------------------------------------------------------------

    def get_kv_connector_stats(self) -> "KVConnectorStats | None":
        stats = super().get_kv_connector_stats()
        # vLLM asks worker-side connectors as well, also ones that were never initialised.
        source: StatsSource | None = getattr(self, "_stats", None)
        return stats if stats is None or source is None else source.join(stats)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> "KVConnectorStats | None":
        return ReStoreStats() if data is None else ReStoreStats(data)

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: Any,
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> ReStorePromMetrics:
        return ReStorePromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    # --- worker half ------------------------------------------------------------------------------------------------

    def get_transfer_results(self, finished_req_ids: set[str]) -> "KVConnectorTransferResults":
        results = super().get_transfer_results(finished_req_ids)
        if isinstance(self.worker_handler, HostCopyWorker):
            results.failed_recving |= self.worker_handler.take_failed_requests()
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        if isinstance(self.worker_handler, HostCopyWorker):
            return self.worker_handler.take_load_errors()
        return super().get_block_ids_with_load_errors()

    # --- both -------------------------------------------------------------------------------------------------------

    def shutdown(self) -> Any:
        """Flush the log, end the copy thread."""
        if self._recorder is not None:
            self._recorder.close()
        if isinstance(self.worker_handler, HostCopyWorker):
            self.worker_handler.shutdown()
        return super().shutdown()
