"""What vLLM answers without this project's scheduler half: the yardstick for greedy answers.

Run as a program of its own (`python -m tests.engine.references KIND FILE`), since a second engine has no place in the
process of the tests: prompts as JSON on stdin, answers as JSON in the file that is named.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.engine import tiny
from tests.engine.server import BLOCK, BLOCK_BYTES, CPU_BLOCKS, GPU_BLOCKS

Kind = Literal["none", "stock"]
"""No connector; or vLLM's own scheduler half over the host copy worker."""
IN_ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
"""Front end, engine and worker would load vLLM one after the other, and then wait for each other at work. One thread,
since two such engines run side by side, or one beside a server that starts."""


@dataclass(frozen=True)
class Answers:
    """Greedy answers as tokens, and those to the first prompts after the GPU's prefix cache was emptied.

    `num_cached`: how many of each of these prompts' tokens came from a cache then.
    """

    first: list[list[int]]
    again: list[list[int]]
    num_cached: list[int]


def answers_of(kind: Kind, prompts: list[list[int]], max_tokens: int, folder: Path, num_again: int) -> Answers:
    """Answers every prompt, one after the other, and so many of them again, in an engine of its own with the embedded
    model."""
    from app import embedded_model

    engine = {
        "model": str(embedded_model.folder()),
        "max_model_len": 1024,
        "kv_cache_memory_bytes": GPU_BLOCKS * BLOCK_BYTES,
    }
    job = {"prompts": prompts, "max_tokens": max_tokens, "engine": engine, "num_again": num_again}
    return _answers_of(job, kind, folder, IN_ONE_PROCESS)


def tiny_answers_of(
    model: Path, prompts: list[list[int]], max_tokens: int, folder: Path, ranks: int = 1
) -> list[list[int]]:
    """The tiny model's answers without a connector, on so many ranks, with room for all prompts at once."""
    needed = sum(-(-(len(prompt) + max_tokens) // BLOCK) for prompt in prompts)
    engine = {
        "model": str(model),
        "max_model_len": tiny.MAX_MODEL_LEN,
        "kv_cache_memory_bytes": (needed + 1) * tiny.BLOCK_BYTES // ranks,
        "tensor_parallel_size": ranks,
    }
    job = {"prompts": prompts, "max_tokens": max_tokens, "engine": engine, "num_again": 0}
    return _answers_of(job, "none", folder, IN_ONE_PROCESS if ranks == 1 else tiny.environment(ranks)).first


def _answers_of(job: dict[str, Any], kind: Kind, folder: Path, environment: dict[str, str]) -> Answers:
    answers = folder / f"answers-{kind}.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.references", kind, str(answers)],
        input=json.dumps(job),
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Answers(**json.loads(answers.read_text()))


def main() -> None:
    """Answers the prompts on stdin, and so many of them again as the job says."""
    kind, file = sys.argv[1], Path(sys.argv[2])
    # Without a connector: an empty list, so that nothing of this project is loaded.
    os.environ["VLLM_PLUGINS"] = "" if kind == "none" else "vllm_restore"
    from vllm import LLM, SamplingParams

    job = json.load(sys.stdin)
    transfer = {
        "kv_connector": "ReStoreConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "restore_scheduler": "stock",
            "cpu_bytes_to_use": CPU_BLOCKS * BLOCK_BYTES,
        },
    }
    engine = LLM(
        **job["engine"],
        dtype="float32",
        enforce_eager=True,
        block_size=BLOCK,
        kv_transfer_config=transfer if kind == "stock" else None,
        disable_log_stats=False,
    )
    sampling = SamplingParams(temperature=0, max_tokens=job["max_tokens"], ignore_eos=True)

    def answer(prompts: list[list[int]]) -> tuple[list[list[int]], list[int]]:
        outputs = [engine.generate({"prompt_token_ids": prompt}, sampling, use_tqdm=False)[0] for prompt in prompts]
        return [list(o.outputs[0].token_ids) for o in outputs], [o.num_cached_tokens or 0 for o in outputs]

    first, _ = answer(job["prompts"])
    assert engine.reset_prefix_cache()
    again, num_cached = answer(job["prompts"][: job["num_again"]])
    file.write_text(json.dumps({"first": first, "again": again, "num_cached": num_cached}))


if __name__ == "__main__":
    main()
