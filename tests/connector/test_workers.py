"""Several ranks that report apart, and several connectors side by side."""

import pytest
from harness import BLOCK, OURS, STOCK, prompt
from invariants import Watch, check_references, check_truth, note_restores

from connector.policy import Policy


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_block_is_findable_only_when_both_ranks_have_reported(make_engine, mode):
    engine = make_engine(cpu_blocks=33, world_size=2, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 4 * rank
    orders = note_restores(engine)
    seen = []
    for _ in range(6):
        engine.step()
        watch.check()
        seen.append((len(engine.tasks), engine.in_cpu("a")[1]))
    assert seen == [(1, False)] * 4 + [(0, True)] * 2
    assert [len(order) for order in orders] == [1, 0, 0, 0, 0, 0]


def test_copy_that_fails_on_one_rank_is_registered_on_none(make_engine):
    engine = make_engine(cpu_blocks=33, world_size=2)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 2 * rank
    engine.conditions.fails = lambda rank, is_store: "torn" if rank == 0 else None
    engine.step()
    engine.conditions.fails = lambda rank, is_store: None
    engine.steps(2)
    watch.check()
    assert not engine.in_cpu("a")[1]
    engine.steps(4)
    watch.check()
    assert engine.in_cpu("a") == [True] * 4
    watch.check_log()
    assert engine.sql("SELECT message FROM fault") == [("torn",)]


def test_copies_may_end_in_any_order(make_engine):
    engine = make_engine(gpu_blocks=48, cpu_blocks=17)
    watch = Watch(engine)
    engine.conditions.order = lambda tasks: tasks[::-1]
    delays = [5, 0, 3, 1, 4, 0, 2] * 20
    engine.conditions.copy_steps = lambda rank, is_store: delays.pop()
    for n in range(6):
        engine.add(f"r{n}", prompt(n % 4, n % 3 + 1), max_tokens=40)
        for _ in range(4):
            engine.step()
            watch.check()
    engine.settle()
    watch.check()
    watch.check_log()


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_child_that_was_not_chosen_for_a_load_stores_and_restores_on(make_engine, mode):
    """Under vLLM's `MultiConnector`, the first child that has a hit loads; all children store."""
    engine = make_engine(cpu_blocks=33, children=[STOCK, OURS], policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    assert engine.in_cpu("a") == [True] * 4
    engine.forget_gpu_prefixes()
    engine.add("b", prompt(0, 6))
    step = engine.step()
    assert len(step.metas[0].load_gpu_blocks) == 4
    assert step.meta.load_gpu_blocks == []
    for _ in range(3):
        engine.step()
        watch.check()
    engine.evict("b", 1, 5)
    for _ in range(3):
        engine.step()
        watch.check()
    assert engine.in_cpu("b") == [True] * 6
    engine.finish("b")
    engine.settle()
    watch.check()
    watch.check_log()
    assert engine.sql("SELECT sum(num_blocks) FROM blocks_restored") == [(2,)]
    assert engine.sql("SELECT count(*) FROM blocks_loaded") == [(0,)]
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]


def test_child_that_was_chosen_loads(make_engine):
    engine = make_engine(cpu_blocks=33, children=[OURS])
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("b", prompt(0, 4))
    engine.step()
    assert engine.requests["b"].num_computed_tokens == 4 * BLOCK
    engine.steps(2)
    check_references(engine)
    check_truth(engine)
    watch.check_log()
    assert engine.sql("SELECT sum(num_blocks) FROM blocks_loaded") == [(4,)]
