"""What a replay prints: one row a policy, as JSON or (`table.py`) as a table. Pure."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

from connector.replay.outcome import Outcome

NS_A_US = 1000


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run, or the means of several. None: it has no such number.

    Copies and evictions in blocks; times on the virtual clock, except what a step took in the scheduler: CPU time.
    `agents_hit_rate`: of the agents alone, where the work has agents.
    """

    policy: str
    hit_rate: float
    prompt_tokens: float
    prefill_tokens: float
    gpu_hit_tokens: float | None = None
    cpu_hit_tokens: float | None = None
    stores: float | None = None
    restores: float | None = None
    loads: float | None = None
    evictions: float | None = None
    preemptions: float | None = None
    steps: float | None = None
    virtual_seconds: float | None = None
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    scheduler_us_per_step_p50: float | None = None
    agents_hit_rate: float | None = None


def result_of(policy: str, outcome: Outcome) -> Result:
    """A run's numbers."""
    tokens = outcome.all
    step_ns = percentile(outcome.step_ns, 0.5)
    return Result(
        policy=policy,
        hit_rate=tokens.hit_rate,
        prompt_tokens=tokens.prompt,
        prefill_tokens=tokens.prefill,
        gpu_hit_tokens=tokens.gpu_hit,
        cpu_hit_tokens=tokens.cpu_hit,
        stores=outcome.num_stored,
        restores=outcome.num_restored,
        loads=outcome.num_loaded,
        evictions=outcome.num_evicted,
        preemptions=outcome.num_preemptions,
        steps=len(outcome.step_ns),
        virtual_seconds=outcome.virtual_seconds,
        ttft_p50_s=percentile(outcome.ttft_seconds, 0.5),
        ttft_p99_s=percentile(outcome.ttft_seconds, 0.99),
        scheduler_us_per_step_p50=None if step_ns is None else step_ns / NS_A_US,
        agents_hit_rate=outcome.agents.hit_rate if outcome.agents.prompt else None,
    )


def result_of_bound(policy: str, prompt_tokens: int, hit_tokens: int) -> Result:
    """A bound has a hit rate and nothing else: it was not run."""
    return Result(policy, hit_tokens / prompt_tokens, prompt_tokens, prompt_tokens - hit_tokens)


def percentile(values: Sequence[float], share: float) -> float | None:
    """The least value that at least this share of all do not exceed; None of none."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def mean(results: Sequence[Result]) -> Result:
    """The means over several runs of one policy; None where a run has no such number."""
    if len(results) == 1:
        return results[0]
    means: dict[str, float | None] = {}
    for name in (f.name for f in fields(Result) if f.name != "policy"):
        values = [getattr(r, name) for r in results]
        means[name] = None if None in values else sum(values) / len(values)
    return replace(results[0], **means)


def as_json(results: Sequence[Result], *, has_agents: bool) -> str:
    """The results as one JSON object: `{"runs": [...]}`."""
    runs = [asdict(r) for r in results]
    for run in runs:
        if not has_agents:
            del run["agents_hit_rate"]
    return json.dumps({"runs": runs}, indent=2) + "\n"
