"""What the log says a lookup found."""

from harness import BLOCK, prompt
from invariants import Watch
from vllm.sampling_params import SamplingParams


def _columns(engine, request_id):
    return engine.sql(
        "SELECT num_tokens, gpu_hit_tokens, cpu_hit_tokens, cut_index, num_attempts, is_resumed, is_skipped "
        f"FROM lookup WHERE request_id = '{request_id}' ORDER BY seq"
    )


def test_lookup_retried_after_a_failed_allocation_is_one_lookup(make_engine):
    engine = make_engine(gpu_blocks=12, cpu_blocks=33)
    watch = Watch(engine)
    engine.add("runs", prompt(1, 4))
    engine.steps(2)
    engine.add("waits", prompt(0, 8))
    engine.steps(3)
    engine.finish("runs")
    engine.steps(2)
    watch.check()
    engine.close()
    assert _columns(engine, "waits") == [(8 * BLOCK + 1, 0, 0, 0, 4, 0, 0)]


def test_load_is_not_followed_by_a_second_lookup(make_engine):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.add("b", prompt(0, 6))
    engine.steps(6)
    engine.close()
    assert _columns(engine, "b") == [(6 * BLOCK + 1, 0, 4 * BLOCK, 4, 1, 0, 0)]


def test_request_that_skips_the_prefix_cache_is_not_a_miss(make_engine):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    params = SamplingParams(max_tokens=4, ignore_eos=True, skip_reading_prefix_cache=True)
    engine.add("b", prompt(0, 4), sampling_params=params)
    engine.steps(2)
    engine.close()
    ((num_tokens, gpu, cpu, _, attempts, _, is_skipped),) = _columns(engine, "b")
    assert (num_tokens, gpu, cpu, attempts, is_skipped) == (4 * BLOCK + 1, 0, 0, 1, 1)


def test_lookup_names_the_hash_that_is_missing(make_engine):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 6))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.evict("a", 3)
    engine.forget_gpu_prefixes()
    engine.add("b", prompt(0, 6))
    engine.steps(4)
    engine.close()
    assert engine.sql("SELECT cut_index, missing_hash FROM lookup WHERE request_id = 'b'") == [
        (3, bytes(engine.requests["b"].block_hashes[3]))
    ]


def test_lookup_after_a_preemption_says_so(make_engine):
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 4))
    engine.steps(3)
    engine.preempt_all()
    engine.steps(2)
    engine.close()
    assert [row[5] for row in _columns(engine, "a")] == [0, 1]
