"""Traces in Mooncake's shape (`timestamp`, `input_length`, `output_length`, `hash_ids`): made up, and played to an
engine without a model. A hash id stands for one block of content here, so that long prompts play in seconds.

Test support.
"""

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from harness import BLOCK, Engine


def make_up(seed: int, num_requests: int) -> list[dict[str, Any]]:
    """Conversations that come back, each turn with all that was said before, beside prompts that share a head only."""
    rng = random.Random(seed)
    talks: list[list[int]] = []
    rows: list[dict[str, Any]] = []
    fresh = 1_000
    for n in range(num_requests):
        if talks and rng.random() < 0.6:
            ids = talks[-1 - min(int(rng.expovariate(0.25)), len(talks) - 1)]
        else:
            ids = [rng.randrange(3)]
            talks.append(ids)
        new = rng.randrange(1, 8)
        ids += range(fresh, fresh + new)
        fresh += new
        rows.append(
            {
                "timestamp": n * 300,
                "input_length": len(ids) * 512 - rng.randrange(512),
                "output_length": rng.randrange(1, 40),
                "hash_ids": list(ids),
            }
        )
        if len(ids) > 24:
            talks.remove(ids)
    return rows


def read(path: Path, num_rows: int) -> list[dict[str, Any]]:
    """The first rows of a trace, gzipped or not."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines:
        return [json.loads(line) for line in islice(lines, num_rows)]


def play(engine: Engine, rows: Iterable[dict[str, Any]], *, ms_a_step: int, max_blocks: int = 40) -> None:
    """Play a trace: a request arrives in the step in which its time has come, cut to `max_blocks` blocks."""
    step = 0
    for n, row in enumerate(rows):
        while step * ms_a_step < row["timestamp"]:
            engine.step()
            step += 1
        ids: Sequence[int] = row["hash_ids"][:max_blocks]
        rest = row["input_length"] % 512 * BLOCK // 512
        length = (len(ids) - 1) * BLOCK + max(1, rest if len(ids) == len(row["hash_ids"]) else BLOCK)
        tokens = [token for number in ids for token in _content(number)][:length]
        engine.add(f"trace{n}", tokens, max_tokens=max(1, row["output_length"] // 8))
    engine.settle(20_000)


def _content(number: int) -> list[int]:
    """The tokens of one hash id: the first two tell it from all others."""
    return [number % 49_999, number // 49_999, *range(BLOCK - 2)]
