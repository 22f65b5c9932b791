"""What is the same content and what is not: twins, salts and adapters."""

import pytest
from harness import BLOCK, prompt
from invariants import Watch, note_restores
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams

from connector.policy import Policy


def _computes_all():
    """A request that does not take what others have computed: it gets GPU blocks of its own for the same content."""
    return SamplingParams(max_tokens=100, ignore_eos=True, skip_reading_prefix_cache=True)


BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


@BOTH
def test_two_requests_that_compute_the_same_prompt_at_once_get_one_copy(make_engine, mode):
    engine = make_engine(cpu_blocks=33, copy_steps=2, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.add("b", prompt(0, 4), sampling_params=_computes_all())
    copies = 0
    for _ in range(8):
        copies += len(engine.step().meta.store_gpu_blocks)
        watch.check()
    ids = engine.scheduler.kv_cache_manager.get_block_ids
    assert not set(ids("a")[0][:4]) & set(ids("b")[0][:4]), "they were computed twice"
    assert copies == 4
    assert engine.in_cpu("a") == [True] * 4
    engine.evict("a", 1)
    engine.finish("a")
    for _ in range(4):
        engine.step()
        watch.check()
    assert engine.in_cpu("b") == [True] * 4


def test_evicting_a_duplicate_is_no_loss_while_the_other_answers(make_engine):
    """Stock copies twins twice."""
    engine = make_engine(cpu_blocks=33, copy_steps=2, policy=Policy(enabled=False))
    watch = Watch(engine)
    engine.add("a", prompt(0, 2))
    engine.add("b", prompt(0, 2), sampling_params=_computes_all())
    copies = sum(len(step.meta.store_gpu_blocks) for step in engine.steps(6))
    assert copies == 4
    engine.evict("a", 0)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [True] * 2
    engine.evict("a", 0)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [False, True]
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_evicted") == [(0, 1)]


@BOTH
def test_block_that_its_first_owner_cannot_supply_comes_back_from_another(make_engine, mode):
    """vLLM has withdrawn the hash of `a`'s block, as after a failed load; `b` has its own block with that content."""
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 3))
    engine.add("b", prompt(0, 3), sampling_params=_computes_all())
    engine.steps(2)
    tables = engine.scheduler.kv_cache_manager
    tables.block_pool.evict_blocks({tables.get_block_ids("a")[0][1]})
    engine.evict("a", 1)
    engine.finish("a")  # which is no reason to forget what others own
    step = engine.step()
    watch.check()
    assert step.meta.store_gpu_blocks == [tables.get_block_ids("b")[0][1]]
    engine.step()
    watch.check()
    assert engine.in_cpu("b") == [True] * 3


