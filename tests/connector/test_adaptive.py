"""`retention: adaptive` on vLLM's real scheduler and pools."""

import pytest
from harness import prompt
from invariants import Watch, note_restores

from connector.policy import Policy
from connector.retention import Retention

ADAPTIVE = Policy(retention="adaptive")


def test_requests_that_store_in_one_step_take_empty_places_while_there_are_any(make_engine):
    """vLLM takes the places of one request before it looks at the next one's blocks."""
    engine = make_engine(cpu_blocks=40, policy=ADAPTIVE, max_num_batched_tokens=1_024)
    watch = Watch(engine)
    for n, name in enumerate("abcd"):
        engine.add(name, prompt(n, 8))
    for _ in range(6):
        engine.steps(1)
        watch.check()
    assert [engine.prefix_in_cpu(name) for name in "abcd"] == [8, 8, 8, 8]
    engine.close()
    assert engine.sql("SELECT count(*) FROM events WHERE kind = 'blocks_evicted'") == [(0,)]


def test_twelve_running_requests_that_do_not_fit_come_to_rest(make_engine):
    engine = make_engine(gpu_blocks=700, cpu_blocks=60, policy=ADAPTIVE, max_num_batched_tokens=4_096)
    watch = Watch(engine)
    for n in range(12):
        engine.add(f"r{n}", prompt(n, 10), max_tokens=600)
    for _ in range(25):
        engine.steps(20)
        watch.check()
    assert engine.num_running == 12
    orders = note_restores(engine)
    engine.steps(60)
    watch.check()
    assert not any(orders)
    # And what is there can be used: heads, without a hole.
    assert sum(engine.prefix_in_cpu(f"r{n}") for n in range(12)) == 59


def test_guard_sees_what_the_tier_has_refused_as_if_it_had_been_offered(make_engine):
    """By last use more may be found just where the tier refuses: the guard must not be blind for it."""
    capacity = 12
    engine = make_engine(cpu_blocks=capacity + 1, policy=ADAPTIVE)
    alone = Retention(capacity)
    # Six prompts in turn, twice what fits: the tier learns to refuse. Then each prompt is asked for twice in a row.
    asked = [n % 6 for n in range(48)] + [100 + n // 2 for n in range(24)]
    for number, which in enumerate(asked):
        tokens = prompt(which, 4)
        request = engine.add(f"r{number}", tokens)
        engine.steps(3)
        keys = [bytes(h) for h in request.block_hashes[:4]]
        engine.finish(f"r{number}")
        engine.settle()
        path = alone.arrive(keys, float(number))
        for key in keys[path.length :]:
            alone.advance(path, key, float(number))
        alone.leave(path, float(number))
    guard = engine.manager._restorer.keeper.retention.guard
    engine.close()
    assert engine.sql("SELECT count(*) > 0 FROM stores_refused") == [(1,)]
    assert alone.guard.lru_hits > 0
    assert guard.asked == pytest.approx(alone.guard.asked)
    assert guard.lru_hits == pytest.approx(alone.guard.lru_hits)
