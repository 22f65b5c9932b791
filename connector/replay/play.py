"""Plays a plan: each policy from the beginning, on the same work. Engine ring."""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from sqlalchemy import URL

from connector.replay.belady import best_hit_tokens
from connector.replay.digest import Digest
from connector.replay.engine import ReplayEngine
from connector.replay.errors import ReplayError
from connector.replay.history import History
from connector.replay.outcome import Outcome
from connector.replay.plan import Plan
from connector.replay.policies import STOCK, Contestant
from connector.replay.results import Result, mean, result_of, result_of_bound
from connector.replay.traffic import Play

GAP_NS = 1_000_000_000
"""Between the end of one run and the begin of the next in one log."""

Progress = Callable[[str, int, int], None]
"""Told of (what is played, requests answered, requests in all)."""


class Replay:
    """Plays a plan.

    Args:
        log_url: a log that exists and gets every run of our connector, each as an engine of its own.
        progress: told of every request that was answered.

    Attributes:
        notes: what a person should know beside the results.
    """

    def __init__(self, plan: Plan, log_url: URL | None, progress: Progress) -> None:
        self._plan = plan
        self._log_url = log_url
        self._progress = progress
        self._begin_ns = time.time_ns()
        self.notes: list[str] = []

    def run(self) -> list[Result]:
        """One result a policy: of its run, or the means over the seeds.

        Raises:
            ReplayError: the engine does not get on, or policies did not get the same work.
        """
        with _quiet():
            by_seed = [self._run_seed(seed) for seed in self._plan.seeds]
        return [mean(results) for results in zip(*by_seed, strict=True)]

    def _run_seed(self, seed: int) -> list[Result]:
        played = [c for c in self._plan.contestants if not c.is_bound]
        has_bound = len(played) < len(self._plan.contestants)
        # A bound needs a run whose requests it is the bound of.
        runs = {c.name: self._run_one(c, seed) for c in played or [STOCK]}
        self._compare({name: outcome.digest for name, outcome in runs.items()}, seed)
        first, reference = next(iter(runs.items()))
        if has_bound:
            self.notes.append(f"belady: the bound of the requests in the order in which {first} got them")
        assert reference.history is not None
        return [
            self._bound(c, reference.history) if c.is_bound else result_of(c.name, runs[c.name])
            for c in self._plan.contestants
        ]

    def _run_one(self, contestant: Contestant, seed: int) -> Outcome:
        plan = self._plan
        cpu_blocks = plan.cpu_blocks
        if contestant.is_unlimited:
            cpu_blocks = max(cpu_blocks, 2 * plan.make_traffic(seed).num_blocks_hint)
        label = contestant.name if len(plan.seeds) == 1 else f"{contestant.name}, seed {seed}"
        while True:
            outcome = self._once(contestant, label, seed, cpu_blocks)
            if outcome.num_faults:
                self.notes.append(f"{label}: our connector failed {outcome.num_faults} times and did as stock since")
            if not outcome.is_log_whole:
                self.notes.append(f"{label}: the log is not whole")
            if not (contestant.is_unlimited and outcome.num_evicted):
                return outcome
            cpu_blocks *= 2

    def _once(self, contestant: Contestant, label: str, seed: int, cpu_blocks: int) -> Outcome:
        traffic = self._plan.make_traffic(seed)
        total, done = traffic.num_requests, 0
        self._progress(label, 0, total)
        engine = ReplayEngine(
            self._plan.engine,
            contestant,
            gpu_blocks=self._plan.gpu_blocks,
            cpu_blocks=cpu_blocks,
            longest=traffic.longest,
            log_url=self._log_url,
            begin_wall_ns=self._begin_ns,
            keeps_history=True,
        )

        def on_answer(play: Play) -> None:
            nonlocal done
            if play.stream not in traffic.open_streams:
                done += 1
                self._progress(label, done, total)

        outcome = engine.run(traffic, on_answer)
        self._begin_ns = engine.clock.wall_ns() + GAP_NS
        return outcome

    def _compare(self, digests: dict[str, Digest], seed: int) -> None:
        """All policies must have got the same work."""
        open_streams = self._plan.make_traffic(seed).open_streams
        first, reference = next(iter(digests.items()))
        for name, digest in digests.items():
            if (stream := reference.differs(digest, open_streams)) is not None:
                raise ReplayError(f"{first} and {name} did not get the same requests from {stream}")
        self.notes.append(f"every policy got the same work: {reference.hex(open_streams)}{self._seed_note(seed)}")

    def _seed_note(self, seed: int) -> str:
        return "" if len(self._plan.seeds) == 1 else f" with seed {seed}"

    def _bound(self, contestant: Contestant, history: History) -> Result:
        capacity = self._plan.gpu_blocks - 1 + self._plan.cpu_blocks - 1
        return result_of_bound(contestant.name, history.num_tokens, best_hit_tokens(history, capacity))


@contextmanager
def _quiet() -> Generator[None]:
    """vLLM tells at length how it configures itself, and each time that a small tier has no room."""
    logger = logging.getLogger("vllm")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
