"""Other eviction policies, tried beside `adaptive`: S3-FIFO, SIEVE and LIRS, block by block and chain by chain.

    python tests/bench/policy_trials.py --trace TRACE --capacity 2000,4000 --policies stock,s3fifo,adaptive,belady
    python tests/bench/policy_trials.py --workload workloads.json#a --policies adaptive,adaptive-sieve --json

A count, and no engine: requests come in the order of arrival, each one finds what the CPU tier holds of the head of its
prompt, and then all its blocks may come in. There is no GPU tier, no time for a copy, and nobody runs beside another.
So it compares orders of eviction; `vllm-restore replay` says what an engine gains. A hash id of a trace is a block. Of
a workload each conversation goes on when its answer has been decoded, 30 ms a token, and answers are blocks too.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from trial_adaptive import Adaptive, LruTwoInClass, Probation, SieveInClass
from trial_blocks import BlockLirs, BlockLru, BlockS3Fifo, BlockSieve
from trial_chains import ChainLirs, ChainS3Fifo, ChainSieve, ChainTier

from connector.replay import trace, workload_file
from connector.replay.belady import best_hit_blocks
from connector.replay.chat import STEP_SECONDS
from connector.replay.history import Asked

BELADY = "belady"


class Tier(Protocol):
    """A policy at work."""

    def ask(self, keys: Sequence[int], num_asked: int, now: float) -> int:
        """A request whose first `num_asked` blocks are its prompt's. Returns how many of those it finds."""
        ...


POLICIES: dict[str, Callable[[int], Tier]] = {
    "stock": BlockLru,
    "s3fifo": BlockS3Fifo,
    "sieve": BlockSieve,
    "lirs": BlockLirs,
    "chain-lru": ChainTier,
    "chain-s3fifo": ChainS3Fifo,
    "chain-s3fifo-1": lambda capacity: ChainS3Fifo(capacity, uses_to_stay=1),
    "chain-sieve": ChainSieve,
    "chain-lirs": ChainLirs,
    "chain-lirs-10": lambda capacity: ChainLirs(capacity, hir_share=0.1),
    "adaptive": Adaptive,
    "adaptive-sieve": lambda capacity: Adaptive(capacity, SieveInClass(capacity)),
    "adaptive-lru2": lambda capacity: Adaptive(capacity, LruTwoInClass(capacity)),
    "adaptive-probation": lambda capacity: Adaptive(capacity, Probation(capacity)),
    "adaptive-filter": lambda capacity: Adaptive(capacity, Probation(capacity, only_for_new=True)),
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        keys: its blocks, with those of its answer.
        num_asked: how many of them are its prompt's, and could be found.
        counts: whether its hits are counted: of agents among others, only the agents' are.
    """

    keys: Sequence[int]
    num_asked: int
    at_seconds: float
    counts: bool = True


@dataclass(slots=True)
class Row:
    """One sequence of requests, at one capacity; and the share of blocks that each policy found."""

    name: str
    capacity: int
    requests: list[Request]
    rates: dict[str, float] = field(default_factory=dict[str, float])


def of_trace(path: Path, limit: int | None) -> list[Request]:
    """The requests of a trace."""
    return [Request(row.hash_ids, len(row.hash_ids), row.at_seconds) for row in trace.read(path, limit=limit).rows]


def of_workload(workload: workload_file.Workload, seed: int) -> Iterator[Request]:
    """The requests of a workload, in the order in which they come where every answer takes as long as its tokens."""
    size = workload.engine.block_size
    clients = workload.traffic(seed)
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    while (now := clients.next_at()) is not None:
        for play in clients.take(now):
            end = len(play.tokens) + play.num_output_tokens
            tokens = play.tokens + list(range(play.answer_base + len(play.tokens), play.answer_base + end))
            keys: list[int] = []
            for start in range(0, len(tokens) - size + 1, size):
                content = (keys[-1] if keys else -1, tuple(tokens[start : start + size]))
                keys.append(numbers.setdefault(content, len(numbers)))
            # The last token of a prompt is always computed.
            yield Request(keys, (len(play.tokens) - 1) // size, now, play.is_agent or not clients.has_agents)
            clients.answered(play, now + STEP_SECONDS * play.num_output_tokens)


def play(policy: str, row: Row) -> float:
    """Returns the share of the prompts' blocks that was found."""
    num_asked = sum(r.num_asked for r in row.requests if r.counts)
    if policy == BELADY:
        return _bound(row) / num_asked
    tier = POLICIES[policy](row.capacity)
    found = [tier.ask(r.keys, r.num_asked, r.at_seconds) for r in row.requests]
    return sum(n for n, r in zip(found, row.requests, strict=True) if r.counts) / num_asked


def _bound(row: Row) -> int:
    """Blocks found at best by one who knows the future; what does not count is not asked for."""
    history: list[tuple[bool, Any]] = []
    for r in row.requests:
        asked: Any = Asked(0, cast(Any, r.keys[: r.num_asked] if r.counts else ()), cast(Any, r.keys))
        history += [(True, asked), (False, asked)]
    return best_hit_blocks(history, row.capacity)


def rows_of(args: argparse.Namespace) -> Iterator[Row]:
    for path in args.trace:
        requests = of_trace(path, args.limit)
        for capacity in args.capacity:
            yield Row(path.name.split(".")[0], capacity, requests)
    for reference in args.workload:
        workload = workload_file.read(reference)
        requests = list(of_workload(workload, args.seed))
        yield Row(f"workload {workload.name}", workload.cpu_blocks, requests)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, nargs="*", default=[])
    parser.add_argument("--workload", nargs="*", default=[], metavar="FILE#name", help="brings its own capacity")
    parser.add_argument("--capacity", type=lambda text: [int(n) for n in text.split(",")], default=[2_000, 4_000])
    parser.add_argument("--limit", type=int, help="the first so many requests of a trace")
    parser.add_argument("--seed", type=int, default=1, help="of a workload")
    parser.add_argument("--policies", default=",".join((*POLICIES, BELADY)))
    parser.add_argument("--json", action="store_true", help="one line a row, as it comes")
    args = parser.parse_args()
    policies = args.policies.split(",")
    if unknown := set(policies) - {*POLICIES, BELADY}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join((*POLICIES, BELADY))}")
    if not args.json:
        print("| trace | blocks | " + " | ".join(policies) + " |\n|---|---:|" + "---:|" * len(policies))
    for row in rows_of(args):
        begun = time.perf_counter()
        for policy in policies:
            row.rates[policy] = play(policy, row)
            print(f"{row.name} {policy} {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        if args.json:
            print(json.dumps({"trace": row.name, "blocks": row.capacity, "rates": row.rates}), flush=True)
        else:
            rates = " | ".join(f"{100 * row.rates[p]:.1f}" for p in policies)
            print(f"| {row.name} | {row.capacity:,} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
