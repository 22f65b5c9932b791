"""What an engine says of itself in the log's `engines` table, and whether re-store applies to it.

Engine ring.
"""

from importlib.metadata import version
from typing import TYPE_CHECKING

import vllm
from vllm.config import VllmConfig
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from connector.engine_row import EngineInfo, KVGroup
from connector.layout import window_of
from connector.scheduler import directory_capacity

if TYPE_CHECKING:
    from vllm.v1.kv_cache_interface import KVCacheConfig


# The hooks are vLLM's internals: another version may call them otherwise. docs/vllm-versions.md says how to move on.
MADE_FOR = "0.32"


def why_not(manager: SimpleCPUOffloadScheduler | None) -> str | None:
    """Why this engine cannot re-store, in a few words; None where it can."""
    if not vllm.__version__.startswith(f"{MADE_FOR}."):
        return f"this is vLLM {vllm.__version__}, and the connector was made for {MADE_FOR}"
    if manager is None:
        return "prefix caching is disabled"
    if manager.kv_event_medium != "CPU":
        return "the tier is on disk (kv_offload_backend=disk)"
    if manager._lazy_mode:
        return "lazy_offload stores what the GPU is about to evict, not what requests run"
    return None


def block_bytes_of(kv_cache_config: "KVCacheConfig") -> int:
    """Bytes of one block, all layers of one rank."""
    return kv_cache_config.kv_cache_tensors[0].size // kv_cache_config.num_blocks


def engine_info(
    vllm_config: VllmConfig,
    kv_cache_config: "KVCacheConfig",
    manager: SimpleCPUOffloadScheduler | None,
    reason: str | None,
) -> EngineInfo:
    """Describe the engine that is starting. Blocks without vLLM's null block; bytes for all layers of one rank."""
    transfer = vllm_config.kv_transfer_config
    assert transfer is not None
    _, hash_block_size = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)
    sizes = (
        manager.group_block_sizes if manager is not None else [hash_block_size] * len(kv_cache_config.kv_cache_groups)
    )
    cacheable = manager.prefix_cacheable_group_ids if manager is not None else ()
    return EngineInfo(
        engine_uid=transfer.engine_id or "",
        dp_index=vllm_config.parallel_config.data_parallel_index,
        model=_served_name(vllm_config),
        vllm_version=vllm.__version__,
        restore_version=version("vllm-restore"),
        hash_block_size=hash_block_size,
        num_gpu_blocks=kv_cache_config.num_blocks - 1,
        num_cpu_blocks=manager.num_cpu_blocks - 1 if manager is not None else 0,
        block_bytes=block_bytes_of(kv_cache_config),
        kv_groups=tuple(
            KVGroup(
                sizes[g],
                type(group.kv_cache_spec).__name__,
                g in cacheable,
                window_of(group.kv_cache_spec),
                manager is not None and manager.cpu_coordinator.single_type_managers[g].use_eagle,
                vllm_config.num_speculative_tokens,
            )
            for g, group in enumerate(kv_cache_config.kv_cache_groups)
        ),
        restore_support=reason or "yes",
        directory_capacity=directory_capacity(manager) if manager is not None and reason is None else None,
    )


def _served_name(vllm_config: VllmConfig) -> str:
    name = vllm_config.model_config.served_model_name or vllm_config.model_config.model
    return name if isinstance(name, str) else name[0]
