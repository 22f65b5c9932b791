"""An engine without a model, in virtual time: vLLM's real Scheduler, KV-cache manager, block pools and connector.

A step takes `step_seconds`, and what its prefill takes at `prefill_tokens_per_second`. While nothing is to be done the
clock jumps to the next arrival. Everything that decides is the real thing.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from connector.observer import EvictionObserver
from connector.replay.clock import VirtualClock
from connector.replay.connector import ReplayConnector, Tape
from connector.replay.copies import Copies
from connector.replay.digest import Digest
from connector.replay.errors import ReplayError
from connector.replay.setup import build_scheduler, page_bytes
from connector.replay.policies import Contestant
from connector.replay.traffic import Longest, Play, Traffic
from connector.replay.workload_file import EngineSpec

STUCK_STEPS = 1_000
"""So many steps in a row without a token mean that the engine waits for what never comes."""


@dataclass(slots=True)
class Tokens:
    """Prompt tokens, and where they came from at a request's first admission. `prefill`: computed, also again after a
    preemption."""

    prompt: int = 0
    prefill: int = 0
    gpu_hit: int = 0
    cpu_hit: int = 0

    @property
    def hit_rate(self) -> float:
        return 1 - self.prefill / self.prompt if self.prompt else 0.0


@dataclass(slots=True)
class Outcome:
    """What one run gave. Stores, re-stores, loads and evictions in blocks; `step_ns`: of vLLM's scheduler, each step."""

    all: Tokens = field(default_factory=Tokens)
    agents: Tokens = field(default_factory=Tokens)
    num_stored: int = 0
    num_restored: int = 0
    num_loaded: int = 0
    num_evicted: int = 0
    num_preemptions: int = 0
    num_steps: int = 0
    virtual_seconds: float = 0.0
    ttft_seconds: list[float] = field(default_factory=list)
    step_ns: list[int] = field(default_factory=list)
    digest: Digest = field(default_factory=Digest)
    asked: list[list[bytes]] = field(default_factory=list)
    """Block hashes of each request's prompt, in the order of arrival."""


