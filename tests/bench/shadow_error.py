"""How far a shadow is from the engine on traces in Mooncake's form, played on vLLM's real scheduler without a model.

    python tests/bench/shadow_error.py TRACE.jsonl.gz... [--rows 400] [--gpu-blocks 600] [--cpu-blocks 1000,4000]
        [--ms-a-step 300] [--batch 256] [--copy-steps 1] [--json]

Each trace is played once a policy and size, with the log on. From each log two things are asked: what the shadow of the
policy that was obeyed gives (`own`, in percentage points from the engine), and what the shadow of the other policy
gives (`other`, in points from what the engine gave when it was played under that other policy).
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "connector"))

import mooncake
from harness import BLOCK, Engine

from app.queries.traffic import newest_engine, read_shape
from app.shadow_feed import ACTIVE, ShadowFeed
from connector import log
from connector.policy import Policy
from connector.shadow import ShadowTier

POLICIES = {"off": Policy(enabled=False), "tracked": Policy()}
OTHER = {"off": "tracked", "tracked": "off"}
ALL = (0, 2**63)


class Machine(Engine):
    """Nobody looks at the bytes here: that they are right is what the tests are for."""

    def _forward(self, passes: list[Any]) -> None:
        pass

    def _write(self, p: Any, computed: int) -> None:
        pass


def measure(rows: Sequence[dict[str, Any]], policy: str, cpu_blocks: int, args: argparse.Namespace) -> dict[str, Any]:
    """Play one trace under one policy and ask its log."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        engine = Machine(
            Path(folder),
            gpu_blocks=args.gpu_blocks,
            cpu_blocks=cpu_blocks,
            policy=POLICIES[policy],
            max_num_batched_tokens=args.batch,
            copy_steps=args.copy_steps,
        )
        mooncake.play(engine, rows, ms_a_step=args.ms_a_step, max_blocks=args.max_blocks)
        engine.close()
        played = time.perf_counter()
        with log.open_reader(engine.url).begin() as conn:
            shape = read_shape(conn, newest_engine(conn) or 0)
            assert shape is not None
            tiers = {ACTIVE: ShadowTier("off", shape.num_blocks, shape.groups)}
            tiers[OTHER[policy]] = ShadowTier(
                "off" if policy == "tracked" else "tracked", shape.num_blocks, shape.groups
            )
            feed = ShadowFeed(shape, tiers)
            while feed.take(conn, 2_000):
                pass
        truth = feed.truth.total(*ALL)
        own, other = feed.series[ACTIVE].total(*ALL), feed.series[OTHER[policy]].total(*ALL)
        assert truth.hit_rate is not None
        assert own.hit_rate is not None
        assert other.hit_rate is not None
        return {
            "policy": policy,
            "cpu_blocks": cpu_blocks,
            "num_lookups": feed.num_lookups,
            "hit_rate": 100 * truth.hit_rate,
            "cpu_hit_rate": 100 * truth.cpu_hit_tokens / truth.prompt_tokens,
            "own_points": 100 * (own.hit_rate - truth.hit_rate),
            "other_rate": 100 * other.hit_rate,
            "play_seconds": played - begun,
            "shadow_seconds": time.perf_counter() - played,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+", type=Path, metavar="TRACE")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--gpu-blocks", type=int, default=600)
    parser.add_argument("--cpu-blocks", default="1000,4000")
    parser.add_argument("--max-blocks", type=int, default=60, help="of a prompt; the rest is cut off")
    parser.add_argument("--ms-a-step", type=int, default=300)
    parser.add_argument("--batch", type=int, default=256, help="tokens a step")
    parser.add_argument("--copy-steps", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    if not args.json:
        print(f"GPU {args.gpu_blocks} blocks of {BLOCK} tokens; the first {args.rows:,} rows of each trace")
        print(f"{'trace':>28} {'CPU':>6} {'policy':>8} {'hits':>7} {'CPU':>7} {'own':>7} {'other':>7}   seconds")
    for trace in args.traces:
        rows = mooncake.read(trace, args.rows)
        for cpu_blocks in map(int, args.cpu_blocks.split(",")):
            both = [measure(rows, policy, cpu_blocks, args) for policy in POLICIES]
            for mine, theirs in zip(both, reversed(both), strict=True):
                mine["trace"] = trace.name
                mine["other_points"] = mine["other_rate"] - theirs["hit_rate"]
                found.append(mine)
                if not args.json:
                    print(
                        f"{trace.name.split('.')[0]:>28} {cpu_blocks:>6,} {mine['policy']:>8} {mine['hit_rate']:>6.2f}%"
                        f" {mine['cpu_hit_rate']:>6.2f}% {mine['own_points']:>+7.2f} {mine['other_points']:>+7.2f}"
                        f"   {mine['play_seconds']:.0f} + {mine['shadow_seconds']:.0f}",
                        flush=True,
                    )
    if args.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
