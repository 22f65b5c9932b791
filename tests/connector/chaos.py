"""Everything that can be done to an engine, as operations that a state machine or a soak draws at random, with every
invariant looked at after each of them.

Test support.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chain_invariants import check_keeper
from harness import BLOCK, Engine
from invariants import Watch, note_restores
from regimes import LAYOUTS, settings
from traffic import Owner
from vllm.v1.core.sched.interface import PauseState

from connector.policy import Policy

__all__ = ["LAYOUTS", "MAX_LIVE", "Chaos", "Owner"]

MAX_LIVE = 12
NOBODY = Owner()


class Chaos:
    """One engine in bad company."""

    def __init__(
        self,
        folder: Path,
        layout: str,
        gpu_blocks: int,
        cpu_blocks: int,
        policy: Policy,
        features: Sequence[str] = (),
    ) -> None:
        self.engine = Engine(
            folder, gpu_blocks=gpu_blocks, cpu_blocks=cpu_blocks, policy=policy, **settings(layout, features)
        )
        self.watch = Watch(self.engine)
        self.restores = note_restores(self.engine)
        self.accepted = 1
        self.engine.accept = lambda: self.accepted
        self._number = 0
        self._ended: set[str] = set()

    def live(self) -> list[str]:
        return [r for r, request in self.engine.requests.items() if not request.is_finished()]

    # --- operations -------------------------------------------------------------------------------------------------

    def add(
        self,
        head: int,
        head_blocks: int,
        tail: int,
        tail_tokens: int,
        max_tokens: int,
        owner: Owner = NOBODY,
        *,
        is_session: bool = False,
        session_id: str | None = None,
    ) -> None:
        """A prompt of one of a few heads and one of a few tails, so that content comes again and is shared."""
        if len(self.live()) >= MAX_LIVE:
            return
        self._number += 1
        tokens = [1_000 + head * 100 + i // BLOCK for i in range(head_blocks * BLOCK)]
        tokens += _tail(tail, tail_tokens)
        self.engine.add(
            f"r{self._number}",
            tokens,
            max_tokens=max_tokens,
            resumable=is_session,
            session_id=session_id,
            **owner.as_arguments(),
        )

    def extend(self, which: int, tail: int, tail_tokens: int, max_tokens: int) -> None:
        """A session of streamed inputs gets its next one, whether it waits for it or not."""
        if sessions := self._sessions():
            self.engine.extend(sessions[which % len(sessions)], _tail(tail, tail_tokens), max_tokens)

    def end_input(self, which: int) -> None:
        if sessions := self._sessions():
            request_id = sessions[which % len(sessions)]
            self._ended.add(request_id)
            self.engine.end_input(request_id)

    def _sessions(self) -> list[str]:
        requests = self.engine.requests
        return [r for r in self.live() if requests[r].resumable and r not in self._ended]

    def end(self, which: int, *, is_abort: bool) -> None:
        if live := self.live():
            request_id = live[which % len(live)]
            (self.engine.abort if is_abort else self.engine.finish)(request_id)

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.engine.step()
            self.watch.check()
            check_keeper(self.engine)

    def preempt_all(self) -> None:
        if not self.engine.is_busy:
            self.engine.preempt_all()

    def reset_tier(self) -> None:
        self.engine.reset_tier()

    def reset_all(self, *, with_tier: bool, with_running: bool) -> None:
        """vLLM's `reset_prefix_cache`: both tiers, or the GPU's alone; running requests are preempted, or spared, and
        then the GPU's cache stays where any of them holds a block."""
        if with_running and self.engine.is_busy:
            return  # vLLM refuses by an exception
        self.engine.reset_all(with_tier=with_tier, with_running=with_running)

    def evict(self, which: int, count: int) -> None:
        keys = sorted(self.watch.content)
        for n in range(min(count, len(keys))):
            self.engine.evict_key(keys[(which + n * 7) % len(keys)])

    def slow_copies(self, steps: int, *, is_uneven: bool, is_reversed: bool) -> None:
        conditions = self.engine.conditions
        conditions.copy_steps = lambda rank, is_store: steps + (rank + is_store if is_uneven else 0)
        conditions.order = (lambda tasks: tasks[::-1]) if is_reversed else (lambda tasks: tasks)

    def fail_copies(self, *, stores: bool, loads: bool) -> None:
        self.engine.conditions.fails = lambda rank, is_store: (
            "drawn" if rank == 0 and (stores if is_store else loads) else None
        )

    def change_policy(self, **changes: Any) -> None:
        self.engine.set_policy(**changes)

    # --- the end ----------------------------------------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """I4: on a fixed set of running requests, whose blocks stay as they are, the re-stores of `tracked` end, and
        where everything fits those of `rescan` too."""
        engine = self.engine
        self.fail_copies(stores=False, loads=False)
        self.slow_copies(0, is_uneven=False, is_reversed=False)
        for request_id in self.live():
            if engine.requests[request_id] not in engine.scheduler.running:
                engine.abort(request_id)
        self.step(8)
        assert not any(state.finished for state in engine.manager._reqs_to_store.values()), "who is over is forgotten"
        engine.scheduler.set_pause_state(PauseState.PAUSED_ALL)  # from here on nothing is computed
        # Each exchange either ends a lack or brings a block nearer a head; a tier's worth of them is plenty.
        rounds = 3 * engine.manager.num_cpu_blocks + 20
        self.change_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=0)
        self.step(rounds)
        assert not any(self.restores[-5:]), "re-stores do not end"
        if not engine.manager._restorer._is_tight():
            self.change_policy(mode="rescan")
            self.step(5)
            assert not any(self.restores[-5:]), "tracked has missed what rescan finds"
        engine.scheduler.set_pause_state(PauseState.UNPAUSED)

    def close(self) -> None:
        """I1 at the end: with nothing in flight both pools are at their baseline; I6 from the database."""
        engine = self.engine
        for request_id in self.live():
            engine.finish(request_id)
        engine.settle()
        self.watch.check()
        assert engine.manager.cpu_block_pool.get_num_free_blocks() == engine.manager.num_cpu_blocks - 1
        gpu = engine.scheduler.kv_cache_manager.block_pool
        assert gpu.get_num_free_blocks() == gpu.num_gpu_blocks - 1
        assert engine.reset_tier()
        self.watch.check()
        tier = engine.manager._tier
        assert not tier.num_in_flight
        assert not tier.num_abandoned
        assert not tier.num_chosen
        assert not tier.keys_in_flight
        assert not tier.num_resident
        assert not len(engine.manager._owners)
        assert not engine.manager._load_steps
        assert not engine.manager._reqs_to_store
        assert not engine.manager._store_event_to_reqs
        self.watch.check_log()
        faults = engine.sql("SELECT origin, message FROM fault WHERE origin NOT IN ('copy', 'load')")
        assert not faults, faults


def _tail(tail: int, tokens: int) -> list[int]:
    return [20_000 + tail * 100 + i // BLOCK for i in range(tokens)]
