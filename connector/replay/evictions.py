"""Counts what vLLM's own connectors evict; they do not count it. Engine ring."""

from collections.abc import Callable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector import SimpleCPUOffloadConnector

from connector.kv_connector import ReStoreConnector
from connector.observer import EvictionObserver


def count_evictions(connector: Any) -> Callable[[], int]:
    """Watch a connector that has just been built. What is returned says how many blocks it has evicted so far; 0 for
    our own, which counts by itself."""
    if isinstance(connector, OffloadingConnector):
        return _of_native(connector.scheduler.manager)
    if isinstance(connector, SimpleCPUOffloadConnector) and not isinstance(connector, ReStoreConnector):
        assert connector.scheduler_manager is not None
        return _of_pool(connector.scheduler_manager.cpu_block_pool)
    return lambda: 0


def _of_pool(pool: Any) -> Callable[[], int]:
    count = 0
    observer = EvictionObserver(_refuse)
    pool.metrics_collector = observer

    def so_far() -> int:
        nonlocal count
        count += len(observer.drain())
        return count

    return so_far


def _of_native(manager: Any) -> Callable[[], int]:
    """The manager says what it evicts in the answer to each store."""
    count = 0
    prepare = manager.prepare_store

    def prepare_store(*args: Any) -> Any:
        nonlocal count
        prepared = prepare(*args)
        if prepared is not None:
            count += len(prepared.evicted_keys)
        return prepared

    manager.prepare_store = prepare_store
    return lambda: count


def _refuse(origin: str, error: Exception) -> None:
    raise RuntimeError(f"evictions cannot be counted: {origin}") from error
