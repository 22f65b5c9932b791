"""Why `adaptive` did what it did, as an engine's log tells it: who was refused, who went for whom, by which rule."""

import pytest
from harness import prompt
from invariants import Watch

from connector.policy import Policy
from connector.reuse import NUM_BUCKETS

ADAPTIVE = Policy(retention="adaptive")
EVICTED = "SELECT by_request_id, first_index, num_blocks, victim_worth, incoming_worth FROM blocks_evicted ORDER BY seq"
REFUSED = """
SELECT request_id, kv_group, first_index, num_blocks, reason, is_restore, victim_worth, incoming_worth
FROM stores_refused ORDER BY seq
"""


def learn(engine, once, twice):
    """What chains that were asked for once, and more often, are worth, at any age."""
    curve = engine.manager._restorer.keeper.retention.curve
    curve.num_reuses = 8
    curve.worth = [[worth] * NUM_BUCKETS for worth in (0.0, once, twice, twice, twice, twice)]


def rest(engine, request_id, tokens):
    """A request that comes, is stored and ends."""
    engine.add(request_id, tokens, max_tokens=2)
    engine.settle()


@pytest.fixture
def full(make_engine):
    """A tier of eight blocks that holds four of `a` and four of `b`."""
    engine = make_engine(cpu_blocks=9, policy=ADAPTIVE)
    engine.watch = Watch(engine)
    rest(engine, "a", prompt(0, 4))
    rest(engine, "b", prompt(1, 4))
    return engine


def test_victim_stands_in_the_log_with_its_worth_and_that_of_what_came_in(full):
    learn(full, once=0.125, twice=0.75)
    rest(full, "a2", prompt(0, 4) + prompt(5, 2))  # `a` goes on by two blocks, and `b` gives its end for each
    full.watch.check_log()
    assert full.sql(EVICTED) == [("a2", 2, 2, 0.125, 0.75)]


def test_victim_by_last_use_has_no_worth(full):
    rest(full, "c", prompt(2, 1))
    full.close()
    assert full.sql(EVICTED) == [("c", 3, 1, None, None)]


def test_chain_that_is_refused_in_every_step_is_told_once_with_both_scores(full):
    learn(full, once=0.125, twice=0.75)
    full.add("c", prompt(2, 3), max_tokens=30)
    for n in range(4):  # whenever a request comes or goes, what waits asks again
        full.steps(3)
        rest_in_a_full_tier(full, n)
    full.settle()
    full.watch.check_log()
    rows = full.sql(REFUSED)
    # `a` and `b` are worth no less than `c`.
    assert [row for row in rows if row[0] == "c"] == [("c", 0, 0, 3, "worth", 0, 0.125, 0.125)]
    assert sorted(row[0] for row in rows) == ["c", "d0", "d1", "d2", "d3"]
    (head, tail), (other_head, other_tail) = [
        full.sql(f"SELECT lower(hex(head_hash)), lower(hex(tail_hash)) FROM stores_refused WHERE request_id = '{r}'")[0]
        for r in ("c", "d0")
    ]
    assert head == full.requests["c"].block_hashes[0].hex()
    assert tail == full.requests["c"].block_hashes[2].hex()
    assert other_head == other_tail == full.requests["d0"].block_hashes[0].hex()


def rest_in_a_full_tier(engine, n):
    engine.add(f"d{n}", prompt(10 + n, 1), max_tokens=2)
    engine.steps(3)


def test_refusal_without_any_chain_that_could_give_a_block_has_no_victim(make_engine):
    engine = make_engine(cpu_blocks=5, policy=ADAPTIVE)
    engine.watch = Watch(engine)
    learn(engine, once=0.125, twice=0.75)
    engine.add("a", prompt(0, 6), max_tokens=20)  # its own head fills the tier
    engine.steps(10)
    engine.settle()
    engine.watch.check_log()
    assert engine.sql(REFUSED) == [("a", 0, 4, 2, "no_victim", 0, None, 0.125)]


def test_change_of_rule_and_what_was_learned_are_in_the_log(full):
    learn(full, once=0.125, twice=0.75)
    rest(full, "a2", prompt(0, 4))
    full.set_policy(retention="lru")
    full.add("z", prompt(9, 1), max_tokens=2)
    full.settle()
    full.close()
    columns = "from_rule, to_rule, reason, lru_hit_blocks, worth_hit_blocks, num_reuses"
    # Nobody asked for anything twice before; then `a` with its four blocks, which both shadows have.
    assert full.sql(f"SELECT {columns} FROM rule_switched") == [("lru", "worth", "learned", 4.0, 4.0, 9)]
    ((asked,),) = full.sql("SELECT asked_blocks FROM rule_switched")
    assert asked == pytest.approx(4 * (0.996**2 + 0.996 + 1))
    states = full.sql("SELECT step, rule, json_array_length(edges_s), worth ->> '$[2][0]' FROM retention_states")
    assert states[0] == (0, "lru", NUM_BUCKETS, 1.0)
    ((last_step,),) = full.sql("SELECT max(step) FROM retention_states")
    ((switched_step,),) = full.sql("SELECT step FROM policy_applied WHERE retention = 'lru'")
    assert last_step < switched_step
