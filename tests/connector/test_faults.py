"""Copies that fail, and faults of our own."""

import pytest
from harness import BLOCK, full_attention, prompt, sliding_window
from invariants import Watch, note_restores
from vllm.sampling_params import SamplingParams
from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

from connector.policy import Policy

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


def _fail_stores(engine):
    engine.conditions.fails = lambda rank, is_store: "the disk is full" if is_store else None


def _fail_nothing(engine):
    engine.conditions.fails = lambda rank, is_store: None


@BOTH
def test_failed_copy_registers_nothing_and_is_tried_again(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 1)
    _fail_stores(engine)
    engine.step()
    watch.check()
    assert engine.in_cpu("a") == [True, False, True, True]
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    _fail_nothing(engine)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [True] * 4
    watch.check_log()
    assert engine.sql("SELECT origin, message, num_faults FROM fault") == [("copy", "the disk is full", 1)]
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(1, 1)]


@BOTH
def test_first_store_that_fails_is_repaired(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    _fail_stores(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [False] * 4
    _fail_nothing(engine)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [True] * 4


@BOTH
def test_ten_failures_in_a_row_turn_restore_off_visibly_until_someone_asks_again(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    orders = note_restores(engine)
    engine.evict("a", 2)
    _fail_stores(engine)
    for _ in range(13):
        engine.step()
        watch.check()
    assert [len(order) for order in orders] == [1] * 10 + [0] * 3
    _fail_nothing(engine)
    engine.set_policy(enabled=True)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a")[:4] == [True] * 4
    engine.close()
    assert engine.sql("SELECT count(*) FROM fault WHERE origin = 'copy'") == [(10,)]
    assert engine.sql("SELECT enabled, reason FROM policy_applied WHERE reason != 'start' ORDER BY seq")[0] == (
        0,
        "fault",
    )


def test_success_between_failures_keeps_restore_on(make_engine):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    for _ in range(3):
        engine.evict("a", 2)
        _fail_stores(engine)
        engine.steps(6)
        _fail_nothing(engine)
        engine.steps(2)
        assert engine.in_cpu("a")[:4] == [True] * 4
    assert engine.manager._restorer.policy.enabled


def test_failed_copies_of_a_finished_request_are_dropped_with_their_reason(make_engine):
    engine = make_engine(cpu_blocks=33, copy_steps=2)
    watch = Watch(engine)
    _fail_stores(engine)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    watch.check()
    watch.check_log()
    assert engine.manager._reqs_to_store == {}
    assert engine.manager._store_event_to_reqs == {}
    dropped = engine.sql("SELECT request_id, sum(num_blocks), reason FROM blocks_dropped GROUP BY 1, 3")
    assert dropped == [("a", 3, "copy_failed")]


def test_failed_copies_of_a_request_that_runs_leave_no_trace_of_their_event(make_engine):
    engine = make_engine(cpu_blocks=33)
    _fail_stores(engine)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    _fail_nothing(engine)
    assert engine.manager._reqs_to_store["a"].store_events == set()
    engine.finish("a")
    assert engine.manager._reqs_to_store == {}


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_failed_load_is_computed_instead(make_engine, is_hybrid):
    groups = [full_attention(), sliding_window()] if is_hybrid else None
    engine = make_engine(cpu_blocks=33, gpu_blocks=64, groups=groups)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.conditions.fails = lambda rank, is_store: None if is_store else "torn"
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.add("b", prompt(0, 4), max_tokens=5)
    while engine.scheduler.has_requests():
        engine.step()
        watch.check()
    assert engine.num_loads_failed == 1
    assert engine.requests["b"].num_output_tokens == 5
    watch.check_log()
    assert engine.sql("SELECT origin FROM fault") == [("load",)]
    assert engine.sql("SELECT count(*) FROM blocks_loaded") == [(0,)]
    # The request starts again, and what could not be loaded is not found a second time.
    assert engine.sql("SELECT cpu_hit_tokens FROM lookup WHERE request_id = 'b' ORDER BY seq") == [(4 * BLOCK,), (0,)]


@pytest.mark.parametrize("load_failure_policy", ["fail", "recompute"])
@pytest.mark.parametrize("is_hybrid", [False, True])
@BOTH
def test_failed_load_ends_its_request_or_is_computed_as_vllm_is_told(make_engine, is_hybrid, load_failure_policy, mode):
    """Another request runs on, and a block of it that is being re-stored meanwhile comes back."""
    groups = [full_attention(), sliding_window()] if is_hybrid else None
    engine = make_engine(
        cpu_blocks=33, groups=groups, load_failure_policy=load_failure_policy, policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("old", prompt(0, 4))
    engine.steps(2)
    engine.finish("old")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("runs", prompt(1, 4))
    engine.steps(2)
    engine.evict("runs", 1)
    engine.conditions.fails = lambda rank, is_store: None if is_store else "torn"
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.add("b", prompt(0, 4), max_tokens=5)
    step = engine.step()
    assert len(step.meta.store_gpu_blocks) == 1
    assert step.meta.load_gpu_blocks
    while not engine.requests["b"].is_finished():
        engine.step()
        watch.check()
    engine.steps(4)
    engine.finish("runs")
    engine.settle()
    watch.check()
    is_computed = load_failure_policy == "recompute"
    assert engine.requests["b"].num_output_tokens == (5 if is_computed else 0)
    assert engine.num_loads_failed == 1
    assert engine.in_cpu("runs")[1]
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    assert engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 63
    assert not engine.manager._load_steps
    assert not engine.manager._failed_loads
    watch.check_log()
    assert engine.sql("SELECT origin FROM fault") == [("load",)]
    assert engine.sql("SELECT count(*) FROM blocks_loaded") == [(0,)]
    status = "FINISHED_LENGTH_CAPPED" if is_computed else "FINISHED_ERROR"
    assert engine.sql("SELECT status FROM request_finished WHERE request_id = 'b'") == [(status,)]
    hits = engine.sql("SELECT cpu_hit_tokens FROM lookup WHERE request_id = 'b' ORDER BY seq")
    assert hits == ([(4 * BLOCK,), (0,)] if is_computed else [(4 * BLOCK,)])


@BOTH
def test_block_whose_hash_vllm_has_withdrawn_is_not_copied_again(make_engine, mode):
    """As after a failed load: the block is the request's own still, but it stands for nothing."""
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    gpu = engine.scheduler.kv_cache_manager
    gpu.block_pool.evict_blocks({gpu.get_block_ids("a")[0][1]})
    engine.evict("a", 1, 2)
    orders = note_restores(engine)
    for _ in range(4):
        engine.step()
        watch.check()
    assert orders == [[engine.keys("a")[2]], [], [], []]
    assert engine.in_cpu("a") == [True, False, True, True]
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(2, 1)]
    assert engine.sql("SELECT count(*) FROM blocks_dropped") == [(0,)]


@BOTH
@pytest.mark.parametrize("becomes", ["nothing", "another"])
def test_copy_whose_source_has_another_hash_by_its_end_is_not_registered(make_engine, becomes, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 1, 2)
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.step()
    engine.conditions.copy_steps = lambda rank, is_store: 0
    gpu = engine.scheduler.kv_cache_manager
    block = gpu.block_pool.blocks[gpu.get_block_ids("a")[0][1]]
    gpu.block_pool.evict_blocks({block.block_id})
    if becomes == "another":
        gpu.block_pool._insert_block_hash(make_block_hash_with_group_id(b"x" * 32, 0), block, num_tokens=BLOCK)
    for _ in range(4):
        engine.step()
        watch.check()
    assert engine.in_cpu("a") == [True, False, True, True]
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(2, 1)]
    assert engine.sql("SELECT first_index, num_blocks, reason FROM blocks_dropped") == [(1, 1, "rehashed")]


def test_load_that_fails_on_one_rank_is_no_load(make_engine):
    """The other rank reports its part steps later."""
    engine = make_engine(cpu_blocks=33, world_size=2)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(3)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.conditions.fails = lambda rank, is_store: "torn" if rank == 0 and not is_store else None
    engine.conditions.copy_steps = lambda rank, is_store: 3 * rank
    engine.add("b", prompt(0, 4), max_tokens=3)
    engine.settle()
    watch.check()
    engine.close()
    assert engine.requests["b"].num_output_tokens == 3
    assert engine.sql("SELECT origin FROM fault") == [("load",)]
    assert engine.sql("SELECT count(*) FROM blocks_loaded") == [(0,)]


def _broken(*args, **kwargs):
    raise RuntimeError("as if by a mistake of ours")


@BOTH
def test_what_a_fault_has_hidden_is_known_again_when_someone_asks_again(make_engine, monkeypatch, mode):
    """One loss is not noticed, and a re-store is ordered that nobody notes, so that nobody sees it end either."""
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.conditions.copy_steps = lambda rank, is_store: 3
    engine.evict("a", 1)
    with monkeypatch.context() as patch:
        patch.setattr(engine.manager._tier, "copies_ordered", _broken)
        assert len(engine.step().meta.store_gpu_blocks) == 1
        patch.setattr(engine.manager._owners, "lose", _broken)
        engine.evict("a", 3)
        engine.step()
    assert not engine.manager._restorer.policy.enabled
    engine.set_policy(enabled=True)
    engine.manager._copy_times.take_store = lambda event: 1_000  # the worker measures, as it does in an engine
    engine.steps(6)
    assert engine.in_cpu("a")[:4] == [True] * 4
    engine.evict("a", 1)
    engine.steps(5)
    assert engine.in_cpu("a")[:4] == [True] * 4
    assert engine.manager._restorer.policy.enabled


@BOTH
def test_copy_that_flies_when_someone_asks_again_after_a_fault_is_not_made_twice(make_engine, monkeypatch, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    params = SamplingParams(max_tokens=100, ignore_eos=True, skip_reading_prefix_cache=True)
    engine.add("twin", prompt(0, 4), sampling_params=params)  # which has blocks of its own for the same content
    engine.steps(2)
    engine.conditions.copy_steps = lambda rank, is_store: 6
    engine.evict("a", 1)
    assert len(engine.step().meta.store_gpu_blocks) == 1
    with monkeypatch.context() as patch:
        patch.setattr(engine.manager._journal, "note_waiting", _broken)
        engine.step()
    assert not engine.manager._restorer.policy.enabled
    engine.set_policy(enabled=True)
    for _ in range(7):
        assert engine.step().meta.store_gpu_blocks == []
        watch.check()
    assert engine.manager._restorer.policy.enabled
    assert engine.in_cpu("a") == [True] * 4


@BOTH
@pytest.mark.parametrize(
    "hook",
    [
        "_restorer.restore",
        "_restorer.review",
        "_restorer.restore_at_finish",
        "_restorer.report_dropped",
        "_tier.drain_evictions",
        "_tier.copies_ordered",
        "_tier.copies_over",
        "_tier.copies_found",
        "_copy_times.take_store",
        "_journal.request_admitted",
        "_journal.request_started",
        "_journal.request_finished",
        "_journal.lookup_tried",
        "_journal.step_taken",
        "_owners.lose",
        "_owners.disown",
    ],
)
def test_fault_of_ours_is_counted_and_vllm_goes_on(make_engine, monkeypatch, hook, mode):
    engine = make_engine(cpu_blocks=8, policy=Policy(mode=mode), gpu_blocks=24)
    name, _, method = hook.partition(".")
    part = getattr(engine.manager, name)

    engine.add("a", prompt(0, 4))
    engine.steps(2)
    with monkeypatch.context() as patch:
        patch.setattr(type(part), method, _broken)
        engine.evict("a", 1)
        engine.add("b", prompt(1, 5), max_tokens=3)
        engine.steps(2)
        engine.preempt_all()
        engine.steps(3)
        engine.finish("a")
        engine.steps(2)
    assert engine.manager._journal.num_faults > 0
    assert not engine.manager._restorer.policy.enabled
    engine.set_policy(enabled=True)
    engine.add("c", prompt(2, 4), max_tokens=4)
    engine.steps(2)
    assert engine.manager._restorer.policy.enabled
    engine.settle()
    assert engine.requests["c"].num_output_tokens == 4
    engine.close()
    assert engine.sql("SELECT count(*) > 0 FROM fault") == [(1,)]
