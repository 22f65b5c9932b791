"""What one run gave. Pure."""

from dataclasses import dataclass, field

from connector.replay.digest import Digest
from connector.replay.history import History


@dataclass(slots=True)
class Tokens:
    """Tokens of prompts. `gpu_hit`, `cpu_hit`: where they came from when their request was first admitted. `prefill`:
    computed, again where a preemption had thrown them away."""

    prompt: int = 0
    prefill: int = 0
    gpu_hit: int = 0
    cpu_hit: int = 0

    @property
    def hit_rate(self) -> float:
        """The share that was not computed. What a preemption made the engine compute again counts against it."""
        return 1 - self.prefill / self.prompt if self.prompt else 0.0


@dataclass(slots=True)
class Outcome:
    """One run.

    Attributes:
        num_stored, num_restored, num_loaded, num_evicted: blocks; first stores and re-stores apart.
        step_ns: what each step took in vLLM's scheduler, ours and its connector included: CPU time of the thread.
        history: what was asked, if it was to be kept.
    """

    all: Tokens = field(default_factory=Tokens)
    agents: Tokens = field(default_factory=Tokens)
    num_stored: int = 0
    num_restored: int = 0
    num_loaded: int = 0
    num_evicted: int = 0
    num_preemptions: int = 0
    num_faults: int = 0
    is_log_whole: bool = True
    virtual_seconds: float = 0.0
    ttft_seconds: list[float] = field(default_factory=list[float])
    step_ns: list[int] = field(default_factory=list[int])
    digest: Digest = field(default_factory=Digest)
    history: History | None = None
