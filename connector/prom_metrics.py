"""Carries our sums into vLLM's own `/metrics`, beside those of vLLM's connector, by vLLM's hooks for connectors' stats.

Engine ring. `ReStoreStats` is made by the scheduler's process, travels with vLLM's own stats after each step, and
`ReStorePromMetrics` takes it in where `/metrics` is served. The stock class's part of it stays what it was, also in
what vLLM logs every ten seconds.
"""

from collections.abc import Callable
from importlib.metadata import version
from itertools import product
from typing import TYPE_CHECKING, Any

import vllm
from prometheus_client import REGISTRY
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.logger import init_logger
from vllm.v1.simple_kv_offload.metrics import SimpleCPUOffloadPromMetrics, SimpleCPUOffloadStats

from connector.metrics import INFO, METRICS, POLICIES, PREFIX, STOCK, Labels, Metric, Metrics, Values

if TYPE_CHECKING:
    from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

    from connector.recorder import Pen
    from connector.scheduler import ReStoreScheduler

logger = init_logger("vllm.restore.metrics")

OURS = "restore"
"""Our part of the payload. The stock class looks at its own keys only."""
_KINDS = {m.name: m.kind for m in (*METRICS, INFO)}


class ReStoreStats(SimpleCPUOffloadStats):
    """The stock stats, and in `data["restore"]` ours since the last time."""

    @property
    def ours(self) -> Values:
        """By metric and values of its own labels."""
        return self.data.setdefault(OURS, {})

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Counters add up, observations join, of gauges the newer one holds."""
        super().aggregate(other)
        for name, theirs in other.data.get(OURS, {}).items():
            series = self.ours.setdefault(name, {})
            for labels, value in theirs.items():
                is_sum = _KINDS.get(name) != "gauge"
                series[labels] = series[labels] + value if is_sum and labels in series else value
        return self


class StatsSource:
    """What one engine has to say after a step, beside vLLM's connector. After a fault of its own it says no more.

    Args:
        policy: the label of the policy that holds now.
    """

    def __init__(self, policy: Callable[[], str]) -> None:
        self._policy = policy
        self._is_broken = False
        self._info = (version("vllm-restore"), vllm.__version__)
        self.metrics = Metrics(policy)

    def join(self, stock: SimpleCPUOffloadStats) -> SimpleCPUOffloadStats:
        """The stock stats with ours beside them; the stock stats alone after a fault of ours."""
        if self._is_broken:
            return stock
        try:
            return ReStoreStats({**stock.data, OURS: self._take()})
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._stop(e)
            return stock

    def _take(self) -> Values:
        policy = self._policy()
        return self.metrics.take() | {"policy": {(p,): int(p == policy) for p in POLICIES}, INFO.name: {self._info: 1}}

    def _stop(self, e: Exception) -> None:
        self._is_broken = True
        logger.exception("The metrics of re-store stop here after a fault: %s", e)


class ReStoreStatsSource(StatsSource):
    """Of our scheduler half.

    Args:
        manager: its journal is listened to from now on.
        recorder: knows what is missing from the log.
    """

    def __init__(self, manager: "ReStoreScheduler", recorder: "Pen") -> None:
        super().__init__(self._obeyed)
        self._manager = manager
        self._recorder = recorder
        self._num_dropped = 0
        manager._journal.on_event = self.metrics.count

    def _obeyed(self) -> str:
        """What the log says is obeyed. The scheduler half hears of it as its next step begins, and alone knows that a
        fault has turned re-store off."""
        applied = self._recorder.applied
        obeyed = self._manager._restorer.policy if applied is self._manager._versioned else applied.policy
        return obeyed.label

    def _take(self) -> Values:
        if new := self._recorder.num_dropped - self._num_dropped:
            self.metrics.add("log_dropped_events_total", (), new)
            self._num_dropped += new
        manager, tier = self._manager, self._manager._tier
        cached, in_flight = tier.num_resident, tier.num_in_flight
        return super()._take() | {
            "tier_blocks": {
                # vLLM keeps one block for itself.
                ("free",): manager.cpu_block_pool.num_gpu_blocks - 1 - cached - in_flight,
                ("cached",): cached,
                ("in_flight",): in_flight,
            },
            "restorable_blocks": {(): manager._owners.num_lost},
            "policy_version": {(): self._recorder.applied.version},
        }


class StockStatsSource(StatsSource):
    """Of vLLM's own scheduler half, without a log: the copies that its steps order.

    Args:
        block_bytes: all layers of one rank.
    """

    def __init__(self, block_bytes: int) -> None:
        super().__init__(lambda: STOCK)
        self._block_bytes = block_bytes

    def count(self, meta: "SimpleCPUOffloadMetadata") -> None:
        """Count one step's copies."""
        if self._is_broken:
            return
        try:
            for operation, blocks in (("store", meta.store_gpu_blocks), ("load", meta.load_gpu_blocks)):
                if blocks:
                    self.metrics.add("copied_blocks_total", (operation, STOCK), len(blocks))
                    self.metrics.add("copied_bytes_total", (operation, STOCK), len(blocks) * self._block_bytes)
        except Exception as e:  # noqa: BLE001 - boundary to vLLM
            self._stop(e)


class ReStorePromMetrics(SimpleCPUOffloadPromMetrics):
    """The stock metrics, unchanged, and ours."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        # vLLM does so with its own when it is built a second time in one process.
        for collector in list(REGISTRY._collector_to_names):
            if getattr(collector, "_name", "").startswith(PREFIX):
                REGISTRY.unregister(collector)
        self._ours = {m.name: self._register(m) for m in (*METRICS, INFO)}
        self._children: dict[tuple[int, str, Labels], Any] = {}
        self._is_broken = False
        for metric in METRICS:
            for labels in product(*metric.labels.values()) if metric.is_full else ():
                for engine in per_engine_labelvalues:
                    self._child(engine, metric.name, labels)

    def _register(self, metric: Metric) -> Any:
        wanted: dict[str, Any] = {
            "name": PREFIX + metric.name,
            "documentation": metric.help,
            "labelnames": [*self._labelnames, *metric.labels],
        }
        match metric.kind:
            case "counter":
                return self._counter_cls(**wanted)
            case "gauge":
                return self._gauge_cls(**wanted, multiprocess_mode="mostrecent")
            case "histogram":
                return self._histogram_cls(**wanted, buckets=list(metric.buckets))

    def _child(self, engine: int, name: str, labels: Labels) -> Any:
        key = (engine, name, labels)
        if (child := self._children.get(key)) is None:
            child = self._ours[name].labels(*self.per_engine_labelvalues[engine], *labels)
            self._children[key] = child
        return child

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        super().observe(transfer_stats_data, engine_idx)
        if self._is_broken:
            return
        try:
            for name, series in transfer_stats_data.get(OURS, {}).items():
                for labels, value in series.items():
                    child = self._child(engine_idx, name, tuple(labels))
                    match _KINDS[name]:
                        case "counter":
                            child.inc(value)
                        case "gauge":
                            child.set(value)
                        case "histogram":
                            for seconds, times in value:
                                for _ in range(times):
                                    child.observe(seconds)
        except Exception as e:
            self._is_broken = True
            logger.exception("The metrics of re-store stop here after a fault: %s", e)
