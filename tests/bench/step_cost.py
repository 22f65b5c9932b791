"""What a scheduler step costs in the connector: `build_connector_meta` with many running requests, policy by policy.

    python tests/bench/step_cost.py [--requests 256] [--blocks 1000] [--evict 64] [--steps 200] [--json]

No model and no timed assertion: vLLM's real Scheduler decodes one token a request and step; only the hook is timed.
`stock` is vLLM's own class in the same run, and every figure is also given as a ratio to it. With `--evict N`, N blocks
of running requests are evicted from the CPU tier before each step, through the pool's own allocation.
"""

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "connector"))

from harness import BLOCK, Engine, prompt

from connector.policy import Policy

POLICIES = {
    "stock": None,
    "off": Policy(enabled=False),
    "tracked": Policy(max_restore_blocks_per_step=0),
    "rescan": Policy(mode="rescan", max_restore_blocks_per_step=0),
}


def build(folder: Path, policy: Policy | None, requests: int, blocks: int) -> Engine:
    """`requests` running requests of `blocks` stored blocks each, all in their decode."""
    total = requests * (blocks + 40)
    engine = Engine(
        folder,
        gpu_blocks=total + 64,
        cpu_blocks=total + 64,
        policy=policy,
        connector="ReStoreConnector" if policy else "SimpleCPUOffloadConnector",
        max_num_batched_tokens=max(65_536, requests * 2),
        max_num_seqs=requests,
    )
    for n in range(requests):
        tokens = prompt(n, blocks, extra=1)
        tokens[0] = n  # one token apart is a chain apart
        engine.add(f"r{n}", tokens, max_tokens=16 * 39)
    while any(r.num_output_tokens < 3 for r in engine.requests.values()):
        engine.step()
    return engine


def measure(engine: Engine, steps: int, evict: int, seed: int) -> list[float]:
    """Microseconds a step in `build_connector_meta`."""
    manager = engine.manager
    inner = manager.build_connector_meta
    taken: list[float] = []

    def timed(output):
        start = time.perf_counter_ns()
        meta = inner(output)
        taken.append((time.perf_counter_ns() - start) / 1_000)
        return meta

    manager.build_connector_meta = timed
    rng = random.Random(seed)
    pool = manager.cpu_block_pool
    cached = pool.cached_block_hash_to_block
    keys = [key for r in engine.requests for key in engine.keys(r)] if evict else []
    gc.collect()
    gc.freeze()
    for _ in range(steps):
        lost = 0
        while lost < evict:
            block = cached.get_one_block(rng.choice(keys))
            if block is None or block.ref_cnt:
                continue
            pool.free_block_queue.remove(block)
            pool.free_block_queue.prepend_n([block])
            pool.free_blocks(pool.get_new_blocks(1))
            lost += 1
        engine.step()
    gc.unfreeze()
    manager.build_connector_meta = inner
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--blocks", type=int, default=1_000)
    parser.add_argument("--evict", type=int, default=64)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for name in args.policies.split(","):
        steps = min(args.steps, 20) if name == "rescan" else args.steps
        with tempfile.TemporaryDirectory() as folder:
            engine = build(Path(folder), POLICIES[name], args.requests, args.blocks)
            idle = measure(engine, steps, 0, seed=1)
            busy = measure(engine, steps, args.evict, seed=2)
            engine.close()
        rows.append({"policy": name, "idle_us": statistics.median(idle), "evicting_us": statistics.median(busy)})
        print(f"{name}: done", file=sys.stderr)
    base = rows[0]
    for row in rows:
        row["idle_ratio"] = row["idle_us"] / base["idle_us"]
        row["evicting_ratio"] = row["evicting_us"] / base["evicting_us"]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"build_connector_meta, median µs a step: {args.requests} requests x {args.blocks} blocks of {BLOCK} tokens")
    print(f"{'policy':>10} {'nothing lost':>14} {'ratio':>8} {f'{args.evict} lost a step':>18} {'ratio':>8}")
    for r in rows:
        print(
            f"{r['policy']:>10} {r['idle_us']:>14,.1f} {r['idle_ratio']:>8.2f}"
            f" {r['evicting_us']:>18,.1f} {r['evicting_ratio']:>8.2f}"
        )


if __name__ == "__main__":
    main()
