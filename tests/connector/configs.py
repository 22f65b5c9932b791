"""What a test engine is made of: vLLM's configuration objects, and KV-cache groups from vLLM's own specs.

Test support. All groups of an engine have pages of the same size, as vLLM's own hybrid layouts have.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from vllm.config import CacheConfig, KVTransferConfig, ModelConfig, SchedulerConfig, SpeculativeConfig, VllmConfig
from vllm.v1.kv_cache_interface import (
    CircularBufferSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    KVCacheSpec,
    KVCacheTensor,
    MambaSpec,
    SlidingWindowSpec,
)

from connector.replay.setup import MODEL

BLOCK = 16
HEAD_BYTES = 4
MAX_LEN = 32_768

MODEL_CONFIG = {**MODEL, "vocab_size": 50_000, "max_position_embeddings": 65_536}


def _head_size(block_size: int) -> int:
    # A larger block has smaller heads, so that every page is as large as that of a block of 16 tokens.
    return max(1, 8 * BLOCK // block_size)


def full_attention(block_size: int = BLOCK) -> FullAttentionSpec:
    return FullAttentionSpec(
        block_size=block_size, num_kv_heads=1, head_size=_head_size(block_size), dtype=torch.float32
    )


def sliding_window(window: int = 32, block_size: int = BLOCK) -> SlidingWindowSpec:
    return SlidingWindowSpec(
        block_size=block_size,
        num_kv_heads=1,
        head_size=_head_size(block_size),
        dtype=torch.float32,
        sliding_window=window,
    )


def mamba(block_size: int = BLOCK) -> MambaSpec:
    """A state-space group whose state is kept at block boundaries (`mamba_cache_mode="align"`)."""
    page = full_attention().page_size_bytes
    return MambaSpec(
        block_size=block_size, shapes=((page // HEAD_BYTES,),), dtypes=(torch.float32,), mamba_cache_mode="align"
    )


def ring_buffer() -> CircularBufferSpec:
    """A group that no prefix cache can hold: one block a request, written round and round."""
    return CircularBufferSpec(block_size=BLOCK, num_kv_heads=1, head_size=_head_size(BLOCK), dtype=torch.float32)


def kv_cache_config(specs: Sequence[KVCacheSpec], num_blocks: int) -> KVCacheConfig:
    """One layer a group; each group's layer in an allocation of its own."""
    pages = {spec.page_size_bytes for spec in specs}
    assert len(pages) == 1, f"pages differ: {pages}"
    page = pages.pop()
    names = [f"layer.{g}" for g in range(len(specs))]
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[
            KVCacheTensor(size=page * num_blocks, layers=[n], layer_stride=page * num_blocks, block_stride=page)
            for n in names
        ],
        kv_cache_groups=[KVCacheGroupSpec([n], spec) for n, spec in zip(names, specs, strict=True)],
    )


def vllm_config(
    folder: Path,
    transfer: KVTransferConfig,
    *,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    is_async: bool,
    num_draft_tokens: int,
) -> VllmConfig:
    """`num_draft_tokens`: 0, or how many an EAGLE head proposes."""
    config = VllmConfig(
        model_config=ModelConfig(
            model=str(_model(folder / "model", MODEL_CONFIG)),
            skip_tokenizer_init=True,
            dtype="float32",
            max_model_len=MAX_LEN,
            seed=0,
        ),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=True),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            max_model_len=MAX_LEN,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
            async_scheduling=is_async,
        ),
        kv_transfer_config=transfer,
    )
    if num_draft_tokens:
        config.speculative_config = SpeculativeConfig(
            method="eagle",
            model=str(_model(folder / "draft", MODEL_CONFIG | {"architectures": ["EagleLlamaForCausalLM"]})),
            num_speculative_tokens=num_draft_tokens,
            target_model_config=config.model_config,
            target_parallel_config=config.parallel_config,
        )
    return config


def _model(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(content))
    return folder