@BOTH
def test_copy_whose_source_has_lost_its_hash_meanwhile_is_made_again_from_another_owner(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 3))
    engine.add("b", prompt(0, 3), sampling_params=_computes_all())
    engine.steps(2)
    tables = engine.scheduler.kv_cache_manager
    engine.evict("a", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 1
    assert engine.step().meta.store_gpu_blocks == [tables.get_block_ids("a")[0][1]]
    tables.block_pool.evict_blocks({tables.get_block_ids("a")[0][1]})
    copies = []
    for _ in range(5):
        copies += engine.step().meta.store_gpu_blocks
        watch.check()
    assert copies == [tables.get_block_ids("b")[0][1]]
    assert engine.in_cpu("b") == [True] * 3


@BOTH
def test_copy_that_fails_while_its_twin_is_on_its_way_is_not_made_a_third_time(make_engine, mode):
    """Twins are stock's, from when re-store was off. The first one fails; the second one will do."""
    engine = make_engine(cpu_blocks=33, copy_steps=3, policy=Policy(enabled=False))
    watch = Watch(engine)
    engine.add("a", prompt(0, 2))
    engine.step()
    engine.add("b", prompt(0, 2), sampling_params=_computes_all())
    orders = iter(["the first", None])
    engine.conditions.fails = lambda rank, is_store: next(orders, None) if is_store else None
    assert [len(step.meta.store_gpu_blocks) for step in engine.steps(2)] == [2, 2]
    engine.set_policy(enabled=True, mode=mode)
    assert not any(step.meta.store_gpu_blocks for step in engine.steps(6))
    watch.check()
    assert engine.in_cpu("a") == [True] * 2
    engine.close()
    assert len(engine.sql("SELECT 1 FROM fault WHERE origin = 'copy'")) == 1


def test_evicting_a_copy_is_no_loss_while_one_answers_that_a_fault_has_hidden(make_engine, monkeypatch):
    engine = make_engine(cpu_blocks=33, copy_steps=3, policy=Policy(enabled=False))
    engine.add("a", prompt(0, 2))
    engine.step()
    engine.add("b", prompt(0, 2), sampling_params=_computes_all())
    assert len(engine.step().meta.store_gpu_blocks) == 2
    with monkeypatch.context() as patch:
        patch.setattr(engine.manager._tier, "copies_ordered", None)  # a step that nothing is noted of
        assert len(engine.step().meta.store_gpu_blocks) == 2
    engine.set_policy(enabled=True)
    engine.steps(5)
    engine.evict("a", 0)
    engine.steps(2)
    assert engine.in_cpu("a") == [True] * 2
    engine.close()
    assert engine.sql("SELECT first_index, num_blocks, num_owned FROM blocks_evicted") == [(0, 1, 0)]
    assert engine.sql("SELECT max(num_restorable) FROM steps") == [(0,)]


KINDS = {
    "salts": {"one": {"cache_salt": "one"}, "two": {"cache_salt": "two"}, "plain": {}},
    "adapters": {
        "one": {"lora_request": LoRARequest("one", 1, "/nowhere")},
        "two": {"lora_request": LoRARequest("two", 2, "/nowhere")},
        "plain": {},
    },
}


@pytest.fixture(params=KINDS)
def kind(request):
    """What makes equal tokens different content: name to what a request of it carries."""
    return KINDS[request.param]


@BOTH
@pytest.mark.parametrize("loser", ["one", "two", "plain"])
def test_only_what_one_of_three_contents_of_the_same_tokens_has_lost_comes_back_through_its_owner(
    make_engine, kind, loser, mode
):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    for name, carries in kind.items():
        engine.add(name, prompt(0, 3), **carries)
    engine.steps(2)
    assert len({key for name in kind for key in engine.keys(name)}) == 9
    orders = note_restores(engine)
    engine.evict(loser, 0, 2)
    assert [engine.in_cpu(name) for name in kind] == [
        [name != loser, True, name != loser] for name in kind
    ]  # the others have lost nothing
    own_blocks = engine.scheduler.kv_cache_manager.get_block_ids(loser)[0]
    step = engine.step()
    watch.check()
    assert step.meta.store_gpu_blocks == [own_blocks[0], own_blocks[2]]
    engine.steps(3)
    watch.check()
    assert orders == [[engine.keys(loser)[0], engine.keys(loser)[2]], [], [], []]
    assert all(engine.in_cpu(name) == [True] * 3 for name in kind)
    watch.check_log()
    restored = engine.sql("SELECT request_id, first_index, num_blocks FROM blocks_restored ORDER BY seq")
    assert restored == [(loser, 0, 1), (loser, 2, 1)]
    evicted = engine.sql("SELECT request_id, first_index, num_blocks, num_owned FROM blocks_evicted ORDER BY seq")
    assert evicted == [(loser, 0, 1, 1), (loser, 2, 1, 1)]


@BOTH
def test_each_of_two_contents_of_the_same_tokens_is_repaired_by_its_own_owner(make_engine, kind, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    for name, carries in kind.items():
        engine.add(name, prompt(0, 3), **carries)
    engine.steps(2)
    engine.evict("two", 2)
    engine.evict("one", 0, 1)
    for _ in range(3):
        engine.step()
        watch.check()
    watch.check_log()
    restored = engine.sql("SELECT request_id, first_index, num_blocks FROM blocks_restored ORDER BY seq")
    assert restored == [("one", 0, 2), ("two", 2, 1)]


def test_lookup_hits_only_what_was_stored_under_its_own_name(make_engine, kind):
    """The tier holds block 0 to 2 of `two`, nothing but block 1 of `one`, and nothing without a name."""
    engine = make_engine(cpu_blocks=33)
    watch = Watch(engine)
    for name in ("one", "two"):
        engine.add(name, prompt(0, 3), **kind[name])
    engine.steps(2)
    for name in ("one", "two"):
        engine.finish(name)
    engine.settle()
    engine.evict("one", 0, 2)
    engine.forget_gpu_prefixes()
    for name, hit in (("one", 0), ("two", 3 * BLOCK), ("plain", 0)):
        engine.add(f"{name} again", prompt(0, 3), **kind[name])
        step = engine.step()
        watch.check()
        assert len(step.meta.load_gpu_blocks) == hit // BLOCK
    engine.steps(3)
    watch.check_log()
    looked_up = engine.sql("SELECT request_id, gpu_hit_tokens, cpu_hit_tokens FROM lookup ORDER BY seq")
    assert looked_up[2:] == [("one again", 0, 0), ("two again", 0, 3 * BLOCK), ("plain again", 0, 0)]
