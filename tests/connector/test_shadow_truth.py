"""A shadow that follows the engine's own policy gives what the engine gave."""

import pytest
from chats import drive
from harness import full_attention, sliding_window

from app.queries.traffic import newest_engine, read_shape
from app.shadow_feed import ACTIVE, ShadowFeed
from app.whatif import play
from connector import log
from connector.policy import Policy
from connector.shadow import ShadowTier

ALL = (0, 2**63)
ON, OFF = Policy(), Policy(enabled=False)
POLICIES = pytest.mark.parametrize("policy", [OFF, ON], ids=["off", "tracked"])


def follow(engine, **shadows):
    """(the engine's own hit rate, the feed with these shadows besides the active one) over the whole log."""
    engine.close()
    with log.open_reader(engine.url).begin() as conn:
        shape = read_shape(conn, newest_engine(conn))
        assert shape.unsupported is None
        feed = ShadowFeed(shape, {ACTIVE: ShadowTier("off", shape.num_blocks, shape.groups), **shadows})
        while feed.take(conn, 500):
            pass
    return feed.truth.total(*ALL).hit_rate, feed


def points(feed, name=ACTIVE):
    """Percentage points between a shadow and the engine."""
    return 100 * (feed.series[name].total(*ALL).hit_rate - feed.truth.total(*ALL).hit_rate)


@pytest.mark.parametrize(
    ("policy", "cpu_blocks"),
    [(OFF, 60), (OFF, 120), (OFF, 250), (ON, 120), (ON, 250)],
    ids=lambda v: getattr(v, "label", v),
)
def test_active_shadow_is_within_a_point_of_the_engine(make_engine, policy, cpu_blocks):
    engine = make_engine(gpu_blocks=64, cpu_blocks=cpu_blocks, policy=policy, max_num_batched_tokens=256, copy_steps=1)
    drive(engine, seed=0, active=8, total=12, turns=5)
    truth, feed = follow(engine)
    assert abs(points(feed)) <= 1
    assert (cpu_blocks < 600) == (
        truth < 0.78
    )  # the small ones lose something: else there is nothing to be right about


@POLICIES
def test_active_shadow_is_exact_where_all_fits(make_engine, policy):
    engine = make_engine(gpu_blocks=64, cpu_blocks=900, policy=policy, max_num_batched_tokens=256, copy_steps=1)
    drive(engine, seed=3, active=6, total=10, turns=5)
    _, feed = follow(engine)
    assert points(feed) == 0


def test_shadow_keeps_what_a_waiting_request_has_pinned(make_engine):
    """A GPU of 63 blocks makes most requests wait for each other, with their hits pinned. A shadow that let them go
    would be 7 points off here."""
    engine = make_engine(gpu_blocks=64, cpu_blocks=200, policy=OFF, max_num_batched_tokens=256, copy_steps=1)
    drive(engine, seed=1, active=10, total=14, turns=6, think_steps=10)
    _, feed = follow(engine)
    assert engine.sql("SELECT count(*) FROM lookup_waits")[0][0] > 20
    assert abs(points(feed)) <= 2


def test_active_shadow_follows_a_toggle_and_a_reset(make_engine):
    engine = make_engine(gpu_blocks=64, cpu_blocks=150, policy=OFF, max_num_batched_tokens=256)
    drive(engine, seed=4, active=6, total=6, turns=4)
    engine.set_policy(enabled=True)
    drive(engine, seed=4, active=6, total=6, turns=4)
    assert engine.reset_tier()
    drive(engine, seed=4, active=6, total=6, turns=4)
    _, feed = follow(engine)
    assert feed.shadows[ACTIVE].policy == "tracked"
    assert abs(points(feed)) <= 1


def test_shadow_of_an_endless_tier_gives_all_that_was_ever_computed(make_engine):
    """Every chat's turn extends the one before: an endless tier loses nothing but what is new."""
    engine = make_engine(gpu_blocks=64, cpu_blocks=60, policy=OFF, max_num_batched_tokens=256)
    drive(engine, seed=5, active=6, total=8, turns=5)
    endless = ShadowTier("unlimited", 1, [])
    truth, feed = follow(engine)
    roomy = make_engine(gpu_blocks=64, cpu_blocks=2_000, policy=OFF, max_num_batched_tokens=256)
    drive(roomy, seed=5, active=6, total=8, turns=5)
    best, _ = follow(roomy)
    found = play(log.open_reader(engine.url).begin, ["unlimited"], None, None)
    assert truth < 0.5 < best
    assert found.rows[0].hit_rate == pytest.approx(best, abs=0.01)
    assert endless.num_evicted == 0
    assert feed.num_lookups == found.num_lookups == 40


def test_log_of_one_policy_tells_what_the_other_would_have_given(make_engine):
    """Both are played for real; each one's log is asked for the other."""
    rates = {}
    told = {}
    for policy, other in ((OFF, "tracked"), (ON, "off")):
        engine = make_engine(gpu_blocks=160, cpu_blocks=200, policy=policy, max_num_batched_tokens=256, copy_steps=1)
        drive(engine, seed=0, active=8, total=12, turns=5)
        rates[policy.label], _ = follow(engine)
        found = play(log.open_reader(engine.url).begin, [other], None, None)
        told[other] = found.rows[0].hit_rate
    assert told["tracked"] == pytest.approx(rates["tracked"], abs=0.06)
    assert told["off"] == pytest.approx(rates["off"], abs=0.06)


def test_window_model_is_followed_where_its_tier_has_room(make_engine):
    groups = [full_attention(), sliding_window(64)]
    engine = make_engine(
        gpu_blocks=100, cpu_blocks=800, policy=OFF, max_num_batched_tokens=256, copy_steps=1, groups=groups
    )
    drive(engine, seed=0, active=6, total=8, turns=5)
    truth, feed = follow(engine)
    assert truth > 0.7
    assert abs(points(feed)) <= 1