class ReplayEngine:
    """Plays one traffic under one policy.

    Args:
        gpu_blocks, cpu_blocks: pool sizes, vLLM's null block included.
        longest: the longest request that will come.
    """

    def __init__(
        self,
        spec: EngineSpec,
        contestant: Contestant,
        *,
        gpu_blocks: int,
        cpu_blocks: int,
        longest: Longest,
        keeps_hashes: bool = False,
    ) -> None:
        self._spec = spec
        self._clock = VirtualClock()
        self._tape: Tape | None = None
        transfer = contestant.transfer(page_bytes(spec.block_size) * cpu_blocks, self._make_tape)
        self.scheduler, self._hasher = build_scheduler(spec, gpu_blocks, longest.num_tokens + 1, transfer)
        self._copies = Copies(spec.copy_steps)
        self._evictions = self._watch_evictions()
        self._plays: dict[str, tuple[Play, Request]] = {}
        self._keeps_hashes = keeps_hashes
        self.outcome = Outcome()

    def _make_tape(self, policy: object) -> Tape:
        self._tape = Tape(policy, self._clock)
        return self._tape

    def _watch_evictions(self) -> EvictionObserver | None:
        """vLLM's own class counts no evictions; ours does."""
        connector = self.scheduler.connector
        manager = getattr(connector, "scheduler_manager", None)
        if manager is None or isinstance(connector, ReplayConnector):
            return None
        observer = EvictionObserver(_never)
        manager.cpu_block_pool.metrics_collector = observer
        return observer

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self, traffic: Traffic, on_answer: Callable[[], None] = lambda: None) -> Outcome:
        """Play it to its end.

        Raises:
            ReplayError: the engine does not get on: a pool is too small for what waits.
        """
        num_idle = 0
        while True:
            for play in traffic.take(self._clock.seconds):
                self._add(play)
            if not self.scheduler.has_requests():
                at = traffic.next_at()
                if at is None:
                    break
                self._clock.jump(at)
                continue
            answered = self._step()
            num_idle = 0 if self._num_scheduled else num_idle + 1
            if num_idle > STUCK_STEPS:
                raise ReplayError(
                    f"the engine does not get on at {self._clock.seconds:.1f} virtual seconds: "
                    f"{self.scheduler.get_request_counts()[1]} requests wait, and none can be scheduled"
                )
            for play in answered:
                traffic.answered(play, self._clock.seconds)
                on_answer()
        return self._finish()

    def _add(self, play: Play) -> None:
        request = Request(
            request_id=play.request_id,
            prompt_token_ids=play.tokens,
            sampling_params=SamplingParams(max_tokens=play.num_output_tokens, ignore_eos=True),
            pooling_params=None,
            arrival_time=self._clock.wall_ns_at(play.at_seconds) / 1e9,
            block_hasher=self._hasher,
        )
        self._plays[play.request_id] = play, request
        self.outcome.digest.add(play)
        for tokens in self._counters(play):
            tokens.prompt += len(play.tokens)
        if self._keeps_hashes:
            self.outcome.asked.append(list(request.block_hashes))
        self.scheduler.add_request(request)

    def _counters(self, play: Play) -> tuple[Tokens, ...]:
        return (self.outcome.all, self.outcome.agents) if play.is_agent else (self.outcome.all,)

    def _step(self) -> list[Play]:
        """One step. Returns the requests that it answered in full."""
        started_ns = time.thread_time_ns()
        output = self.scheduler.schedule()
        scheduled_ns = time.thread_time_ns()
        self._copies.submit(output.kv_connector_metadata)
        ids, sampled, num_prefill = self._compute(output)
        self._num_scheduled = len(ids)
        self._clock.advance(self._spec.step_seconds + num_prefill / self._spec.prefill_tokens_per_second)
        computed = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=sampled,
            kv_connector_output=self._copies.complete(),
        )
        updating_ns = time.thread_time_ns()
        engine_outputs = self.scheduler.update_from_output(output, computed)
        self.outcome.step_ns.append(time.thread_time_ns() - updating_ns + scheduled_ns - started_ns)
        self.outcome.num_steps += 1
        self.outcome.num_preemptions += len(output.preempted_req_ids or ())
        answered: list[Play] = []
        for outputs in engine_outputs.values():
            for one in outputs.outputs:
                play = self._plays[one.request_id][0]
                if one.prefill_stats is not None:
                    self.outcome.ttft_seconds.append(self._clock.seconds - play.at_seconds)
                    for tokens in self._counters(play):
                        tokens.gpu_hit += one.prefill_stats.num_local_cached_tokens
                        tokens.cpu_hit += one.prefill_stats.num_external_cached_tokens
                if one.finish_reason is not None:
                    del self._plays[one.request_id]
                    answered.append(play)
        return answered

    def _compute(self, output: SchedulerOutput) -> tuple[list[str], list[list[int]], int]:
        """The forward pass: what is sampled, and how many tokens were prefilled."""
        num_prefill = 0
        ids: list[str] = []
        sampled: list[list[int]] = []
        for request_id, count in output.num_scheduled_tokens.items():
            play, request = self._plays[request_id]
            start = request.num_computed_tokens - count
            num_prompt = len(play.tokens)
            if start < num_prompt or count > 1:
                num_prefill += count
                of_prompt = max(0, min(start + count, num_prompt) - start)
                for tokens in self._counters(play):
                    tokens.prefill += of_prompt
            ids.append(request_id)
            sampled.append([] if request.is_prefill_chunk else [play.answer_base + request.num_tokens])
        return ids, sampled, num_prefill

    def _finish(self) -> Outcome:
        outcome = self.outcome
        outcome.virtual_seconds = self._clock.seconds
        outcome.num_stored, outcome.num_loaded = self._copies.num_stored, self._copies.num_loaded
        if self._tape is not None:
            outcome.num_restored, outcome.num_evicted = self._tape.num_restored, self._tape.num_evicted
        elif self._evictions is not None:
            outcome.num_evicted = len(self._evictions.drain())
        outcome.num_stored -= outcome.num_restored
        self.scheduler.shutdown()
        return outcome


def _never(origin: str, error: Exception) -> None:
    raise ReplayError(f"counting evictions failed in {origin}: {error}")
