"""What re-store gives and costs, as the log tells it: one case where it gains, one where it does nothing, one where it
harms. Each is played with re-store off, too, so that the log's claim can be compared with what would have been.

A tier of 8 blocks has 7 usable ones. "a" has 4 blocks and runs on; "b" (3) comes and goes, which fills the tier; "c"
(3) then takes the three places used least lately: the head of "a".
"""

import pytest
from harness import prompt

from connector.policy import Policy

ON, OFF = Policy(), Policy(enabled=False)
A, B, C = prompt(0, 4), prompt(1, 3), prompt(2, 3)
TOKENS = "SELECT cpu_hit_tokens / 16, restored_hit_tokens / 16, lost_tokens / 16 FROM lookup WHERE request_id = 'again'"


def run(make_engine, policy, cpu_blocks, asked_again):
    """(blocks found, of these re-stored, blocks lost) when a prompt is asked for again at the end; and the engine."""
    engine = make_engine(cpu_blocks=cpu_blocks, policy=policy)
    engine.add("a", A)
    engine.steps(3)
    for request_id, content in (("b", B), ("c", C)):
        engine.add(request_id, content)
        engine.steps(3)
        engine.finish(request_id)
        engine.steps(3)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("again", asked_again)
    engine.steps(2)
    engine.close()
    return engine.sql(TOKENS)[0], engine


def test_restore_gains_where_the_running_prompt_is_asked_for_again(make_engine):
    """Off: the head of "a" is gone, and all 4 blocks are computed. On: its 3 lost blocks came back; the place used
    least lately was its own fourth's, which came back in turn: 4 are hit, all thanks to a re-store."""
    off, _ = run(make_engine, OFF, 8, A)
    on, engine = run(make_engine, ON, 8, A)
    assert off == (0, 0, 4)
    assert on == (4, 4, 0)
    assert engine.sql("SELECT sum(num_blocks) FROM blocks_restored") == [(4,)]
    assert engine.sql("SELECT sum(num_restored) FROM blocks_loaded WHERE request_id = 'again'") == [(4,)]


def test_restore_does_nothing_where_all_fits(make_engine):
    off, _ = run(make_engine, OFF, 33, A)
    on, engine = run(make_engine, ON, 33, A)
    assert off == on == (4, 0, 0)
    assert engine.sql("SELECT count(*) FROM blocks_restored") == [(0,)]
    assert engine.sql("SELECT count(*) FROM blocks_missed") == [(0,)]


def test_restore_harms_where_what_it_displaced_is_asked_for_again(make_engine):
    """Off: all 3 blocks of "b" are there. On: bringing "a" back took their places (and one of its own); "b" is asked
    for again, "a" never: 3 blocks are computed that a re-store displaced."""
    off, _ = run(make_engine, OFF, 8, B)
    on, engine = run(make_engine, ON, 8, B)
    assert off == (3, 0, 0)
    assert on == (0, 0, 3)
    assert engine.sql("SELECT sum(num_blocks), sum(num_restored) FROM blocks_evicted WHERE is_by_restore") == [(4, 0)]
    assert engine.sql("SELECT sum(num_blocks), is_by_restore FROM blocks_missed WHERE request_id = 'again'") == [(3, 1)]


@pytest.mark.parametrize("asked_again", [A, B], ids=["gain", "harm"])
def test_evicted_blocks_say_whether_they_were_ever_hit(make_engine, asked_again):
    """No block that left the tier had been hit before."""
    _, engine = run(make_engine, ON, 8, asked_again)
    assert engine.sql("SELECT sum(num_loaded) FROM blocks_evicted") == [(0,)]


def test_block_that_was_hit_and_then_evicted_counts_as_hit(make_engine):
    engine = make_engine(cpu_blocks=8, policy=OFF)
    for request_id, content in (("a", prompt(0, 4)), ("again", prompt(0, 4)), ("flood", prompt(2, 7))):
        engine.add(request_id, content)
        engine.steps(3)
        engine.finish(request_id)
        engine.settle()
        engine.forget_gpu_prefixes()
    engine.close()
    assert engine.sql("SELECT sum(num_blocks), sum(num_loaded) FROM blocks_evicted") == [(4, 4)]
