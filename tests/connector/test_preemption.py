"""A request that gives its GPU blocks back and comes again with others."""

import pytest
from harness import prompt
from invariants import Watch, note_restores

from connector.policy import Policy

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


@BOTH
def test_preempted_with_a_restore_in_flight(make_engine, mode):
    """Two requests of 4 full blocks and 14 tokens fill 10 GPU blocks; step 4 needs one more, so the last has to go."""
    engine = make_engine(gpu_blocks=11, cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    for n, name in enumerate("ab"):
        engine.add(name, prompt(n, 4, extra=14))
    engine.steps(2)
    old_blocks = engine.scheduler.kv_cache_manager.get_block_ids("b")[0]
    engine.evict("b", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 5
    third = engine.step()
    assert third.meta.store_gpu_blocks == [old_blocks[1]]
    watch.check()
    fourth = engine.step()
    assert fourth.output.preempted_req_ids == {"b"}
    assert fourth.meta.need_flush
    watch.check()
    state = engine.manager._reqs_to_store["b"]
    assert (state.num_stored_blocks, state.block_ids) == ([0], ([],))
    engine.conditions.copy_steps = lambda rank, is_store: 0
    for _ in range(5):
        step = engine.step()
        watch.check()
        freed = set(old_blocks) - set(engine.scheduler.kv_cache_manager.get_block_ids("a")[0])
        assert not freed & set(step.meta.store_gpu_blocks)
    engine.finish("a")
    for _ in range(5):
        engine.step()
        watch.check()
    assert engine.num_running == 1
    assert engine.manager._reqs_to_store["b"].num_stored_blocks == [5]
    engine.close()
    assert engine.sql("SELECT request_id, first_index, num_blocks FROM blocks_restored") == [("b", 1, 1)]
    assert engine.sql("SELECT request_id, num_preemptions FROM request_preempted") == [("b", 1)]
    cursors = engine.sql("SELECT from_index, to_index FROM cursor_moved WHERE request_id = 'b' ORDER BY seq")
    assert cursors[0] == (0, 4)
    assert cursors[1][0] == 0


@BOTH
def test_same_request_preempted_twice_is_stored_from_the_start_each_time(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 6))
    for count in (1, 2):
        for _ in range(3):
            engine.step()
            watch.check()
        engine.evict("a", 2)
        engine.preempt_all()
        for _ in range(3):
            engine.step()
            watch.check()
        assert engine.requests["a"].num_preemptions == count
        assert engine.in_cpu("a")[:6] == [True] * 6
        assert engine.manager._reqs_to_store["a"].num_stored_blocks == [6]
    watch.check_log()
    assert engine.sql("SELECT num_preemptions FROM request_preempted") == [(1,), (2,)]


def test_lost_blocks_of_a_preempted_request_wait_for_nobody(make_engine):
    """What a preempted request owned has no GPU block to be copied from until it runs again."""
    engine = make_engine(gpu_blocks=11, cpu_blocks=33)
    watch = Watch(engine)
    for n, name in enumerate("ab"):
        engine.add(name, prompt(n, 4, extra=14))
    engine.steps(3)
    engine.evict("b", 0, 1, 2)
    engine.step()
    assert engine.requests["b"].num_preemptions == 1
    for _ in range(3):
        engine.step()
        watch.check()
    assert engine.manager._owners.num_lost == 0


@BOTH
def test_step_that_resumes_a_preempted_request_copies_nothing_for_its_past(make_engine, mode):
    """`reset_running_requests` preempts before the step that takes the request in again: in one step vLLM reports it
    preempted and hands it new blocks, some of which have their old numbers. Its cursor restarts; what was lost is
    stored once, as a first store, by a later step."""
    engine = make_engine(gpu_blocks=8, cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 6))
    engine.steps(3)
    ids = engine.scheduler.kv_cache_manager.get_block_ids
    before = ids("a")[0][:6]
    engine.preempt_all()
    engine.evict("a", 0, 3)  # without its head, it hits nothing and is computed at once
    orders = note_restores(engine)
    step = engine.step()
    assert step.output.preempted_req_ids == {"a"}
    assert "a" in step.scheduled
    after = ids("a")[0][:6]
    assert after[3] == before[3], "the case is that the number is the same"
    assert step.meta.store_gpu_blocks == []
    watch.check()
    copies = []
    for _ in range(4):
        copies += engine.step().meta.store_gpu_blocks
        watch.check()
    assert copies == [after[0], after[3]]
    assert not any(orders)
    assert engine.in_cpu("a")[:6] == [True] * 6
