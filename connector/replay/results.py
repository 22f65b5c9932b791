"""What a replay prints: one row a policy, as a table or as JSON. Pure."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """One policy's run. Copies in blocks, times on the virtual clock except the scheduler's own. None: the policy has
    no such number. `agents_hit_rate` only where the workload has agents."""

    policy: str
    hit_rate: float
    prompt_tokens: int
    prefill_tokens: int | None
    gpu_hit_tokens: int | None
    cpu_hit_tokens: int | None
    stores: int | None
    restores: int | None
    loads: int | None
    evictions: int | None
    preemptions: int | None
    steps: int | None
    virtual_seconds: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    scheduler_us_per_step_p50: float | None
    agents_hit_rate: float | None = None


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value that `share` of all do not exceed (nearest rank); None of none."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]


def as_json(results: Sequence[Result], *, has_agents: bool) -> str:
    """The results as one JSON object."""
    runs = [asdict(r) for r in results]
    for run in runs:
        if not has_agents:
            del run["agents_hit_rate"]
    return json.dumps({"runs": runs}, indent=2) + "\n"
