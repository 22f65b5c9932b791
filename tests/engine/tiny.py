"""A model of two small layers with weights of its own making, for tests that need many steps and not a word of sense.

Its greedy answers hang on every token of the prompt, so that a KV block with the wrong content changes them. The tests
of the engine import it.
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from app import embedded_model
from tests.engine.server import BLOCK

NAME = "tiny"
PATIENT = Path(__file__).resolve().with_name("patient")
"""The folder of a `sitecustomize.py`."""
MAX_MODEL_LEN = 512
LAYERS = 2
HIDDEN = 64
MLP = 128
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 32
BLOCK_BYTES = LAYERS * 2 * KV_HEADS * HEAD_DIM * 4 * BLOCK
"""Layers, key and value, heads, numbers, bytes, tokens: of all ranks together."""


def make_tiny_model(folder: Path) -> Path:
    """The model's config, without weights (`--load-format dummy` makes them up), and the embedded model's tokenizer."""
    source = embedded_model.folder()
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(source / name, folder / name)
    config = json.loads((source / "config.json").read_text())
    config |= {
        "num_hidden_layers": LAYERS,
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def make_weighted_model(folder: Path) -> Path:
    """The same with random weights, drawn so wide that attention decides what is said. They are the same in every run,
    and on one rank as on two."""
    vocabulary = json.loads((make_tiny_model(folder) / "config.json").read_text())["vocab_size"]
    draw = np.random.default_rng(20)

    def random(rows: int, columns: int, gain: float) -> np.ndarray:
        return (draw.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    weights = {
        "model.embed_tokens.weight": random(vocabulary, HIDDEN, HIDDEN**0.5),
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": random(vocabulary, HIDDEN, 1),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            prefix + "input_layernorm.weight": np.ones(HIDDEN, np.float32),
            prefix + "post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
            prefix + "self_attn.q_proj.weight": random(HEADS * HEAD_DIM, HIDDEN, 1),
            prefix + "self_attn.k_proj.weight": random(KV_HEADS * HEAD_DIM, HIDDEN, 1),
            prefix + "self_attn.v_proj.weight": random(KV_HEADS * HEAD_DIM, HIDDEN, 6),
            prefix + "self_attn.o_proj.weight": random(HIDDEN, HEADS * HEAD_DIM, 6),
            prefix + "mlp.gate_proj.weight": random(MLP, HIDDEN, 2),
            prefix + "mlp.up_proj.weight": random(MLP, HIDDEN, 2),
            prefix + "mlp.down_proj.weight": random(HIDDEN, MLP, 2),
        }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def flags(model: Path, *, gpu_blocks: int, cpu_blocks: int, ranks: int = 1) -> tuple[str, ...]:
    """Arguments of `vllm-restore serve` for this model, as `NAME`.

    Both counts are of blocks that can be used, beside vLLM's null block in each pool. A step takes two blocks of
    tokens, so that a long prompt is computed over many steps.
    """
    size = "--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use"
    return (
        *(str(model), "--served-model-name", NAME, "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(MAX_MODEL_LEN), "--block-size", str(BLOCK)),
        *("--max-num-batched-tokens", str(2 * BLOCK), "--tensor-parallel-size", str(ranks)),
        *("--kv-cache-memory-bytes", str((gpu_blocks + 1) * BLOCK_BYTES // ranks)),
        *(size, str((cpu_blocks + 1) * BLOCK_BYTES)),
    )


def environment(ranks: int) -> dict[str, str]:
    """Each rank gets a core. Left alone, one takes all of them, and its threads wait for each other longer than they
    compute; two want a NUMA node each. Two wait without yielding their cores."""
    cores = sorted(os.sched_getaffinity(0))[-ranks:]
    bind = {"VLLM_CPU_OMP_THREADS_BIND": "|".join(map(str, cores))}
    return bind if ranks == 1 else bind | {"PYTHONPATH": python_path(PATIENT)}


def python_path(*folders: Path) -> str:
    """The value of `PYTHONPATH` that puts these folders and the project before what is there."""
    root = Path(__file__).resolve().parents[2]
    return os.pathsep.join([*map(str, folders), str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
