"""What vLLM answers without any connector: prompts as JSON on stdin, answers as JSON in the file that is named.

A program of its own, since a second engine has no place in the process of the tests.
"""

import json
import os
import sys
from pathlib import Path

from tests.engine.server import BLOCK, BLOCK_BYTES, GPU_BLOCKS


def main() -> None:
    """Answers every prompt greedily, one after the other."""
    # An empty list: no plugin, so nothing of this project is loaded.
    os.environ["VLLM_PLUGINS"] = ""
    from vllm import LLM, SamplingParams

    from app import embedded_model

    job = json.load(sys.stdin)
    engine = LLM(
        str(embedded_model.folder()),
        dtype="float32",
        enforce_eager=True,
        max_model_len=1024,
        block_size=BLOCK,
        kv_cache_memory_bytes=GPU_BLOCKS * BLOCK_BYTES,
    )
    sampling = SamplingParams(temperature=0, max_tokens=job["max_tokens"], ignore_eos=True)
    answers = [
        list(engine.generate({"prompt_token_ids": prompt}, sampling, use_tqdm=False)[0].outputs[0].token_ids)
        for prompt in job["prompts"]
    ]
    assert engine.llm_engine.vllm_config.kv_transfer_config is None
    Path(sys.argv[1]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
