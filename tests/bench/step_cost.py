"""What a scheduler step costs in the connector, beside vLLM's own class, with many running requests.

    python tests/bench/step_cost.py [--requests 256] [--blocks 1000,4000] [--policies off,tracked,...] [--json]

No model and no timed assertion: vLLM's real Scheduler decodes one token a request and step, and everything that it asks
of its connector in a step is timed: the metadata, the worker's report, the stats. Two engines, vLLM's
`SimpleCPUOffloadConnector` and ours, take the same steps in turn, so what else the machine does is felt by both alike.
Ours is switched from policy to policy as it runs, as a person would. Three kinds of step, in the same run:

- idle: no block of any request became full, as in 15 of 16 steps of each request;
- stored: 16 blocks became full: what 256 requests fill in a step, on the average;
- lost: as idle, and `--evict` blocks of running requests were evicted from the CPU tier just before.

CPU time is that of the scheduler's thread, so that other programs on the machine do not count; the wall clock is given
as well. A row's difference is the median over rounds of (median of ours - median of stock's, in that round).
"""

import argparse
import gc
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "connector"))

from harness import BLOCK, OURS, STOCK, Engine, prompt
from vllm.config import VllmConfig
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadWorkerMetadata

from connector.policy import Policy

POLICIES = {
    "off": Policy(enabled=False),
    "tracked": Policy(max_restore_blocks_per_step=0),
    "adaptive": Policy(retention="adaptive", max_restore_blocks_per_step=0),
    "adaptive-off": Policy(retention="adaptive", enabled=False),
    "rescan": Policy(mode="rescan", max_restore_blocks_per_step=0),
}
TIMED = ("build_connector_meta", "update_connector_output", "get_kv_connector_stats")
WARM_STEPS = 2 * BLOCK
LOST_STEPS = 2 * BLOCK
IDLE_PHASES, STORED_PHASES = 7, 8
"""Of 16 steps, 7 fill no block, 8 fill 16 each, and one fills the rest."""

Sample = tuple[float, float]
"""Microseconds: CPU time, wall clock."""


@dataclass
class Cost:
    """One kind of step under one policy, in microseconds."""

    blocks: int
    policy: str
    kind: str
    stock_us: float
    ours_us: float
    added_us: float
    added_wall_us: float
    num_steps: int

    @property
    def ratio(self) -> float:
        return self.ours_us / self.stock_us


class Lane:
    """An engine with `requests` running requests of `blocks` stored blocks each, all in their decode.

    The simulated worker of `Engine` moves bytes and checks them; here copies are simply over at the end of their step.
    """

    def __init__(self, folder: Path, connector: str, requests: int, blocks: int, num_steps: int) -> None:
        room = blocks + num_steps // BLOCK + 2
        total = requests * room + 64

        def configure(config: VllmConfig) -> None:
            config.model_config.max_model_len = config.scheduler_config.max_model_len = room * BLOCK

        self.engine = Engine(
            folder,
            gpu_blocks=total,
            cpu_blocks=total,
            policy=POLICIES["off"] if connector == OURS else None,
            connector=connector,
            max_num_batched_tokens=requests * room * BLOCK,
            max_num_seqs=requests,
            configure=configure,
        )
        self.taken = [0, 0]
        for name in TIMED:
            self._time(self.engine.scheduler.connector, name)
        for n in range(requests):
            tokens = prompt(n, blocks, extra=_phase(n))
            tokens[0] = n  # one token apart is a chain apart
            self.engine.add(f"r{n}", tokens, max_tokens=num_steps)

    def _time(self, owner: Any, name: str) -> None:
        inner, taken = getattr(owner, name), self.taken

        def timed(*args: Any) -> Any:
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            try:
                return inner(*args)
            finally:
                taken[0] += time.thread_time_ns() - cpu
                taken[1] += time.perf_counter_ns() - wall

        setattr(owner, name, timed)

    def step(self) -> tuple[Sample, int]:
        """What the connector's part of one step took, and how many copies it ordered."""
        self.taken[:] = 0, 0
        scheduler = self.engine.scheduler
        output = scheduler.schedule()
        meta = output.kv_connector_metadata
        ids = list(output.num_scheduled_tokens)
        stored = SimpleCPUOffloadWorkerMetadata({meta.store_event: 1}) if meta.store_event >= 0 else None
        scheduler.update_from_output(
            output,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={r: i for i, r in enumerate(ids)},
                sampled_token_ids=[[7] for _ in ids],
                kv_connector_output=KVConnectorOutput(kv_connector_worker_meta=stored),
            ),
        )
        return (self.taken[0] / 1_000, self.taken[1] / 1_000), len(meta.store_gpu_blocks)

    def await_log(self) -> None:
        """Until the log has what was told of the prefill: so much is never written at once while an engine decodes."""
        recorder = self.engine.connector._recorder
        while recorder._queue or recorder._batch:
            time.sleep(0.05)

    def lose(self, count: int, rng: random.Random) -> None:
        """Blocks of running requests leave the CPU tier, through its pool's own allocation."""
        requests = list(self.engine.requests.values())
        while count:
            hashes = rng.choice(requests).block_hashes
            count -= self.engine.evict_key(rng.choice(hashes) + bytes(4))


