"""Several ranks that report apart, and several connectors side by side."""

import pytest
from harness import BLOCK, OURS, STOCK, full_attention, prompt, sliding_window
from invariants import Watch, check_references, check_truth, note_restores
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

from connector.kv_connector import ReStoreConnector
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


@pytest.mark.parametrize("slow", [None, 0, 1])
@pytest.mark.parametrize("failing", [0, 1])
def test_copy_that_fails_on_one_rank_is_registered_on_none(make_engine, failing, slow):
    """Whichever rank it is, and whether it reports with the other one, before it or after it."""
    engine = make_engine(cpu_blocks=33, world_size=2)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 2 if rank == slow else 0
    engine.conditions.fails = lambda rank, is_store: "torn" if rank == failing else None
    engine.step()
    engine.conditions.fails = lambda rank, is_store: None
    while engine.tasks:
        engine.step()
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


@pytest.mark.parametrize("is_hybrid", [False, True])
def test_worker_names_blocks_of_a_failed_load_or_in_a_hybrid_model_its_request(make_engine, is_hybrid):
    """vLLM stops the engine where a model with several groups reports single blocks."""
    groups = [full_attention(), sliding_window()] if is_hybrid else None
    engine = make_engine(groups=groups)
    worker = ReStoreConnector(engine.config, KVConnectorRole.WORKER, engine.kv_cache_config)
    # A worker that never got a KV cache can copy nothing.
    worker.bind_connector_metadata(
        SimpleCPUOffloadMetadata(
            load_event=0, load_gpu_blocks=[3, 4], load_cpu_blocks=[1, 2], load_event_to_reqs={0: ["a"]}
        )
    )
    worker.start_load_kv(None)
    results = worker.get_transfer_results(set())
    assert results.finished_recving == {"a"}
    assert results.failed_recving == ({"a"} if is_hybrid else set())
    assert worker.get_block_ids_with_load_errors() == (set() if is_hybrid else {3, 4})
    assert worker.get_transfer_results(set()).failed_recving == set()
    worker.shutdown()


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


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_load_of_a_sibling_that_fails_is_no_failure_of_ours(make_engine, mode):
    """`b` is loaded by the sibling, which fails; `c` by us, and a re-store of ours is on its way meanwhile."""
    engine = make_engine(cpu_blocks=33, children=[STOCK, OURS], policy=Policy(mode=mode))
    watch = Watch(engine)
    (theirs,), (ours,) = engine.workers
    theirs.can_fail, ours.can_fail = (True, False), (False, False)  # loads, stores
    engine.add("old b", prompt(1, 4))
    engine.add("old c", prompt(2, 3))
    engine.steps(2)
    engine.finish("old b")
    engine.finish("old c")
    engine.settle()
    their_pool = engine.children[0].scheduler_manager.cpu_block_pool
    for key in engine.keys("old c"):
        their_pool.evict_blocks({their_pool.cached_block_hash_to_block.get_one_block(key).block_id})
    engine.forget_gpu_prefixes()
    engine.add("runs", prompt(0, 4))
    engine.steps(2)
    engine.evict("runs", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 3
    engine.conditions.fails = lambda rank, is_store: None if is_store else "the sibling's disk is gone"
    engine.add("b", prompt(1, 4), max_tokens=4)
    engine.add("c", prompt(2, 3), max_tokens=4)
    step = engine.step()
    assert [len(meta.load_gpu_blocks) for meta in step.metas] == [4, 3]
    assert len(step.meta.store_gpu_blocks) == 1
    engine.conditions.fails = lambda rank, is_store: None  # the sibling finds the same blocks again
    while engine.requests["c"].num_output_tokens < 4:
        engine.step()
        watch.check()
    engine.finish("runs")
    engine.settle()
    watch.check()
    assert engine.num_loads_failed == 1
    assert [engine.requests[r].num_output_tokens for r in "bc"] == [4, 4]
    assert not engine.manager._failed_loads
    assert not engine.manager._load_steps
    assert engine.manager.cpu_block_pool.get_num_free_blocks() == 32
    assert engine.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 63
    # What the sibling could not load is still ours to give, and what we re-stored is there.
    assert engine.in_cpu("old b") == [True] * 4
    assert engine.in_cpu("runs")[:4] == [True] * 4
    watch.check_log()
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]
    assert engine.sql("SELECT request_id, num_blocks FROM blocks_loaded") == [("c", 3)]
    assert engine.sql("SELECT request_id, first_index, num_blocks FROM blocks_restored") == [("runs", 1, 1)]
