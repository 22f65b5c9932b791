"""What vLLM's Scheduler is built from: configuration objects for a model that nobody runs.

The model is a single layer of one head; only block counts matter. A page is as large as the native offloading spec's
alignment asks for, so that every connector gets exactly the blocks it was promised.
"""

import json
import tempfile
from collections.abc import Callable
from hashlib import blake2b
from marshal import dumps
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from connector.replay.workload_file import EngineSpec

PAGE_BYTES = 4096
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 1_000,
    "torch_dtype": "float32",
}
FLOAT_BYTES = 4
KEY_AND_VALUE = 2
HASH_BYTES = 16


def content_hash(value: Any) -> bytes:
    """A block's hash, from its parent's and its tokens. Marshal's second version writes equal values alike."""
    return blake2b(dumps(value, 2), digest_size=HASH_BYTES).digest()


def build_scheduler(
    spec: EngineSpec, gpu_blocks: int, max_model_len: int, transfer: KVTransferConfig
) -> tuple[Scheduler, Callable[[Request], list[Any]]]:
    """vLLM's Scheduler, and the function that hashes requests for it.

    Args:
        gpu_blocks: the pool, vLLM's null block included.
        max_model_len: of prompt and answer, in tokens.
    """
    kv_cache = _kv_cache_config(spec.block_size, gpu_blocks)
    with tempfile.TemporaryDirectory(prefix="restore-replay-") as folder:
        # The log and the dashboard name the model as its folder is named.
        model = Path(folder) / "replay"
        model.mkdir()
        config = _vllm_config(model, spec, max_model_len, transfer)
        config.cache_config.num_gpu_blocks = gpu_blocks
        init_none_hash(content_hash)
        block_size, hash_block_size = resolve_kv_cache_block_sizes(kv_cache, config)
        scheduler = Scheduler(
            vllm_config=config,
            kv_cache_config=kv_cache,
            structured_output_manager=StructuredOutputManager(config),
            block_size=block_size,
            hash_block_size=hash_block_size,
            log_stats=False,
        )
    return scheduler, get_request_block_hasher(hash_block_size, content_hash)


def _kv_cache_config(block_size: int, num_blocks: int) -> KVCacheConfig:
    head_size = max(1, PAGE_BYTES // (block_size * FLOAT_BYTES * KEY_AND_VALUE))
    group = FullAttentionSpec(block_size=block_size, num_kv_heads=1, head_size=head_size, dtype=torch.float32)
    page = group.page_size_bytes
    size = page * num_blocks
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[KVCacheTensor(size=size, layers=["layer"], layer_stride=size, block_stride=page)],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], group)],
    )


def page_bytes(block_size: int) -> int:
    """Bytes of one block."""
    return _kv_cache_config(block_size, 1).kv_cache_tensors[0].size


def _vllm_config(folder: Path, spec: EngineSpec, max_model_len: int, transfer: KVTransferConfig) -> VllmConfig:
    (folder / "config.json").write_text(json.dumps(MODEL | {"max_position_embeddings": max_model_len}))
    return VllmConfig(
        model_config=ModelConfig(
            model=str(folder), skip_tokenizer_init=True, dtype="float32", max_model_len=max_model_len, seed=0
        ),
        cache_config=CacheConfig(block_size=spec.block_size, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=spec.max_num_seqs,
            max_num_batched_tokens=max(spec.max_num_batched_tokens, spec.max_num_seqs),
            max_model_len=max_model_len,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=False,
        ),
        kv_transfer_config=transfer,
    )
