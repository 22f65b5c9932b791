"""The policy is changed in the middle of something: what was begun ends well, and from the next step on the new policy
is obeyed.

The engine reads the policy once a step, so what happens between the change and that step still follows the old one.
"""

import pytest
from harness import prompt
from invariants import Watch

from connector.policy import Policy

POLICIES = {"off": Policy(enabled=False), "rescan": Policy(mode="rescan"), "tracked": Policy()}
TOGGLES = [(a, b) for a in POLICIES for b in POLICIES if a != b]
CPU, GPU = 33, 64


def _slow(engine):
    engine.conditions.copy_steps = lambda rank, is_store: 3


def _fail(engine, *, stores):
    engine.conditions.fails = lambda rank, is_store: "torn" if is_store is stores else None


def _first_copies_fly(engine):
    _slow(engine)
    engine.add("n", prompt(1, 3))
    engine.steps(2)
    assert [(task.is_store, len(task.sources)) for task in engine.tasks] == [(True, 3)]


def _first_copies_fly_and_fail(engine):
    _fail(engine, stores=True)
    _first_copies_fly(engine)
    _fail(engine, stores=False)


def _load_flies(engine):
    _slow(engine)
    engine.add("n", prompt(9, 8))
    engine.step()
    assert [(task.is_store, len(task.sources)) for task in engine.tasks] == [(False, 8)]


def _load_flies_and_fails(engine):
    _fail(engine, stores=False)
    _load_flies(engine)


def _preempted(engine):
    engine.evict("a", 0, 1)
    engine.preempt_all()
    assert engine.num_running == 0


def _waits_pinned(engine):
    engine.add("n", prompt(9, 8))
    engine.step()
    assert engine.manager._pending_cpu_hits
    engine.evict("a", 1)


def _reset_while_copies_fly(engine):
    _first_copies_fly(engine)
    assert engine.reset_tier() is False


def _loss_is_noticed(engine):
    engine.evict("a", 0, 3)


# What each state is, how many GPU blocks it needs, and which of the 4 blocks of `a` and of the blocks of `n` the tier
# has once all is at rest, given that re-store was on before and is on after.
STATES = {
    # On or off, a first copy that flies is not called back.
    "first copies fly": (_first_copies_fly, GPU, lambda before, after: ([True] * 4, [True] * 3)),
    # What could not be copied is lost. Only with re-store on it is tried again.
    "first copies fail": (_first_copies_fly_and_fail, GPU, lambda before, after: ([True] * 4, [after] * 3)),
    "load flies": (_load_flies, GPU, lambda before, after: ([True] * 4, [True] * 8)),
    # What cannot be loaded is computed, and stored as any new block is.
    "load fails": (_load_flies_and_fails, GPU, lambda before, after: ([True] * 4, [True] * 8)),
    # A preempted request is stored from the start again, by stock too.
    "preempted": (_preempted, GPU, lambda before, after: ([True] * 4, None)),
    "waits pinned": (_waits_pinned, 12, lambda before, after: ([True, after, True, True], [True] * 8)),
    # Off at the reset, running requests are forgotten for good, as stock does; else they are stored from the start,
    # be it as first copies.
    "reset while copies fly": (_reset_while_copies_fly, GPU, lambda before, after: ([True] * 4, [before] * 3)),
    "loss just noticed": (_loss_is_noticed, GPU, lambda before, after: ([after, True, True, after], None)),
}


def _stored_request_and_an_old_one(make_engine, policy, gpu_blocks):
    """`a` runs, its 4 blocks stored; 8 blocks of an old request lie in the tier alone."""
    engine = make_engine(gpu_blocks=gpu_blocks, cpu_blocks=CPU, policy=POLICIES[policy])
    watch = Watch(engine)
    engine.add("old", prompt(9, 8))
    engine.steps(2)
    engine.finish("old")
    engine.settle()
    gpu = engine.scheduler.kv_cache_manager.block_pool
    gpu.evict_blocks({b.block_id for b in gpu.blocks if not b.is_null})
    engine.add("a", prompt(0, 4))
    engine.steps(3)
    assert engine.in_cpu("a") == [True] * 4
    return engine, watch


