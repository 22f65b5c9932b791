"""A state machine that does everything at once, in an order that hypothesis chooses and shortens."""

import shutil
import tempfile
from pathlib import Path

from chaos import LAYOUTS, Chaos
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from connector.policy import Policy

small = st.integers(0, 5)


class EngineMachine(RuleBasedStateMachine):
    """Every rule leaves the invariants I1, I2, I3 and I6 true; the end of each run looks at I1, I4 and I6."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="restore-machine-"))
        self.chaos: Chaos | None = None

    @initialize(
        layout=st.sampled_from(sorted(LAYOUTS)),
        gpu_blocks=st.sampled_from([24, 40, 64]),
        cpu_blocks=st.sampled_from([6, 12, 33, 80]),
        mode=st.sampled_from(["rescan", "tracked"]),
        budget=st.sampled_from([0, 1, 64]),
        enabled=st.booleans(),
    )
    def start(self, layout, gpu_blocks, cpu_blocks, mode, budget, enabled):
        policy = Policy(enabled=enabled, mode=mode, max_restore_blocks_per_step=budget)
        self.chaos = Chaos(self.folder, layout, gpu_blocks, cpu_blocks, policy)

    @rule(
        head=st.integers(0, 3),
        head_blocks=st.integers(0, 5),
        tail=small,
        tail_tokens=st.integers(1, 70),
        max_tokens=st.sampled_from([1, 20, 10_000]),
        salt=st.integers(0, 1),
    )
    def add(self, head, head_blocks, tail, tail_tokens, max_tokens, salt):
        self.chaos.add(head, head_blocks, tail, tail_tokens, max_tokens, salt)

    @rule(count=st.integers(1, 6))
    def step(self, count):
        self.chaos.step(count)

    @rule(count=st.integers(10, 20))
    def step_long(self, count):
        self.chaos.step(count)

    @rule(which=small, is_abort=st.booleans())
    def end(self, which, is_abort):
        self.chaos.end(which, is_abort=is_abort)

    @rule()
    def preempt_all(self):
        self.chaos.preempt_all()

    @rule()
    def reset_tier(self):
        self.chaos.reset_tier()

    @rule(which=st.integers(0, 80), count=st.integers(1, 4))
    def evict(self, which, count):
        self.chaos.evict(which, count)

    @rule(steps=st.integers(0, 4), is_uneven=st.booleans(), is_reversed=st.booleans())
    def slow_copies(self, steps, is_uneven, is_reversed):
        self.chaos.slow_copies(steps, is_uneven=is_uneven, is_reversed=is_reversed)

    @rule(stores=st.booleans(), loads=st.booleans())
    def fail_copies(self, stores, loads):
        self.chaos.fail_copies(stores=stores, loads=loads)

    @rule(
        enabled=st.booleans(),
        mode=st.sampled_from(["rescan", "tracked"]),
        budget=st.sampled_from([0, 1, 3]),
    )
    def change_policy(self, enabled, mode, budget):
        self.chaos.change_policy(enabled=enabled, mode=mode, max_restore_blocks_per_step=budget)

    @rule(accepted=st.integers(0, 2))
    def accept_drafts(self, accepted):
        self.chaos.accepted = accepted

    def teardown(self) -> None:
        try:
            if self.chaos is not None:
                self.chaos.watch.check()
                self.chaos.come_to_rest()
                self.chaos.close()
        finally:
            if self.chaos is not None:
                self.chaos.engine.close()
            shutil.rmtree(self.folder, ignore_errors=True)


TestEngineMachine = EngineMachine.TestCase
TestEngineMachine.settings = settings(
    max_examples=60,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
