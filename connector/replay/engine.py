"""An engine without a model, in virtual time: vLLM's real Scheduler, KV-cache manager, block pools and connector.

A step takes `step_seconds`, and what its prefill takes at `prefill_tokens_per_second`. While nothing is to be done the
clock jumps to the next arrival. Everything that decides is the real thing.
"""

import time
from collections.abc import Callable

from sqlalchemy import URL
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request

from connector.policy import Policy
from connector.replay.clock import VirtualClock
from connector.replay.connector import Tape
from connector.replay.copies import Copies
from connector.replay.errors import ReplayError
from connector.replay.evictions import count_evictions
from connector.replay.history import History
from connector.replay.outcome import Outcome, Tokens
from connector.replay.policies import Contestant
from connector.replay.setup import build_scheduler, page_bytes
from connector.replay.traffic import Longest, Play, Traffic
from connector.replay.workload_file import EngineSpec

STUCK_STEPS = 1_000
"""So many steps in a row without a token mean that the engine waits for what never comes."""


class ReplayEngine:
    """Plays one traffic under one policy, once.

    Args:
        gpu_blocks, cpu_blocks: pool sizes, vLLM's null block included.
        longest: the longest request that will come.
        log_url: a log that exists, for the engine to write to; only our connector does.
        begin_wall_ns: the moment at which the virtual clock starts; now, if not said.
        keeps_history: whether the outcome has the sequence of what was asked.
    """

    def __init__(
        self,
        spec: EngineSpec,
        contestant: Contestant,
        *,
        gpu_blocks: int,
        cpu_blocks: int,
        longest: Longest,
        log_url: URL | None = None,
        begin_wall_ns: int | None = None,
        keeps_history: bool = False,
    ) -> None:
        self._spec = spec
        self.clock = VirtualClock(begin_wall_ns)
        self.tape: Tape | None = None
        self._log_url = log_url
        transfer = contestant.transfer(cpu_blocks, page_bytes(spec.block_size), self._make_tape)
        self.scheduler, self._hasher = build_scheduler(spec, gpu_blocks, longest.num_tokens + 1, transfer)
        self._copies = Copies(spec.copy_steps)
        self._num_evicted = count_evictions(self.scheduler.connector)
        self._plays: dict[str, tuple[Play, Request]] = {}
        self.outcome = Outcome(history=History(spec.block_size) if keeps_history else None)

    def _make_tape(self, policy: Policy) -> Tape:
        self.tape = Tape(policy, self.clock, self._log_url)
        return self.tape

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self, traffic: Traffic, on_answer: Callable[[Play], None] = lambda play: None) -> Outcome:
        """Play it to its end. `on_answer` is told of each request that was answered in full.

        Raises:
            ReplayError: the engine does not get on: a pool is too small for what waits.
        """
        num_waiting = 0
        try:
            while self._has_work(traffic):
                answered, num_scheduled = self._step()
                num_waiting = 0 if num_scheduled else num_waiting + 1
                if num_waiting > STUCK_STEPS:
                    raise ReplayError(
                        f"the engine does not get on after {self.clock.seconds:.1f} virtual seconds: requests wait, "
                        "and none can be scheduled; give it more --gpu-blocks"
                    )
                for play in answered:
                    traffic.answered(play, self.clock.seconds)
                    on_answer(play)
        finally:
            self.scheduler.shutdown()
        return self._finish()

    def _has_work(self, traffic: Traffic) -> bool:
        """Take in what has arrived. Where there is nothing to do, skip the time until something arrives."""
        while True:
            for play in traffic.take(self.clock.seconds):
                self._add(play)
            if self.scheduler.has_requests():
                return True
            if (at := traffic.next_at()) is None:
                return False
            self.clock.jump(at)

    def _add(self, play: Play) -> None:
        request = Request(
            request_id=play.request_id,
            prompt_token_ids=play.tokens,
            sampling_params=SamplingParams(max_tokens=play.num_output_tokens, ignore_eos=True),
            pooling_params=None,
            arrival_time=self.clock.wall_ns_at(play.at_seconds) / 1e9,
            block_hasher=self._hasher,
        )
        self._plays[play.request_id] = play, request
        self.outcome.digest.add(play)
        for tokens in self._counters(play):
            tokens.prompt += len(play.tokens)
        if self.outcome.history is not None:
            self.outcome.history.arrived(play.request_id, len(play.tokens), request.block_hashes)
        self.scheduler.add_request(request)

    def _counters(self, play: Play) -> tuple[Tokens, ...]:
        return (self.outcome.all, self.outcome.agents) if play.is_agent else (self.outcome.all,)

    def _step(self) -> tuple[list[Play], int]:
        """One step. Returns the requests that it answered in full, and how many it scheduled."""
        begun_ns = time.thread_time_ns()
        output = self.scheduler.schedule()
        step_ns = time.thread_time_ns() - begun_ns
        self._copies.submit(output.kv_connector_metadata)
        ids, sampled, num_prefill = self._compute(output)
        self.clock.advance(self._spec.step_seconds + num_prefill / self._spec.prefill_tokens_per_second)
        computed = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={r: i for i, r in enumerate(ids)},
            sampled_token_ids=sampled,
            kv_connector_output=self._copies.complete(),
        )
        begun_ns = time.thread_time_ns()
        engine_outputs = self.scheduler.update_from_output(output, computed)
        self.outcome.step_ns.append(step_ns + time.thread_time_ns() - begun_ns)
        self.outcome.num_preemptions += len(output.preempted_req_ids or ())
        return [
            play for outputs in engine_outputs.values() for one in outputs.outputs if (play := self._note(one))
        ], len(ids)

    def _note(self, output: EngineCoreOutput) -> Play | None:
        """Take note of what a request was given. Returns it where that was the last of it."""
        play, request = self._plays[output.request_id]
        if (stats := output.prefill_stats) is not None:
            self.outcome.ttft_seconds.append(self.clock.seconds - play.at_seconds)
            for tokens in self._counters(play):
                tokens.gpu_hit += stats.num_local_cached_tokens
                tokens.cpu_hit += stats.num_external_cached_tokens
        if output.finish_reason is None:
            return None
        del self._plays[output.request_id]
        if self.outcome.history is not None:
            self.outcome.history.ended(output.request_id, request.block_hashes)
        return play

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
        outcome.virtual_seconds = self.clock.seconds
        outcome.num_loaded = self._copies.num_loaded
        if self.tape is not None:
            outcome.num_restored, outcome.num_evicted = self.tape.num_restored, self.tape.num_evicted
            outcome.num_faults, outcome.is_log_whole = self.tape.num_faults, self.tape.is_log_whole
        else:
            outcome.num_evicted = self._num_evicted()
        outcome.num_stored = self._copies.num_stored - outcome.num_restored
        return outcome
