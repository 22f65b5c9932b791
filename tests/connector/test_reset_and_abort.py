"""The tier is emptied, or a request goes, while something is on its way."""

import pytest
from harness import BLOCK, prompt
from invariants import Watch, findable, note_restores
from vllm.sampling_params import SamplingParams
from vllm.v1.request import RequestStatus

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


def test_places_that_abandoned_copies_hold_are_no_room(make_engine):
    """16 blocks run in a tier of 16 places, 8 of which a slow worker still writes to for nobody. In the other 8 there
    is room for two heads of 4; all 16 have come when the worker is done."""
    engine = make_engine(cpu_blocks=17, policy=Policy(max_restore_blocks_per_step=0))
    watch = Watch(engine)
    engine.conditions.copy_steps = lambda rank, is_store: 10
    engine.add("a", prompt(0, 8, extra=0))
    engine.steps(2)
    assert engine.reset_tier() is False
    engine.conditions.copy_steps = lambda rank, is_store: 0
    engine.add("b", prompt(1, 8, extra=0))
    orders = note_restores(engine)
    for _ in range(6):
        engine.step()
        watch.check()
    assert len(engine.tasks) == 1
    assert not any(orders[-3:]), "while the places are taken, nothing is copied in circles"
    assert [engine.prefix_in_cpu(name) for name in "ab"] == [4, 4]
    while engine.tasks:
        engine.step()
        watch.check()
    for _ in range(4):
        engine.step()
        watch.check()
    assert [engine.in_cpu(name)[:8] for name in "ab"] == [[True] * 8] * 2
    assert not any(orders[-2:])


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
    # Its hit of 8 blocks is pinned; the 4 blocks of the other are on the GPU's side alone.
    assert [hit for _, hit, _ in engine.manager._pending_cpu_hits.values()] == [8 * BLOCK]
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32 - 8
    watch.check()
    engine.abort("waits")
    assert not engine.manager._pending_cpu_hits
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    watch.check()
    engine.finish("runs")
    engine.settle()
    watch.check_log()
    assert engine.sql("SELECT count(*) FROM lookup WHERE request_id = 'waits'") == [(0,)]
    assert engine.sql("SELECT status FROM request_finished WHERE request_id = 'waits'") == [("FINISHED_ABORTED",)]


def _stored_and_forgotten_by_the_gpu(engine):
    """4 blocks that only the CPU tier has."""
    engine.add("old", prompt(0, 4))
    engine.steps(2)
    engine.finish("old")
    engine.settle()
    engine.forget_gpu_prefixes()


def _free_blocks(engine):
    """(of the GPU, of the CPU tier). In use here: 63 and 32 at most."""
    gpu = engine.scheduler.kv_cache_manager.block_pool
    return gpu.get_num_free_blocks(), engine.manager.cpu_block_pool.get_num_free_blocks()


def test_aborted_while_the_worker_loads(make_engine):
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    _stored_and_forgotten_by_the_gpu(engine)
    engine.conditions.copy_steps = lambda rank, is_store: 4
    engine.add("b", prompt(0, 4))
    engine.step()
    (load,) = engine.tasks
    assert (load.is_store, load.requests) == (False, ["b"])
    engine.abort("b")
    watch.check()
    # The worker still reads 4 blocks of the tier and writes 4 of the GPU's: neither may be given away.
    assert _free_blocks(engine)[1] == 32 - 4
    assert {b.block_id for b in engine.manager.cpu_block_pool.blocks if b.ref_cnt} >= set(load.sources)
    gpu = engine.scheduler.kv_cache_manager.block_pool
    assert all(gpu.blocks[block_id].ref_cnt for block_id in load.targets)
    while engine.scheduler.has_requests():
        engine.step()
        watch.check()
    assert _free_blocks(engine) == (63, 32)
    assert not engine.manager._load_steps
    watch.check_log()
    assert engine.sql("SELECT status FROM request_finished WHERE request_id = 'b'") == [("FINISHED_ABORTED",)]


def test_aborted_when_its_load_was_ordered_but_no_worker_has_it_yet(make_engine):
    """The order is on its way and cannot be called back: the blocks are held until the worker has carried it out."""
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    _stored_and_forgotten_by_the_gpu(engine)
    engine.add("b", prompt(0, 4))
    step = engine.schedule_ahead()
    assert len(step.meta.load_gpu_blocks) == 4
    assert engine.tasks == []
    engine.abort("b")
    watch.check()
    assert _free_blocks(engine)[1] == 32 - 4
    for _ in range(3):
        engine.step()
        watch.check()
    engine.settle()
    assert _free_blocks(engine) == (63, 32)
    assert not engine.manager._load_steps
    watch.check_log()


def test_load_that_was_chosen_and_not_ordered_is_given_back_at_once_and_its_name_can_be_used_again(make_engine):
    """The request ends between the choice of its load and the building of a step's metadata. vLLM's scheduler does both
    in one call, so its hooks are called here as it calls them."""
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    _stored_and_forgotten_by_the_gpu(engine)
    request = engine._request("b", prompt(0, 4), max_tokens=8)
    tables = engine.scheduler.kv_cache_manager
    assert engine.connector.get_num_new_matched_tokens(request, 0) == (4 * BLOCK, True)
    tables.allocate_slots(request, 0, num_external_computed_tokens=4 * BLOCK, delay_cache_blocks=True)
    engine.connector.update_state_after_alloc(request, tables.get_blocks("b"), 4 * BLOCK)
    assert _free_blocks(engine) == (63 - 4, 32 - 4)
    request.status = RequestStatus.FINISHED_ABORTED
    engine.connector.request_finished_all_groups(request, tables.get_block_ids("b"))
    tables.free(request)
    assert _free_blocks(engine) == (63, 32)
    watch.check()
    # Another request of that name: its load is told of the step that ordered it, not of the one that was given up.
    engine.add("c", prompt(5, 1))
    for _ in range(3):
        assert engine.step().meta.load_gpu_blocks == []
    engine.add("b", prompt(0, 4))
    assert len(engine.step().meta.load_gpu_blocks) == 4
    ordered_in = engine.connector._recorder.step
    engine.steps(2)
    watch.check_log()
    assert engine.sql("SELECT request_id, num_blocks, scheduled_step FROM blocks_loaded") == [("b", 4, ordered_in)]


@BOTH
def test_aborted_during_a_restore(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 0, 2)
    engine.conditions.copy_steps = lambda rank, is_store: 4
    engine.step()
    lost = [engine.scheduler.kv_cache_manager.get_block_ids("a")[0][i] for i in (0, 2)]
    (copy,) = engine.tasks
    assert copy.sources == lost
    engine.abort("a")
    watch.check()
    # The 5 blocks of the request are free but for the two that are being read.
    assert _free_blocks(engine) == (63 - 2, 32 - 2)
    assert all(engine.scheduler.kv_cache_manager.block_pool.blocks[block_id].ref_cnt == 1 for block_id in lost)
    while engine.scheduler.has_requests():
        assert engine.step().meta.store_gpu_blocks == []
        watch.check()
    assert _free_blocks(engine) == (63, 32)
    assert engine.in_cpu("a") == [True] * 4
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(0, 1), (2, 1)]