def _phase(n: int) -> int:
    """Tokens that a prompt has beyond its full blocks: which of 16 steps fills the request's next one."""
    group = n // BLOCK
    return 1 + (group if group < STORED_PHASES else STORED_PHASES)


def measure(stock: Lane, ours: Lane, blocks: int, policy: str, rounds: int, evict: int) -> list[Cost]:
    """One policy's rows: `rounds` of 16 steps, then the steps with evictions."""
    ours.await_log()
    ours.engine.set_policy(**POLICIES[policy].as_dict())
    lanes = (stock, ours)
    for _ in range(WARM_STEPS):
        for lane in lanes:
            lane.step()
    seen: dict[str, list[tuple[list[Sample], list[Sample]]]] = defaultdict(list)

    def take(kinds: dict[int, str], num_steps: int, lost: int) -> None:
        found: dict[str, tuple[list[Sample], list[Sample]]] = defaultdict(lambda: ([], []))
        for n in range(num_steps):
            if lost:
                for lane in lanes:
                    lane.lose(lost, random.Random(n))
            order = (0, 1) if n % 2 else (1, 0)
            results = {i: lanes[i].step() for i in order}
            kind = kinds.get(results[0][1])
            if kind is not None:
                for i in (0, 1):
                    found[kind][i].append(results[i][0])
        for kind, samples in found.items():
            seen[kind].append(samples)

    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        take({0: "idle", BLOCK: "stored"}, BLOCK * 2, 0)
    for _ in range(2):
        take({0: "lost"}, LOST_STEPS, evict)
    gc.unfreeze()
    return [_cost(blocks, policy, kind, seen[kind]) for kind in ("idle", "stored", "lost") if seen[kind]]


def _cost(blocks: int, policy: str, kind: str, rounds: list[tuple[list[Sample], list[Sample]]]) -> Cost:
    medians = [[[statistics.median(s[clock] for s in lane) for lane in pair] for pair in rounds] for clock in (0, 1)]
    added = [statistics.median(ours - stock for stock, ours in of_clock) for of_clock in medians]
    stock_us, ours_us = (statistics.median(pair[i] for pair in medians[0]) for i in (0, 1))
    return Cost(blocks, policy, kind, stock_us, ours_us, added[0], added[1], sum(len(pair[0]) for pair in rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--blocks", default="1000,4000", help="stored blocks a request; several are run one by one")
    parser.add_argument("--policies", default="off,tracked,adaptive,adaptive-off")
    parser.add_argument("--rounds", type=int, default=5, help="of 32 steps each, a policy")
    parser.add_argument("--evict", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    policies = args.policies.split(",")
    num_steps = (WARM_STEPS + args.rounds * 2 * BLOCK + 2 * LOST_STEPS) * len(policies) + 64
    costs: list[Cost] = []
    for blocks in map(int, args.blocks.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            lanes = [
                Lane(Path(folder) / connector, connector, args.requests, blocks, num_steps)
                for connector in (STOCK, OURS)
            ]
            for policy in policies:
                costs += measure(*lanes, blocks, policy, args.rounds, args.evict)
                print(f"{blocks} blocks, {policy}: done", file=sys.stderr)
            for lane in lanes:
                lane.engine.close()
    if args.json:
        print(json.dumps([vars(c) | {"ratio": c.ratio} for c in costs], indent=2))
        return
    print(f"The connector's part of a step, {args.requests} requests in their decode; CPU µs, medians")
    print(f"{'blocks':>7} {'policy':>13} {'step':>7} {'stock':>8} {'ours':>8} {'ratio':>6} {'added':>8} {'wall':>8}")
    for c in costs:
        print(
            f"{c.blocks:>7} {c.policy:>13} {c.kind:>7} {c.stock_us:>8,.0f} {c.ours_us:>8,.0f} {c.ratio:>6.2f}"
            f" {c.added_us:>+8,.0f} {c.added_wall_us:>+8,.0f}"
        )


if __name__ == "__main__":
    main()
