"""The rule of `adaptive`, worked out by hand on tiers of a few blocks. Times are seconds."""

import math
import random
import tracemalloc
from bisect import bisect_right

import pytest
from chain_invariants import check_tree

from connector.chains import Chain
from connector.retention import RESTORE_MARGIN, STORE_MARGIN, Retention
from connector.reuse import EDGES, NUM_BUCKETS, NUM_CLASSES, SHARED, ReuseCurve, bucket_of, class_of
from connector.sessions import MAX_SESSIONS, Sessions


def chain(now=0.0, turns=1):
    made = Chain(0, None, 1, now, 1)
    made.num_turns = turns
    return made


# --- the curve --------------------------------------------------------------------------------------------------------


def test_buckets_grow_by_the_square_root_of_two_from_half_a_second_to_2048():
    assert EDGES[0] == 0.0
    assert EDGES[1] == 0.5
    assert EDGES[3] == pytest.approx(1.0)
    assert EDGES[-1] == pytest.approx(2_048.0)
    assert [bucket_of(age) for age in (0.0, 0.49, 0.5, 1e9)] == [0, 0, 1, len(EDGES) - 1]


def test_time_at_risk_is_counted_bucket_by_bucket_until_the_chain_comes_back():
    curve = ReuseCurve()
    resting = chain()
    curve.rests(resting, 10.0)
    curve.comes_back(resting, 10.9)  # 0.5 s in the first bucket, 0.2071 s in the second, the rest in the third
    at = bisect_right(EDGES, 0.9) - 1
    assert at == 2
    assert curve.events[1][at] == 1
    assert sum(map(sum, curve.events)) == 1
    assert curve.exposure[1][0] == pytest.approx(0.5)
    assert curve.exposure[1][1] == pytest.approx(0.5 * math.sqrt(2) - 0.5)
    assert curve.exposure[1][2] == pytest.approx(0.9 - 0.5 * math.sqrt(2))


def test_chain_that_never_comes_back_counts_as_risk_and_as_no_event():
    curve = ReuseCurve()
    resting = chain()
    curve.rests(resting, 0.0)
    curve.goes_on(resting, 0.6)
    assert sum(map(sum, curve.events)) == 0
    assert sum(map(sum, curve.exposure)) == pytest.approx(0.6)


def test_what_comes_back_soon_is_worth_more_than_what_has_rested_past_it():
    """Every chain of one class comes back after 10 s, but one in two never does: at 5 s a chain is worth much, at
    100 s nothing comes any more."""
    curve = ReuseCurve()
    for n in range(200):
        at = n * 1.0
        resting = chain(at)
        curve.rests(resting, at)
        if n % 2:
            curve.comes_back(resting, at + 10.0)
        curve.request_came(at)
    curve._move_on(1_000.0)
    curve._work_out()
    worth = curve.worth[1]
    assert worth[bucket_of(9.0)] > 4 * worth[bucket_of(100.0)]
    assert all(0 <= value <= 1 for row in curve.worth for value in row)


# --- the rule ---------------------------------------------------------------------------------------------------------


def come(retention, keys, now, *, tier=True, session=None):
    """A request that comes, is stored in the live tier as the rule says, and ends."""
    path = retention.arrive(keys, now, session)
    retention.begin(path)
    for key in keys[path.length :]:
        retention.advance(path, key, now)
    if tier:
        retention._take_in(retention.live, path, path.chains(), retention.rule, now)
    retention.leave(path, now)
    return path


def held(retention):
    return sorted(k for c in retention.tree for k in c.keys[: retention.live.count(c)])


def test_before_anything_is_learned_the_least_recently_used_chain_gives_its_end():
    retention = Retention(4)
    come(retention, [1, 2], 0.0)
    come(retention, [3, 4], 1.0)
    come(retention, [5], 2.0)
    assert held(retention) == [1, 3, 4, 5]
    assert retention.rule == "lru"


def test_head_never_leaves_before_its_tail():
    retention = Retention(3)
    come(retention, [1, 2, 3], 0.0)
    come(retention, [9], 1.0)
    assert held(retention) == [1, 2, 9]


def test_shared_head_stays_while_anything_hangs_on_it():
    retention = Retention(4)
    come(retention, [1, 2, 3], 0.0)
    come(retention, [1, 2, 4], 1.0)
    come(retention, [7, 8], 2.0)
    assert held(retention) == [1, 2, 7, 8]


def test_prompt_longer_than_the_tier_keeps_its_head_and_stops_there():
    retention = Retention(3)
    come(retention, [1, 2, 3, 4, 5], 0.0)
    assert held(retention) == [1, 2, 3]


def test_restore_never_takes_from_a_chain_that_stands_before_it():
    retention = Retention(2)
    old = retention.arrive([1], 0.0)
    retention.advance(old, 1, 0.0)
    young = retention.arrive([2], 5.0)
    retention.advance(young, 2, 5.0)
    for path in (old, young):
        retention.live.grow(path.chain, 1)
    retention.advance(old, 3, 6.0)
    assert retention.victim(retention.live, "lru", old, old.chain, RESTORE_MARGIN, 6.0) is None
    assert retention.victim(retention.live, "lru", old, old.chain, STORE_MARGIN, 6.0) is young.chain
    assert retention.victim(retention.live, "lru", young, young.chain, RESTORE_MARGIN, 6.0) is old.chain


