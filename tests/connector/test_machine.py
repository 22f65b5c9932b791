"""A state machine that does everything at once, in an order that hypothesis chooses and shortens."""

import shutil
import tempfile
from pathlib import Path

from chaos import Chaos, Owner
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from regimes import FEATURES, LAYOUTS, is_possible

from connector.policy import Policy

small = st.integers(0, 5)


@st.composite
def regimes(draw):
    """A layout, and some of the features that vLLM allows with it."""
    layout = draw(st.sampled_from(sorted(LAYOUTS)))
    features = draw(st.lists(st.sampled_from(sorted(FEATURES)), unique=True, max_size=4))
    if not is_possible(layout, features):
        features = [name for name in features if is_possible(layout, [name])]
    return layout, features


class EngineMachine(RuleBasedStateMachine):
    """Every rule leaves the invariants I1, I2, I3 and I6 true, and vLLM's KV-cache events right where they are
    enabled; the end of each run looks at I1, I4 and I6."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="restore-machine-"))
        self.chaos: Chaos | None = None

    @initialize(
        regime=regimes(),
        gpu_blocks=st.sampled_from([24, 40, 64]),
        cpu_blocks=st.sampled_from([6, 12, 33, 80]),
        mode=st.sampled_from(["rescan", "tracked"]),
        budget=st.sampled_from([0, 1, 64]),
        enabled=st.booleans(),
        retention=st.sampled_from(["lru", "lru", "adaptive"]),
    )
    def start(self, regime, gpu_blocks, cpu_blocks, mode, budget, enabled, retention):
        layout, features = regime
        policy = Policy(enabled=enabled, mode=mode, max_restore_blocks_per_step=budget, retention=retention)
        self.chaos = Chaos(self.folder, layout, gpu_blocks, cpu_blocks, policy, features)

    @rule(
        head=st.integers(0, 3),
        head_blocks=st.integers(0, 5),
        tail=small,
        tail_tokens=st.integers(1, 70),
        max_tokens=st.sampled_from([1, 20, 10_000]),
        owner=st.builds(Owner, salt=st.integers(0, 1), adapter=st.integers(0, 2), priority=st.integers(0, 2)),
        is_session=st.booleans(),
        session_id=st.sampled_from([None, None, "s1", "s2"]),
    )
    def add(self, head, head_blocks, tail, tail_tokens, max_tokens, owner, is_session, session_id):
        named = {"is_session": is_session, "session_id": session_id}
        self.chaos.add(head, head_blocks, tail, tail_tokens, max_tokens, owner, **named)

    @rule(which=small, tail=small, tail_tokens=st.integers(1, 70), max_tokens=st.sampled_from([1, 5, 40]))
    def extend(self, which, tail, tail_tokens, max_tokens):
        self.chaos.extend(which, tail, tail_tokens, max_tokens)

    @rule(which=small)
    def end_input(self, which):
        self.chaos.end_input(which)

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

    @rule(with_tier=st.booleans(), with_running=st.booleans())
    def reset_all(self, with_tier, with_running):
        self.chaos.reset_all(with_tier=with_tier, with_running=with_running)

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
        retention=st.sampled_from(["lru", "adaptive"]),
    )
    def change_policy(self, enabled, mode, budget, retention):
        self.chaos.change_policy(enabled=enabled, mode=mode, max_restore_blocks_per_step=budget, retention=retention)

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
    max_examples=90,
    stateful_step_count=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
