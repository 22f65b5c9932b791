"""What is to be replayed: which requests, on which engine, under which policies. Pure: everything that a person can
have asked for wrongly is found here, before vLLM is loaded."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from connector.replay import trace, workload_file
from connector.replay.errors import ReplayError
from connector.replay.policies import Contestant, named
from connector.replay.traffic import Longest, Traffic
from connector.replay.workload_file import EngineSpec

MIN_CPU_BLOCKS = 2


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line, as it was given. None: not given."""

    trace: str | None = None
    workload: str | None = None
    policies: str = "stock,off,tracked,unlimited"
    gpu_blocks: int | None = None
    cpu_blocks: int | None = None
    seed: int = 1
    num_seeds: int = 1
    limit: int | None = None
    trace_block_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A replay that can be played. Blocks include vLLM's null block.

    Attributes:
        make_traffic: the requests from the beginning, by seed.
        what: names them to a person.
    """

    what: str
    make_traffic: Callable[[int], Traffic]
    seeds: tuple[int, ...]
    engine: EngineSpec
    gpu_blocks: int
    cpu_blocks: int
    contestants: tuple[Contestant, ...]

    @property
    def has_agents(self) -> bool:
        return self.make_traffic(self.seeds[0]).has_agents


def plan(wanted: Wanted) -> Plan:
    """Check what was asked for.

    Raises:
        ReplayError: it cannot be replayed; the message says why, and where in which file.
    """
    contestants = tuple(named(wanted.policies))
    if (wanted.trace is None) == (wanted.workload is None):
        raise ReplayError("name either a trace or --workload FILE#name")
    if wanted.cpu_blocks is not None and wanted.cpu_blocks < MIN_CPU_BLOCKS:
        raise ReplayError(f"--cpu-blocks must be {MIN_CPU_BLOCKS} or more: vLLM keeps one block for itself")
    seeds = tuple(range(wanted.seed, wanted.seed + wanted.num_seeds))
    if wanted.workload is not None:
        return _of_workload(wanted, wanted.workload, contestants, seeds)
    assert wanted.trace is not None
    return _of_trace(wanted, wanted.trace, contestants)


def _of_workload(wanted: Wanted, name: str, contestants: tuple[Contestant, ...], seeds: tuple[int, ...]) -> Plan:
    for flag, value in (("--limit", wanted.limit), ("--trace-block-tokens", wanted.trace_block_tokens)):
        if value is not None:
            raise ReplayError(f"{flag} is for traces; a workload is played as its file says")
    workload = workload_file.read(name)
    gpu_blocks = wanted.gpu_blocks or workload.gpu_blocks
    for seed in seeds:
        _check_fits(gpu_blocks, workload.traffic(seed).longest, workload.engine)
    return Plan(
        f"workload {name}",
        workload.traffic,
        seeds,
        workload.engine,
        gpu_blocks,
        wanted.cpu_blocks or workload.cpu_blocks,
        contestants,
    )


def _of_trace(wanted: Wanted, name: str, contestants: tuple[Contestant, ...]) -> Plan:
    if wanted.num_seeds != 1:
        raise ReplayError("--seeds is for workloads; nothing is drawn for a trace")
    found = trace.read(Path(name), limit=wanted.limit, block_tokens=wanted.trace_block_tokens)
    if wanted.cpu_blocks is None:
        raise ReplayError("a trace does not say how large the CPU tier is; give --cpu-blocks")
    engine = EngineSpec()
    longest = trace.TraceTraffic(found, engine.block_size).longest
    gpu_blocks = wanted.gpu_blocks or needed_blocks(longest, engine.block_size)
    _check_fits(gpu_blocks, longest, engine)

    def make(seed: int) -> Traffic:
        return trace.TraceTraffic(found, engine.block_size)

    return Plan(
        f"{len(found.rows):,} requests of {name}", make, (1,), engine, gpu_blocks, wanted.cpu_blocks, contestants
    )


def needed_blocks(longest: Longest, block_size: int) -> int:
    """GPU blocks without which the longest request never ends: what its last token wrote is never read, and vLLM keeps
    one block for itself."""
    return -(-(longest.num_tokens - 1) // block_size) + 1


def _check_fits(gpu_blocks: int, longest: Longest, engine: EngineSpec) -> None:
    if gpu_blocks < (needed := needed_blocks(longest, engine.block_size)):
        raise ReplayError(
            f"{longest.where}: {longest.num_prompt_tokens:,} prompt tokens and {longest.num_output_tokens:,} of the "
            f"answer need {needed:,} GPU blocks of {engine.block_size} tokens, and there are {gpu_blocks:,}; "
            f"--gpu-blocks {needed} is enough"
        )