def test_working_set_larger_than_the_tier_that_comes_in_turn_keeps_a_part_and_hits_it():
    """Ten chains of two blocks in a tier of ten: by LRU none is ever found again. Half of them fit, and no rule can
    find more than half."""
    retention = Retention(10)
    found = asked = 0
    for n in range(400):
        keys = [(n % 10, 0), (n % 10, 1)]
        path = retention.arrive(keys, n * 1.0)
        if n >= 200:
            found += retention.live.found(path.chains())
            asked += 2
        retention.begin(path)
        for key in keys[path.length :]:
            retention.advance(path, key, n * 1.0)
        retention._take_in(retention.live, path, path.chains(), retention.rule, n * 1.0)
        retention.leave(path, n * 1.0)
    assert found / asked == pytest.approx(0.5, abs=0.1)


def test_what_a_waiting_request_will_find_stays_and_the_last_in_the_queue_stands_to_go_first():
    retention = Retention(2)
    retention.curve.num_reuses = 100
    retention.curve.worth = [[0.9] + [0.1] * (NUM_BUCKETS - 1) for _ in range(NUM_CLASSES)]
    come(retention, [1], 0.0)
    come(retention, [2], 0.0)
    running = retention.arrive([3], 10.0)
    retention.begin(running)
    mine = retention.advance(running, 3, 10.0)

    def victim():
        return retention.victim(retention.live, retention.rule, running, mine, STORE_MARGIN, 11.0)

    # Idle for ten seconds, each is worth 0.1, and 0.1 * 1.3 < 0.9.
    assert victim() is not None
    first = retention.arrive([1], 10.0)
    assert victim() is retention.tree.find(2)
    second = retention.arrive([2], 10.5)
    assert victim() is None
    assert list(retention.live.candidates(None)) == [second.chain]
    # Who runs has them on the GPU, and they are again worth what such chains are.
    retention.begin(second)
    assert list(retention.live.candidates(None)) == [first.chain, second.chain]
    retention.leave(second, 11.0)
    retention.curve.worth[class_of(second.chain)] = [0.1] * NUM_BUCKETS
    assert victim() is second.chain


def test_head_that_prompts_share_is_worth_what_it_comes_back_itself_and_its_tails_are_worth_nothing():
    """Every ten seconds a prompt with the same head and a tail that nobody asks for again: what returns is the head."""
    retention = Retention(100)
    for n in range(60):
        come(retention, [1, (n, "a"), (n, "b")], 10.0 * n)
    worth = retention.curve.worth
    # The first prompt had no head to share yet, and the second found it within a chain: nothing rested there.
    assert retention.curve.num_reuses == 58
    assert sum(map(sum, retention.curve.events[:SHARED])) == 0
    assert [max(row) for row in worth[:SHARED]] == [0.0] * SHARED
    # Ten seconds from the end of its rest, it comes within less than the horizon.
    assert worth[SHARED][bucket_of(9.0)] > math.exp(-1)

    # In a tier that holds nothing but the head, no prompt of no promise takes its place.
    small = Retention(1, curve=retention.curve)
    come(small, [1, (0, "a"), (0, "b")], 600.0)
    come(small, [1, (1, "a"), (1, "b")], 601.0)
    come(small, [7], 605.0)
    assert held(small) == [1]


def test_guard_goes_over_to_lru_while_its_shadow_leads_and_back():
    retention = Retention(4)
    retention.curve.num_reuses = 100
    assert retention.rule == "worth"
    retention.guard.note(lru_hits=50, worth_hits=10, asked=100)
    come(retention, [1], 0.0)
    assert retention.rule == "lru"
    retention.guard.note(lru_hits=0, worth_hits=100, asked=100)
    come(retention, [1], 1.0)
    assert retention.rule == "worth"


# --- sessions that the client names -----------------------------------------------------------------------------------


def rewritten(session):
    """Three turns of one session: the second goes on, the third comes with a summary for the first two, behind the
    same first block. Another prompt lies between, and a chain of class n is worth n tenths. Nine of twelve places are
    taken when a last prompt of six blocks comes."""
    retention = Retention(12)
    retention.curve.num_reuses = 100
    retention.curve.worth = [[n / 10] * NUM_BUCKETS for n in range(NUM_CLASSES)]
    come(retention, [1, 2, 3], 0.0, session=session)
    come(retention, [1, 2, 3, 4, 5], 1.0, session=session)
    come(retention, [7, 8], 2.0)
    come(retention, [1, 20, 21], 3.0, session=session)
    come(retention, [9, 10, 11, 12, 13, 14], 4.0)
    check_tree(retention)
    return retention


