"""The tier is emptied, or a request goes, while something is on its way."""

import pytest
from harness import prompt
from invariants import Watch, findable
from vllm.sampling_params import SamplingParams

from connector.policy import Policy

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


@BOTH
def test_reset_while_restores_fly_leaves_no_stale_hash_and_starts_again(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 6))
    engine.steps(3)
    engine.evict("a", 1, 3)
    engine.conditions.copy_steps = lambda rank, is_store: 3
    step = engine.step()
    assert len(step.meta.store_gpu_blocks) == 2
    assert engine.reset_tier() is False  # the worker still writes
    watch.check()
    lost = [engine.keys("a")[i] for i in (1, 3)]
    copies = []
    for _ in range(10):
        new = engine.step().meta.store_gpu_blocks
        watch.check()
        if not copies and new:
            assert not findable(engine) & set(lost), "an abandoned copy was registered"
        copies += new
    gpu_blocks = engine.scheduler.kv_cache_manager.get_block_ids("a")[0]
    assert sorted(copies) == sorted(gpu_blocks[i] for i in (1, 3)), "each lost block is copied once more, and only once"
    assert engine.in_cpu("a")[:6] == [True] * 6
    assert engine.reset_tier() is True
    watch.check()
    assert not findable(engine)
    for _ in range(6):
        engine.step()
        watch.check()
    assert engine.in_cpu("a") == [True] * 7
    assert engine.manager._reqs_to_store["a"].num_stored_blocks == [7]
    watch.check_log()
    assert engine.sql("SELECT num_blocks FROM cache_reset") == [(6,)]
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]


def test_late_completion_of_a_reset_copy_does_not_speak_for_the_new_copy(make_engine):
    """The same content is on its way twice: once from before the reset, once from after it."""
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    engine.add("a", prompt(0, 2))
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.steps(2)
    assert engine.reset_tier() is False
    engine.conditions.copy_steps = lambda rank, is_store: 8
    assert len(engine.step().meta.store_gpu_blocks) == 2
    while len(engine.tasks) > 1:
        engine.step()
    # The old copies are over, the new ones are not. A twin with GPU blocks of its own has nothing to add.
    params = SamplingParams(max_tokens=100, ignore_eos=True, skip_reading_prefix_cache=True)
    engine.add("twin", prompt(0, 2), sampling_params=params)
    for _ in range(10):
        assert engine.step().meta.store_gpu_blocks == []
        watch.check()
    assert engine.in_cpu("a") == [True] * 2


def test_reset_with_a_pinned_hit_and_an_unsent_copy_gives_everything_back(make_engine):
    engine = make_engine(gpu_blocks=12, cpu_blocks=33)
    watch = Watch(engine)
    engine.add("a", prompt(0, 8))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    gpu = engine.scheduler.kv_cache_manager.block_pool
    gpu.evict_blocks({b.block_id for b in gpu.blocks})
    engine.add("b", prompt(1, 3))
    engine.steps(2)
    engine.add("waits", prompt(0, 8))
    engine.step()
    assert engine.manager._pending_cpu_hits
    engine.evict("b", 0)
    engine.finish("b")
    watch.check()
    assert engine.manager._pending_finished_stores
    assert engine.reset_tier() is True
    watch.check()
    engine.finish("waits")
    engine.settle()
    watch.check_log()


def test_reset_during_a_load_lets_the_load_end(make_engine):
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.conditions.copy_steps = lambda rank, is_store: 3
    engine.add("b", prompt(0, 4))
    engine.step()
    assert engine.reset_tier() is False
    for _ in range(8):
        engine.step()
        watch.check()
    assert engine.num_running == 1
    engine.finish("b")
    engine.settle()
    assert engine.reset_tier() is True
    watch.check_log()


def test_aborted_before_its_first_schedule_after_a_lookup_hit(make_engine):
    engine = make_engine(gpu_blocks=12, cpu_blocks=33)
    watch = Watch(engine)
    engine.add("old", prompt(0, 8))
    engine.steps(2)
    engine.finish("old")
    engine.settle()
    gpu = engine.scheduler.kv_cache_manager.block_pool
    gpu.evict_blocks({b.block_id for b in gpu.blocks})
    engine.add("runs", prompt(1, 4))
    engine.step()
    engine.add("waits", prompt(0, 8))
    engine.step()
    assert engine.manager._pending_cpu_hits
    watch.check()
    engine.abort("waits")
    assert not engine.manager._pending_cpu_hits
    watch.check()
    engine.finish("runs")
    engine.settle()
    watch.check_log()
    assert engine.sql("SELECT count(*) FROM lookup WHERE request_id = 'waits'") == [(0,)]
    assert engine.sql("SELECT status FROM request_finished WHERE request_id = 'waits'") == [("FINISHED_ABORTED",)]


@pytest.mark.parametrize("is_sent", [False, True])
def test_aborted_during_a_load(make_engine, is_sent):
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.conditions.copy_steps = lambda rank, is_store: 4
    engine.add("b", prompt(0, 4))
    engine.step()
    if is_sent:
        engine.step()
    assert engine.tasks
    engine.abort("b")
    watch.check()
    while engine.scheduler.has_requests():
        engine.step()
        watch.check()
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    assert engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 63
    assert not engine.manager._load_steps


@BOTH
def test_aborted_during_a_restore(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 0, 2)
    engine.conditions.copy_steps = lambda rank, is_store: 4
    engine.step()
    engine.abort("a")
    watch.check()
    engine.settle()
    watch.check()
    assert engine.in_cpu("a") == [True] * 4
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(0, 1), (2, 1)]
