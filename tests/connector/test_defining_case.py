"""The case that re-store exists for: one block lost in the middle of a running request hides all that lies behind."""

import pytest
from harness import BLOCK, prompt
from vllm import SamplingParams

from connector.policy import Policy

CASES = {"off": (Policy(enabled=False), 2), "rescan": (Policy(mode="rescan"), 10), "tracked": (Policy(), 10)}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def _lose_block_2_of_a_running_request(engine):
    """10 full blocks and one token, all stored; then the copy of the third block is evicted."""
    engine.add("a", prompt(0, 10, extra=1))
    engine.steps(3)
    assert engine.in_cpu("a") == [True] * 10
    engine.evict("a", 2)


def test_lookup_after_a_loss_hits_up_to_the_hole_or_everything(make_engine, case):
    policy, hit_blocks = case
    engine = make_engine(cpu_blocks=33, policy=policy)
    _lose_block_2_of_a_running_request(engine)
    engine.steps(4)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    again = engine.add("b", prompt(0, 10, extra=1))
    engine.step()
    assert again.num_computed_tokens == hit_blocks * BLOCK
    engine.steps(3)
    engine.finish("b")
    engine.settle()
    engine.close()
    assert engine.sql("SELECT gpu_hit_tokens, cpu_hit_tokens, cut_index FROM lookup WHERE request_id = 'b'") == [
        (0, hit_blocks * BLOCK, None if hit_blocks == 10 else hit_blocks)
    ]
    assert engine.sql("SELECT first_index, num_blocks, request_id, num_owned FROM blocks_evicted") == [(2, 1, "a", 1)]
    restored = engine.sql("SELECT request_id, kv_group, first_index, num_blocks FROM blocks_restored")
    assert restored == ([] if hit_blocks == 2 else [("a", 0, 2, 1)])
    assert engine.sql("SELECT sum(num_blocks) FROM blocks_loaded WHERE request_id = 'b'") == [(hit_blocks,)]


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
@pytest.mark.parametrize(
    ("asked", "num_restored"),
    # Only a plain `false` is a word for us; what else stands there is somebody else's, or a mistake.
    [({"restore": False}, 0), ({"restore": True}, 1), ({"restore": "false"}, 1), ({"do_remote_prefill": False}, 1)],
)
def test_a_client_may_say_that_nobody_will_ask_again(make_engine, mode, asked, num_restored):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    said = SamplingParams(max_tokens=1_000, ignore_eos=True, extra_args={"kv_transfer_params": asked})
    engine.add("a", prompt(0, 10, extra=1), sampling_params=said)
    engine.add("b", prompt(1, 10, extra=1))
    engine.steps(3)
    engine.evict("a", 2)
    engine.evict("b", 2)
    engine.steps(3)
    engine.finish("a")
    engine.finish("b")
    engine.settle()
    engine.close()
    restored = dict(engine.sql("SELECT request_id, sum(num_blocks) FROM blocks_restored GROUP BY request_id"))
    assert restored == {"b": 1} | ({"a": num_restored} if num_restored else {})
    assert engine.sql("SELECT * FROM fault") == []


@pytest.mark.parametrize("retention", ["lru", "adaptive"])
def test_what_is_not_copied_again_is_so_after_the_policy_changed_as_well(make_engine, retention):
    engine = make_engine(cpu_blocks=33, policy=Policy(enabled=False, retention=retention))
    said = SamplingParams(max_tokens=1_000, ignore_eos=True, extra_args={"kv_transfer_params": {"restore": False}})
    engine.add("a", prompt(0, 10, extra=1), sampling_params=said)
    engine.steps(3)
    assert engine.in_cpu("a") == [True] * 10
    engine.set_policy(enabled=True)
    engine.evict("a", 2)
    engine.steps(3)
    engine.finish("a")
    engine.settle()
    engine.close()
    assert engine.sql("SELECT * FROM blocks_restored") == []


def test_cursor_never_passes_the_ready_blocks(make_engine, case):
    policy, _ = case
    engine = make_engine(cpu_blocks=33, policy=policy)
    _lose_block_2_of_a_running_request(engine)
    request = engine.requests["a"]
    for _ in range(40):
        engine.step()
        (cursor,) = engine.manager._reqs_to_store["a"].num_stored_blocks
        assert 10 <= cursor <= request.num_computed_tokens // BLOCK
    engine.close()
    ready = dict(engine.sql("SELECT step, max(to_index) FROM cursor_moved GROUP BY step"))
    # Step 1 computes the prompt's 161 tokens and every further step one; a step stores what those before it computed.
    assert ready
    assert all(to_index <= (161 + step - 2) // BLOCK for step, to_index in ready.items())


def test_restores_stop_once_nothing_is_missing(make_engine, case):
    policy, hit_blocks = case
    engine = make_engine(cpu_blocks=33, policy=policy)
    _lose_block_2_of_a_running_request(engine)
    engine.steps(30)
    engine.close()
    ordered = engine.sql("SELECT step, num_restored FROM steps WHERE num_restored > 0")
    assert ordered == ([] if hit_blocks == 2 else [(4, 1)])


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_loss_is_repaired_in_a_step_that_schedules_its_request_nothing(make_engine, mode):
    """Async scheduling passes a request over once all its tokens are on their way; its blocks are still on the GPU."""
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode), is_async=True)
    engine.add("a", prompt(0, 4), max_tokens=6)
    engine.add("b", prompt(1, 4))
    engine.steps(6)
    assert len(engine.scheduler.running) == 2
    engine.evict("a", 1)
    lost_on_gpu = engine.scheduler.kv_cache_manager.get_block_ids("a")[0][1]
    step = engine.step()
    assert list(step.scheduled) == ["b"]
    assert step.meta.store_gpu_blocks == [lost_on_gpu]
