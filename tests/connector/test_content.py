"""What is the same content and what is not: twins, salts and adapters."""

import pytest
from harness import prompt
from invariants import Watch
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
def test_same_tokens_under_two_salts_are_two_contents(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    for salt in ("one", "two"):
        engine.add(salt, prompt(0, 3), cache_salt=salt)
    engine.steps(2)
    assert not set(engine.keys("one")) & set(engine.keys("two"))
    engine.evict("one", 0, 1)
    engine.evict("two", 2)
    for _ in range(3):
        engine.step()
        watch.check()
    assert engine.in_cpu("one") == engine.in_cpu("two") == [True] * 3
    engine.close()
    restored = engine.sql("SELECT request_id, first_index, num_blocks FROM blocks_restored ORDER BY seq")
    assert restored == [("one", 0, 2), ("two", 2, 1)]


@BOTH
def test_same_tokens_under_two_adapters_are_two_contents(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    watch = Watch(engine)
    for n, name in enumerate(("plain", "first", "second")):
        adapter = LoRARequest(name, n, "/nowhere") if n else None
        engine.add(name, prompt(0, 3), lora_request=adapter)
    engine.steps(2)
    assert len({key for name in ("plain", "first", "second") for key in engine.keys(name)}) == 9
    engine.evict("first", 1)
    for _ in range(3):
        engine.step()
        watch.check()
    assert engine.in_cpu("first") == [True] * 3
    engine.close()
    assert engine.sql("SELECT request_id, first_index FROM blocks_restored") == [("first", 1)]
