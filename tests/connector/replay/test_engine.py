"""vLLM's real scheduler in virtual time: small traces whose every number can be worked out by hand.

A request of 33 tokens is two full blocks and the token that is always computed. With 3 usable GPU blocks one such
request fills the GPU, so what it leaves there is gone once another has run.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector.replay.engine import ReplayEngine
from connector.replay.errors import ReplayError
from connector.replay.outcome import Outcome
from connector.replay.policies import POLICIES
from connector.replay.trace import Row, Trace, TraceTraffic
from connector.replay.workload_file import EngineSpec

PLAYED = [name for name, policy in POLICIES.items() if not policy.is_bound]
A, B = (1, 2, 3), (4, 5, 6)
Play = Callable[..., Outcome]


@pytest.fixture
def play() -> Play:
    """Play requests of 33 tokens, one every 10 seconds, that answer with one token."""

    def run(*ids: tuple[int, ...], policy: str = "stock", gpu_blocks: int = 4, cpu_blocks: int = 5) -> Outcome:
        return run_rows([Row(n, 10.0 * n, 33, 1, each) for n, each in enumerate(ids)], policy, gpu_blocks, cpu_blocks)

    return run


def run_rows(
    rows: list[Row], policy: str, gpu_blocks: int, cpu_blocks: int, spec: EngineSpec | None = None, **kwargs: Any
) -> Outcome:
    traffic = TraceTraffic(Trace(Path("trace"), tuple(rows), 16), 16)
    engine = ReplayEngine(
        spec or EngineSpec(),
        POLICIES[policy],
        gpu_blocks=gpu_blocks,
        cpu_blocks=cpu_blocks,
        longest=traffic.longest,
        **kwargs,
    )
    return engine.run(traffic)


def test_a_request_takes_a_step_and_its_prefill_and_its_copies_two_steps_more(play: Play) -> None:
    outcome = play(A)
    # 33 tokens at 20,000 a second beside the step's 20 ms; then a step that orders the copies, and one that ends them.
    assert outcome.ttft_seconds == [pytest.approx(0.02 + 33 / 20_000)]
    assert len(outcome.step_ns) == 3
    assert outcome.virtual_seconds == pytest.approx(3 * 0.02 + 33 / 20_000)
    assert outcome.num_stored == 2


def test_decoding_takes_a_step_a_token() -> None:
    outcome = run_rows([Row(1, 0.0, 33, 6, A)], "stock", 10, 5)
    assert outcome.ttft_seconds == [pytest.approx(0.02165)]
    # The prompt's two blocks are stored while it decodes, nothing is left to be stored at its end; vLLM takes one step
    # more, to tell its workers that the request has ended.
    assert outcome.virtual_seconds == pytest.approx((6 + 1) * 0.02 + 33 / 20_000)


def test_time_without_work_is_skipped(play: Play) -> None:
    outcome = play(A, B)
    assert len(outcome.step_ns) == 6
    assert outcome.virtual_seconds == pytest.approx(10 + 3 * 0.02 + 33 / 20_000)


@pytest.mark.parametrize("policy", PLAYED)
def test_what_the_gpu_lost_is_loaded_from_the_tier(play: Play, policy: str) -> None:
    outcome = play(A, B, A, policy=policy)
    assert (outcome.all.prompt, outcome.all.prefill) == (99, 33 + 33 + 1)
    assert (outcome.all.gpu_hit, outcome.all.cpu_hit) == (0, 32)
    assert outcome.all.hit_rate == pytest.approx(32 / 99)
    assert (outcome.num_stored, outcome.num_loaded, outcome.num_evicted) == (4, 2, 0)


@pytest.mark.parametrize("policy", PLAYED)
def test_what_the_gpu_still_has_is_not_loaded(play: Play, policy: str) -> None:
    outcome = play(A, A, policy=policy)
    assert (outcome.all.gpu_hit, outcome.all.cpu_hit, outcome.num_loaded) == (32, 0, 0)
    assert outcome.num_stored == 2


@pytest.mark.parametrize("policy", [name for name in PLAYED if name != "unlimited"])
def test_tier_that_is_too_small_evicts_what_comes_next(play: Play, policy: str) -> None:
    outcome = play(A, B, A, policy=policy, cpu_blocks=3)
    assert outcome.all.hit_rate == 0
    assert (outcome.num_stored, outcome.num_loaded, outcome.num_evicted) == (6, 0, 4)


def test_unequal_requests_share_what_they_have_in_common(play: Play) -> None:
    outcome = play(A, (1, 7, 8), gpu_blocks=10)
    assert outcome.all.gpu_hit == 16


def test_recompute_after_a_preemption_counts_as_prefill() -> None:
    # Two answers that together outgrow the GPU: each ends at (33 + 60 - 1) / 16, 6 blocks; the pool has 7, the tier 1.
    rows = [Row(1, 0.0, 33, 60, A), Row(2, 0.0, 33, 60, B)]
    outcome = run_rows(rows, "stock", 8, 2)
    assert outcome.num_preemptions > 0
    assert (outcome.all.gpu_hit, outcome.all.cpu_hit) == (0, 0), "at first admission"
    assert outcome.all.prefill > outcome.all.prompt == 66
    assert outcome.all.hit_rate < 0


@pytest.mark.parametrize("policy", ["off", "stock"])
def test_copies_take_as_long_as_the_spec_says(policy: str) -> None:
    slow = run_rows([Row(1, 0.0, 33, 1, A)], policy, 4, 5, EngineSpec(copy_steps=5))
    assert slow.virtual_seconds == pytest.approx(7 * 0.02 + 33 / 20_000)


def test_off_decides_as_stock_does() -> None:
    chains = random.Random(5).choices(range(6), weights=[5, 4, 3, 2, 1, 1], k=80)
    rows = [Row(n, n * 0.1, 49, 1 + n % 5, (c, 10 + c, 20 + c, 900)) for n, c in enumerate(chains)]
    ours, stock = (run_rows(rows, policy, 8, 12) for policy in ("off", "stock"))
    assert ours.num_evicted > 20
    assert ours.all.cpu_hit > 0
    for name in (
        "all",
        "num_stored",
        "num_loaded",
        "num_evicted",
        "num_preemptions",
        "virtual_seconds",
        "ttft_seconds",
    ):
        assert getattr(ours, name) == getattr(stock, name), name


def test_history_holds_prompts_and_answers_in_the_order_of_time() -> None:
    outcome = run_rows([Row(1, 0.0, 32, 17, (1, 2)), Row(2, 5.0, 33, 1, A)], "stock", 10, 5, keeps_history=True)
    assert outcome.history is not None
    moments = list(outcome.history)
    assert [is_arrival for is_arrival, _ in moments] == [True, False, True, False]
    first, second = moments[0][1], moments[2][1]
    assert (len(first.usable), len(first.all)) == (1, 3), "the prompt's last block completes it; the answer fills one"
    assert second.usable == first.all[:2]


def test_engine_that_cannot_get_on_says_so(play: Play) -> None:
    with pytest.raises(ReplayError, match="does not get on after"):
        play(A, gpu_blocks=3)
