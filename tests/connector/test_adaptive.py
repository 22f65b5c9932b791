"""`retention: adaptive` on vLLM's real scheduler and pools."""

from harness import prompt
from invariants import Watch, note_restores

from connector.policy import Policy

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
