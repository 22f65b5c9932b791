"""What a run gave, policies side by side, and each as a ratio to the first one's baseline. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from app.bench.clients import Played, differing
from app.bench.counters import CACHED_TOKENS, COPIED_BYTES, OUTPUT_TOKENS, PROMPT_TOKENS, STOCK, Counters
from connector.replay.results import percentile

RATIOS = (
    "hit_rate", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "output_tokens_per_s", "stored_bytes", "seconds",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Run:
    """One policy, once over the workload.

    Attributes:
        played: the conversations' answers.
        counters: what the server counted meanwhile, one-shot prompts included.
        seconds: from the first request to the last answer.
    """

    policy: str
    repeat: int
    played: Played
    counters: Counters
    seconds: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The numbers of one run, or of all runs of one policy together.

    `hit_rate`, `gpu_hit_rate` and `cpu_hit_rate`: of all prompt tokens, as the server counted them. `talk_hit_rate` and
    the times to the first token: of the conversations, one-shot prompts left out. Bytes: all layers of one rank.
    """

    num_requests: int
    prompt_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    hit_rate: float
    gpu_hit_rate: float
    cpu_hit_rate: float
    talk_hit_rate: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    output_tokens: int
    output_tokens_per_s: float
    stored_bytes: int
    restored_bytes: int
    loaded_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How a policy compares with the baseline: of all its runs together, and of each repeat's pair of runs."""

    value: float | None
    pairs: list[float | None]

    @property
    def of_pairs(self) -> float | None:
        """The geometric mean of the pairs."""
        known = [p for p in self.pairs if p]
        return statistics.geometric_mean(known) if known else None


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy's row. `ratios`: by name of a number; none for the baseline itself."""

    name: str
    all: Measured
    repeats: list[Measured]
    ratios: dict[str, Ratio] = field(default_factory=dict[str, Ratio])


@dataclass(frozen=True, slots=True)
class Comparison:
    """All policies. `differing`: conversations whose texts were not the same in every run."""

    baseline: str
    policies: list[Policy]
    num_talks: int
    differing: list[str]


def measure(runs: Sequence[Run]) -> Measured:
    """The numbers of these runs together."""
    answers = [a for run in runs for a in run.played.answers]
    seconds = sum(run.seconds for run in runs)
    prompt = _sum(runs, PROMPT_TOKENS)
    gpu, cpu = _sum(runs, CACHED_TOKENS, "device"), _sum(runs, CACHED_TOKENS, "host")
    output = _sum(runs, OUTPUT_TOKENS)
    ttft = [a.ttft_s for a in answers]
    talk_prompt = sum(a.num_prompt_tokens for a in answers)
    return Measured(
        num_requests=len(answers) + sum(run.played.num_others for run in runs),
        prompt_tokens=prompt,
        gpu_hit_tokens=gpu,
        cpu_hit_tokens=cpu,
        hit_rate=_share(gpu + cpu, prompt),
        gpu_hit_rate=_share(gpu, prompt),
        cpu_hit_rate=_share(cpu, prompt),
        talk_hit_rate=_share(sum(a.num_cached_tokens for a in answers), talk_prompt),
        ttft_p50_s=_ttft(ttft, 0.5),
        ttft_p90_s=_ttft(ttft, 0.9),
        ttft_p99_s=_ttft(ttft, 0.99),
        output_tokens=output,
        output_tokens_per_s=output / seconds,
        stored_bytes=_sum(runs, COPIED_BYTES, "store"),
        restored_bytes=_sum(runs, COPIED_BYTES, "restore"),
        loaded_bytes=_sum(runs, COPIED_BYTES, "load"),
        seconds=seconds,
    )


def compare(runs: Sequence[Run]) -> Comparison:
    """Policies in the order of their first runs; the baseline is `stock`, or the first where that was not played."""
    names = list(dict.fromkeys(run.policy for run in runs))
    baseline = STOCK if STOCK in names else names[0]
    by_policy = {name: sorted((r for r in runs if r.policy == name), key=lambda r: r.repeat) for name in names}
    measured = {name: (measure(own), [measure([r]) for r in own]) for name, own in by_policy.items()}
    base, base_repeats = measured[baseline]
    policies = [
        Policy(
            name,
            whole,
            repeats,
            {} if name == baseline else {key: _ratio(key, whole, repeats, base, base_repeats) for key in RATIOS},
        )
        for name, (whole, repeats) in measured.items()
    ]
    played = [run.played for run in runs]
    return Comparison(baseline, policies, len(played[0].digests), differing(played))


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """For JSON: `baseline`, `policies` with their numbers and `to_baseline` (ratio and pairs, by number), `texts`."""
    rows: list[dict[str, Any]] = []
    for policy in comparison.policies:
        ratios = {
            key: {"ratio": ratio.value, "pairs": ratio.pairs, "mean_of_pairs": ratio.of_pairs}
            for key, ratio in policy.ratios.items()
        }
        repeats = [asdict(r) for r in policy.repeats]
        rows.append({"policy": policy.name, **asdict(policy.all), "to_baseline": ratios, "repeats": repeats})
    texts = {"conversations": comparison.num_talks, "differing": comparison.differing}
    return {"baseline": comparison.baseline, "policies": rows, "texts": texts}


def ttft_by_policy(runs: Sequence[Run]) -> dict[str, list[float]]:
    """All times to the first token of the conversations' requests, in seconds, as they came."""
    times: dict[str, list[float]] = {}
    for run in runs:
        times.setdefault(run.policy, []).extend(a.ttft_s for a in run.played.answers)
    return times


def _ttft(times: Sequence[float], share: float) -> float:
    value = percentile(times, share)
    assert value is not None, "a run has requests"
    return value


def _ratio(
    key: str, whole: Measured, repeats: Sequence[Measured], base: Measured, base_repeats: Sequence[Measured]
) -> Ratio:
    pairs = [_times(getattr(a, key), getattr(b, key)) for a, b in zip(repeats, base_repeats, strict=True)]
    return Ratio(_times(getattr(whole, key), getattr(base, key)), pairs)


def _times(value: float, base: float) -> float | None:
    return value / base if base else None


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _sum(runs: Sequence[Run], metric: str, label: str = "") -> int:
    return sum(run.counters.of(metric, label) for run in runs)
