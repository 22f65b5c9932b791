"""Step engines at random for a long time, with every invariant looked at after each operation.

    python tests/connector/soak.py [--minutes 60] [--first-seed 0] [--seed N]

No model is involved. Each seed draws an engine and some two hundred operations. Prints progress, stops at the first
finding with its seed and operations, and exits with 1 then; `--seed N` runs one seed again.
"""

# It speaks to a person at a terminal.
# ruff: noqa: T201

import argparse
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from chaos import Chaos, Owner
from regimes import LAYOUTS, draw_features

from connector.policy import Policy

NUM_OPERATIONS = 200
PROGRESS_SECONDS = 10
WEIGHTS = {
    "step": 40,
    "add": 20,
    "extend": 6,
    "end_input": 1,
    "end": 8,
    "evict": 10,
    "slow_copies": 5,
    "fail_copies": 4,
    "change_policy": 3,
    "preempt_all": 4,
    "reset_tier": 2,
    "reset_all": 3,
}


def draw_policy(rng: random.Random, retention: str | None = None) -> dict[str, object]:
    return {
        "enabled": rng.random() < 0.85,
        "mode": rng.choice(["tracked", "tracked", "rescan"]),
        "max_restore_blocks_per_step": rng.choice([0, 1, 3, 64]),
        "retention": rng.choice(["lru", "lru", "adaptive"]) if retention is None else retention,
    }


def draw_operation(rng: random.Random) -> tuple[str, tuple[object, ...], dict[str, object]]:
    kind = rng.choices(
        list(WEIGHTS),
        list(WEIGHTS.values()),
    )[0]
    match kind:
        case "step":
            return kind, (rng.choice([1, 1, 2, 5, 20]),), {}
        case "add":
            shape = (rng.randrange(4), rng.randrange(6), rng.randrange(6), rng.randrange(1, 90))
            owner = Owner(rng.randrange(2), rng.choice([0, 0, 1, 2]), rng.randrange(3))
            max_tokens = rng.choice([1, 20, 60, 10_000])
            return kind, (*shape, max_tokens, owner), {"is_session": rng.random() < 0.2}
        case "extend":
            return kind, (rng.randrange(12), rng.randrange(6), rng.randrange(1, 90), rng.choice([1, 5, 40])), {}
        case "end_input":
            return kind, (rng.randrange(12),), {}
        case "reset_all":
            return kind, (), {"with_tier": rng.random() < 0.3, "with_running": rng.random() < 0.6}
        case "end":
            return kind, (rng.randrange(12),), {"is_abort": rng.random() < 0.5}
        case "evict":
            return kind, (rng.randrange(80), rng.randrange(1, 5)), {}
        case "slow_copies":
            flags = {"is_uneven": rng.random() < 0.5, "is_reversed": rng.random() < 0.5}
            return kind, (rng.randrange(5),), flags
        case "fail_copies":
            return kind, (), {"stores": rng.random() < 0.3, "loads": rng.random() < 0.5}
        case "change_policy":
            return kind, (), draw_policy(rng)
        case _:
            return kind, (), {}


def run_seed(seed: int, totals: Counter[str]) -> str | None:
    """None, or what was found."""
    rng = random.Random(seed)
    layout = rng.choice(sorted(LAYOUTS))
    sizes = rng.choice([20, 24, 40, 64, 128]), rng.choice([6, 8, 12, 20, 33, 80])
    features = draw_features(rng, layout)
    policy = draw_policy(rng)
    done: list[str] = [f"{layout} {features}, {sizes[0]} GPU and {sizes[1]} CPU blocks, {policy}"]
    with tempfile.TemporaryDirectory(prefix="restore-soak-") as folder:
        chaos = Chaos(Path(folder), layout, *sizes, Policy(**policy), features)
        try:
            for _ in range(NUM_OPERATIONS):
                kind, args, kwargs = draw_operation(rng)
                done.append(f"{kind}{args}{kwargs or ''}")
                chaos.accepted = rng.randrange(3)
                getattr(chaos, kind)(*args, **kwargs)
                chaos.watch.check()
                totals["operations"] += 1
            chaos.come_to_rest()
            chaos.close()
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            return "\n".join([*done, traceback.format_exc()])
        finally:
            totals["steps"] += len(chaos.restores)
            totals["restored blocks"] += sum(map(len, chaos.restores))
            totals["loads"] += chaos.engine.num_loads
            totals["failed loads"] += chaos.engine.num_loads_failed
            chaos.engine.close()
    totals.update(f"with {name}" for name in (layout, *features))
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int, help="run this seed only")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    first = args.first_seed if args.seed is None else args.seed
    start = said = time.monotonic()
    totals: Counter[str] = Counter()
    seed = first
    while (args.seed is None and time.monotonic() - start < args.minutes * 60) or seed == first:
        finding = run_seed(seed, totals)
        if finding is not None:
            print(f"seed {seed} found:\n{finding}", flush=True)
            return 1
        seed += 1
        if time.monotonic() - said >= PROGRESS_SECONDS:
            said = time.monotonic()
            print(f"{said - start:7.0f} s: seeds {first} to {seed - 1}, {totals['steps']} steps", flush=True)
    print(f"{seed - first} seeds ({first} to {seed - 1}), nothing found. {dict(sorted(totals.items()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