def test_rewritten_prompt_is_the_turn_that_its_session_says_and_what_the_turn_before_left_goes_first():
    retention = rewritten("mine")
    old, new = retention.tree.find(5), retention.tree.find(21)
    assert (old.keys, class_of(old)) == ([2, 3, 4, 5], 0)
    assert (new.keys, class_of(new)) == ([20, 21], 3)
    # The first turn's chain came back after a second, and the second's after two: each was learned once.
    assert retention.curve.num_reuses == 102
    assert retention.curve.events[1][bucket_of(1.0)] == 1
    assert retention.curve.events[2][bucket_of(2.0)] == 1
    assert held(retention) == [1, 2, 7, 8, 9, 10, 11, 12, 13, 14, 20, 21]


def test_without_a_session_a_rewritten_prompt_is_a_first_turn_and_what_was_left_stays():
    retention = rewritten(None)
    assert class_of(retention.tree.find(5)) == 2
    assert class_of(retention.tree.find(21)) == 1
    assert retention.curve.num_reuses == 101
    assert held(retention) == [1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 20, 21]
    assert len(retention.sessions) == 0


def test_one_id_for_several_conversations_supersedes_nothing_once_somebody_comes_back():
    """A client that names its user: two chats in turn. The first one's next turn shows that it was not superseded."""
    retention = Retention(20)
    come(retention, [1, 2, 3], 0.0, session="user")
    come(retention, [7, 8, 9], 1.0, session="user")
    assert class_of(retention.tree.find(3)) == 0
    for turn in (1, 2):
        come(retention, [1, 2, 3, *range(20, 20 + turn)], 2.0 * turn, session="user")
        assert class_of(retention.tree.find(9)) > 0
        come(retention, [7, 8, 9, *range(40, 40 + turn)], 2.0 * turn + 1, session="user")
        assert class_of(retention.tree.find(3)) > 0
    check_tree(retention)


def test_what_a_turn_left_is_superseded_once_where_the_tree_sees_the_fork_itself():
    """The template leaves out the last thought: the prompt departs near the end."""
    retention = Retention(20)
    come(retention, [1, 2, 3, 4], 0.0, session="mine")
    come(retention, [1, 2, 3, 30, 31], 1.0, session="mine")
    assert retention.curve.num_reuses == 1
    assert [class_of(retention.tree.find(key)) for key in (4, 31)] == [0, 2]


def test_what_somebody_else_needs_is_not_superseded():
    """Who runs on it, who hangs on it, who went on from its end."""
    for others, is_over in (([1, 2, 3], False), ([1, 2, 3, 4], True)):
        retention = Retention(20)
        come(retention, [1, 2, 3], 0.0, session="mine")
        if is_over:
            come(retention, others, 1.0)
        else:
            retention.begin(retention.arrive(others, 1.0))
        come(retention, [7, 8], 2.0, session="mine")
        assert class_of(retention.tree.find(3)) == 2
        assert class_of(retention.tree.find(8)) == 2
    retention = Retention(20)
    come(retention, [1, 2, 3], 0.0, session="mine")
    come(retention, [1, 2, 3, 4], 1.0)
    come(retention, [1, 2, 3, 5], 2.0)
    come(retention, [7, 8], 3.0, session="mine")
    assert class_of(retention.tree.find(3)) == SHARED
    assert retention.tree.find(3).num_turns


def test_unrelated_prompts_of_one_session_id_harm_nobody():
    """At random, up to three at once, in a tier that holds a part of them: the tree stays whole, and every class is
    one that there is."""
    rng, retention, live = random.Random(5), Retention(30), []
    for n in range(600):
        which = rng.randrange(12)
        keys = [(which, i) for i in range(rng.randrange(7))]
        session = rng.choice(["one", "one", "two", None])
        live.append((retention.arrive(keys, n * 1.0, session), [*keys, ("out", n, 0), ("out", n, 1)]))
        while len(live) > rng.randrange(4):
            path, keys = live.pop(rng.randrange(len(live)))
            retention.begin(path)
            for key in keys[path.length : rng.choice([len(keys), len(keys) - 1])]:
                retention.advance(path, key, n * 1.0)
            retention._take_in(retention.live, path, path.chains(), retention.rule, n * 1.0)
            retention.leave(path, n * 1.0)
        check_tree(retention)
        assert all(0 <= class_of(chain) < NUM_CLASSES for chain in retention.tree)
    assert len(retention.sessions) == 2


def test_session_that_asked_longest_ago_is_forgotten_beyond_the_bound():
    sessions = Sessions(max_sessions=2)
    for name in ("a", "b", "a", "c"):
        sessions.comes(name).num_turns += 1
    assert len(sessions) == 2
    assert [sessions.comes(name).num_turns for name in ("a", "c")] == [2, 1]
    assert sessions.comes("b").num_turns == 0


def test_memory_for_sessions_is_bounded_however_long_their_ids_are():
    retention = Retention(4)
    tracemalloc.start()
    try:
        for n in range(MAX_SESSIONS + 500):
            retention.sessions.comes(f"{n}" * 1_000).end = n.to_bytes(36, "big")
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(retention.sessions) == MAX_SESSIONS
    assert size < MAX_SESSIONS * 500
