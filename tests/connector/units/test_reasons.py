"""What `adaptive` says of itself: its changes of rule with what its guard had found, and what it has learned.

Worked out by hand on a tier of two blocks. Sums of the guard fade by 249/250 with each request.
"""

import pytest

from connector.events import RetentionState, RuleSwitched
from connector.reasons import Reasons
from connector.retention import Retention
from connector.reuse import NUM_BUCKETS, ReuseCurve

FADE = 0.996


class Played:
    """A retention whose requests come and go, and what is said of it."""

    def __init__(self, curve=None, rule_before="lru"):
        self.retention = Retention(2, curve=curve)
        self.told = []
        self.reasons = Reasons(self.retention, self.told.append, 0.0, rule_before)

    def come(self, keys, now):
        path = self.retention.arrive(keys, now)
        self.reasons.arrived()
        for key in keys[path.length :]:
            self.retention.advance(path, key, now)
        self.retention.leave(path, now)

    def learn(self):
        """A chain that was asked for twice is worth 0.9, one that was asked for once 0.1, at any age."""
        curve = self.retention.curve
        curve.num_reuses = 8
        curve.worth = [[worth] * NUM_BUCKETS for worth in (0.0, 0.1, 0.9, 0.9, 0.9, 0.9)]

    @property
    def switches(self):
        return [item for item in self.told if isinstance(item, RuleSwitched)]

    @property
    def states(self):
        return [item for item in self.told if isinstance(item, RetentionState)]


def test_each_change_of_rule_is_told_with_what_both_shadows_found():
    played = Played()
    played.come([1, 2], 0.0)
    played.come([1, 2], 1.0)  # both shadows have it
    assert played.switches == []
    played.learn()
    played.come([3, 4], 2.0)  # from here on the shadow by worth keeps 1 and 2, the other one takes 3 and 4 in
    (learned,) = played.switches
    assert (learned.from_rule, learned.to_rule, learned.reason, learned.num_reuses) == ("lru", "worth", "learned", 8)
    found = 2 * FADE
    assert (learned.lru_hit_blocks, learned.worth_hit_blocks) == (pytest.approx(found), pytest.approx(found))
    asked = (2 * FADE + 2) * FADE + 2
    assert learned.asked_blocks == pytest.approx(asked)

    played.come([3, 4], 3.0)
    _, guard_on = played.switches
    assert (guard_on.from_rule, guard_on.to_rule, guard_on.reason, guard_on.num_reuses) == (
        "worth",
        "lru",
        "guard_on",
        9,
    )
    assert guard_on.lru_hit_blocks == pytest.approx(found * FADE + 2)
    assert guard_on.worth_hit_blocks == pytest.approx(found * FADE)
    assert guard_on.asked_blocks == pytest.approx(asked * FADE + 2)

    # A lead of 2 blocks in 8 + 50 is more than three points, in 8 + 100 it is less.
    played.come(list(range(100, 150)), 4.0)
    assert len(played.switches) == 2
    played.come(list(range(200, 250)), 5.0)
    assert [(s.from_rule, s.to_rule, s.reason) for s in played.switches[2:]] == [("lru", "worth", "guard_off")]


def test_what_was_learned_is_told_at_once_then_every_three_seconds_and_only_where_a_request_came():
    played = Played()
    (first,) = played.states
    assert (first.rule, first.is_guard_on, first.asked_blocks, first.num_reuses) == ("lru", False, 0.0, 0)
    assert (first.num_to_learn, first.guard_lead) == (8, 0.03)
    assert set(first.worth) == {(1.0,) * NUM_BUCKETS}
    played.reasons.step_begins(lambda: 10.0)
    assert played.states == [first]
    played.come([1, 2], 11.0)
    played.learn()
    for now in (11.0, 11.5, 13.9):
        played.reasons.step_begins(lambda now=now: now)
        played.come([1, 2], now)
    assert len(played.states) == 2
    played.reasons.step_begins(lambda: 14.0)
    assert len(played.states) == 3
    newest = played.states[-1]
    assert (newest.edges_s[0], newest.edges_s[1], newest.edges_s[-1]) == (0.0, 0.5, pytest.approx(2048.0))
    assert [row[0] for row in newest.worth] == [0.0, 0.1, 0.9, 0.9, 0.9, 0.9]
    assert newest.returns == (0, 1, 1, 1, 0, 0)  # asked for once, twice, three times before it came back


def test_emptied_tier_that_has_learned_goes_by_worth_again_and_says_so():
    curve = ReuseCurve()
    curve.num_reuses = 8
    assert Played(curve, "worth").switches == []
    (reset,) = Played(curve, "lru").switches
    assert (reset.from_rule, reset.to_rule, reset.reason) == ("lru", "worth", "reset")
    assert Played(curve, "worth").states[0].rule == "worth"


def test_refusal_is_new_where_it_begins_nearer_the_head_and_after_a_block_came_in():
    reasons = Played().reasons
    assert reasons.is_new("a", 5, is_restore=False)
    assert not reasons.is_new("a", 5, is_restore=False)
    assert not reasons.is_new("a", 7, is_restore=False)
    assert reasons.is_new("a", 6, is_restore=True)
    assert reasons.is_new("b", 7, is_restore=False)
    assert reasons.is_new("a", 4, is_restore=False)
    reasons.admitted("a", is_restore=True)
    assert not reasons.is_new("a", 6, is_restore=False)
    reasons.admitted("a", is_restore=False)
    assert reasons.is_new("a", 6, is_restore=False)
    reasons.passed("a", 5)
    assert not reasons.is_new("a", 6, is_restore=False)
    reasons.passed("a", 6)
    assert reasons.is_new("a", 7, is_restore=False)


def test_nothing_is_remembered_of_a_request_that_is_over():
    reasons = Played().reasons
    for is_restore in (False, True):
        reasons.is_new("a", 5, is_restore=is_restore)
    reasons.ended("a")
    assert reasons._refused_from == {}
