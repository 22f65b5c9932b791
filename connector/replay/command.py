"""`vllm-restore replay`: plays one traffic under several policies and says what each gave."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from connector.replay import trace, workload_file
from connector.replay.engine import Outcome, ReplayEngine
from connector.replay.errors import ReplayError
from connector.replay.policies import Contestant, named
from connector.replay.results import Result, as_json, percentile
from connector.replay.traffic import Longest, Traffic
from connector.replay.workload_file import EngineSpec


def run(args: argparse.Namespace) -> None:
    """Raises ReplayError for what the person can put right."""
    contestants = named(args.policies)
    if args.workload:
        workload = workload_file.read(args.workload)
        spec, gpu, cpu = workload.engine, workload.gpu_blocks, workload.cpu_blocks
        make: Callable[[], Traffic] = lambda: workload.traffic(args.seed)
    else:
        rows = trace.read(Path(args.trace), limit=args.limit, block_tokens=args.trace_block_tokens)
        spec, gpu, cpu = EngineSpec(), 0, 0
        make = lambda: trace.TraceTraffic(rows, spec.block_size)
    longest = make().longest
    needed = -(-longest.num_tokens // spec.block_size) + 1
    gpu_blocks, cpu_blocks = args.gpu_blocks or gpu or needed, args.cpu_blocks or cpu
    if gpu_blocks < needed:
        raise ReplayError(f"{longest.where} needs {needed} GPU blocks, and there are {gpu_blocks}")
    if cpu_blocks < 2:
        raise ReplayError("--cpu-blocks must be at least 2")
    results = [_play(make(), spec, c, gpu_blocks, cpu_blocks, longest) for c in contestants]
    if args.json:
        sys.stdout.write(as_json(results, has_agents=make().has_agents))
    else:
        for r in results:
            print(r)


def _play(
    traffic: Traffic, spec: EngineSpec, contestant: Contestant, gpu_blocks: int, cpu_blocks: int, longest: Longest
) -> Result:
    if contestant.is_unlimited:
        cpu_blocks = 2 * traffic.num_blocks_hint
    engine = ReplayEngine(spec, contestant, gpu_blocks=gpu_blocks, cpu_blocks=cpu_blocks, longest=longest)
    return result_of(contestant.name, engine.run(traffic))


def result_of(policy: str, outcome: Outcome) -> Result:
    tokens = outcome.all
    us = percentile(outcome.step_ns, 0.5)
    return Result(
        policy,
        tokens.hit_rate,
        tokens.prompt,
        tokens.prefill,
        tokens.gpu_hit,
        tokens.cpu_hit,
        outcome.num_stored,
        outcome.num_restored,
        outcome.num_loaded,
        outcome.num_evicted,
        outcome.num_preemptions,
        outcome.num_steps,
        outcome.virtual_seconds,
        percentile(outcome.ttft_seconds, 0.5),
        percentile(outcome.ttft_seconds, 0.99),
        us and us / 1000,
        outcome.agents.hit_rate,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--workload")
    parser.add_argument("--gpu-blocks", type=int)
    parser.add_argument("--cpu-blocks", type=int)
    parser.add_argument("--policies", default="stock,off,tracked,unlimited")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--trace-block-tokens", type=int)
    parser.add_argument("--json", action="store_true")
    run(parser.parse_args())