def _check_the_end(engine, watch, policy):
    """Nothing is held, nothing of ours has failed, and a second reset finds nothing in its way."""
    engine.settle()
    watch.check()
    assert engine.manager._restorer.policy == POLICIES[policy]
    pool = engine.scheduler.kv_cache_manager.block_pool
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == CPU - 1
    assert engine.reset_tier() is True
    watch.check()
    watch.check_log()
    assert engine.sql("SELECT count(*) FROM fault WHERE origin NOT IN ('copy', 'load')") == [(0,)]
    enabled, mode = POLICIES[policy].enabled, POLICIES[policy].mode
    assert engine.sql("SELECT enabled, mode FROM policy_applied ORDER BY seq DESC LIMIT 1") == [(enabled, mode)]


@pytest.mark.parametrize(("before", "after"), TOGGLES)
@pytest.mark.parametrize("state", STATES)
def test_policy_that_changes_in_the_middle(make_engine, state, before, after):
    bring_about, gpu_blocks, expected = STATES[state]
    engine, watch = _stored_request_and_an_old_one(make_engine, before, gpu_blocks)
    bring_about(engine)
    watch.check()
    engine.set_policy(**POLICIES[after].as_dict())
    watch.check()
    for _ in range(8):
        engine.step()
        watch.check()
        engine.conditions.fails = lambda rank, is_store: None
    blocks_of_a, blocks_of_n = expected(before != "off", after != "off")
    assert engine.in_cpu("a")[:4] == blocks_of_a
    if blocks_of_n is not None:
        assert engine.in_cpu("n")[: len(blocks_of_n)] == blocks_of_n
    engine.conditions.copy_steps = lambda rank, is_store: 0
    # The policy that is in force now: what is lost from here on comes back, or does not.
    if engine.in_cpu("a")[2]:
        engine.evict("a", 2)
        engine.steps(3)
        watch.check()
        is_known = not (state == "reset while copies fly" and before == "off")
        assert engine.in_cpu("a")[2] is (after != "off" and is_known)
    engine.finish("a")
    engine.steps(8)
    watch.check()
    if blocks_of_n is not None:
        assert engine.num_running == 1
        engine.finish("n")
    _check_the_end(engine, watch, after)


@pytest.mark.parametrize(("before", "after"), TOGGLES)
def test_restore_that_flies_when_the_policy_changes_ends_and_counts_once(make_engine, before, after):
    engine, watch = _stored_request_and_an_old_one(make_engine, before, GPU)
    engine.evict("a", 1)
    _slow(engine)
    assert len(engine.step().meta.store_gpu_blocks) == (before != "off")
    engine.set_policy(**POLICIES[after].as_dict())
    copies = 0
    for _ in range(8):
        copies += len(engine.step().meta.store_gpu_blocks)
        watch.check()
    # Begun before, it is not begun again; not begun before, it is begun once where the new policy wants it.
    assert copies == (before == "off")
    assert engine.in_cpu("a")[1]
    engine.finish("a")
    _check_the_end(engine, watch, after)
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(1, 1)]


@pytest.mark.parametrize(("before", "after"), TOGGLES)
def test_restore_that_fails_after_the_policy_has_changed_is_tried_again_only_where_it_is_wanted(
    make_engine, before, after
):
    engine, watch = _stored_request_and_an_old_one(make_engine, before, GPU)
    engine.evict("a", 1)
    _slow(engine)
    _fail(engine, stores=True)
    engine.step()
    engine.conditions.fails = lambda rank, is_store: None
    engine.set_policy(**POLICIES[after].as_dict())
    for _ in range(10):
        engine.step()
        watch.check()
    assert engine.in_cpu("a")[:4] == [True, after != "off", True, True]
    engine.finish("a")
    _check_the_end(engine, watch, after)
    assert engine.sql("SELECT count(*) FROM fault WHERE origin = 'copy'") == [(int(before != "off"),)]


@pytest.mark.parametrize(("before", "after"), TOGGLES)
def test_request_that_ends_before_the_next_step_still_follows_the_old_policy(make_engine, before, after):
    engine, watch = _stored_request_and_an_old_one(make_engine, before, GPU)
    engine.evict("a", 0, 2)
    engine.set_policy(**POLICIES[after].as_dict())
    engine.finish("a")
    watch.check()
    for _ in range(3):
        engine.step()
        watch.check()
    is_on = before != "off"
    assert engine.in_cpu("a") == [is_on, True, is_on, True]
    _check_the_end(engine, watch, after)
