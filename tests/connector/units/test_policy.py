"""The policy: defaults, bounds, and that nothing is half-applied."""

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from connector.policy import Policy, PolicyError


def test_default_is_tracked_and_on_with_a_bounded_budget():
    assert Policy().as_dict() == {
        "enabled": True,
        "mode": "tracked",
        "max_restore_blocks_per_step": 64,
        "retention": "lru",
    }


@pytest.mark.parametrize(
    ("policy", "label"),
    [
        (Policy(), "tracked"),
        (Policy(mode="rescan"), "rescan"),
        (Policy(enabled=False), "off"),
        (Policy(enabled=False, mode="rescan"), "off"),
    ],
)
def test_label_names_what_the_engine_does(policy, label):
    assert policy.label == label


@pytest.mark.parametrize("value", [None, 0, 1, "true", "", [], 1.0])
def test_enabled_must_be_a_boolean(value):
    with pytest.raises(PolicyError, match="enabled must be true or false"):
        Policy().changed({"enabled": value})


@pytest.mark.parametrize("value", [None, "", "Tracked", "off", 0, ["rescan"], b"rescan"])
def test_mode_must_be_a_known_one(value):
    with pytest.raises(PolicyError, match="mode must be one of rescan, tracked"):
        Policy().changed({"mode": value})


@pytest.mark.parametrize("value", [None, True, False, -1, 1_000_001, 1.0, "64", [64], float("inf")])
def test_budget_must_be_a_whole_number_within_bounds(value):
    with pytest.raises(PolicyError, match=r"max_restore_blocks_per_step must be .* from 0 .* to 1000000"):
        Policy().changed({"max_restore_blocks_per_step": value})


@pytest.mark.parametrize("value", [0, 1, 64, 1_000_000])
def test_budget_takes_its_bounds(value):
    assert Policy().changed({"max_restore_blocks_per_step": value}).max_restore_blocks_per_step == value


def test_unknown_keys_are_all_named_beside_the_known_ones():
    with pytest.raises(PolicyError) as error:
        Policy().changed({"budget": 1, "Enabled": True, "mode": "rescan"})
    assert str(error.value) == (
        "unknown key 'Enabled', 'budget'; known are enabled, max_restore_blocks_per_step, mode, retention"
    )


@pytest.mark.parametrize("bad", [{"mode": "x"}, {"max_restore_blocks_per_step": -1}, {"nonsense": 1}])
def test_refused_change_applies_nothing(bad):
    policy = Policy()
    with pytest.raises(PolicyError):
        policy.changed({"enabled": False, **bad})
    assert policy == Policy()


def test_policy_cannot_be_changed_in_place():
    with pytest.raises(FrozenInstanceError):
        Policy().enabled = False  # pyright: ignore[reportAttributeAccessIssue]


CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

GOOD = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "mode": st.sampled_from(["rescan", "tracked"]),
        "max_restore_blocks_per_step": st.integers(0, 1_000_000),
        "retention": st.sampled_from(["lru", "adaptive"]),
    },
)


@CALM
@given(GOOD, GOOD)
def test_change_replaces_its_keys_and_keeps_the_others(first, second):
    default = {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 64, "retention": "lru"}
    assert Policy().changed(first).changed(second).as_dict() == {**default, **first, **second}


ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers(), max_size=2)


@CALM
@given(
    st.dictionaries(
        st.sampled_from(["enabled", "mode", "max_restore_blocks_per_step", "retention", "x"]),
        ANYTHING | st.sampled_from(["rescan", "tracked", "lru", "adaptive"]),
    )
)
def test_any_change_either_holds_as_asked_or_is_refused(changes):
    try:
        policy = Policy().changed(changes)
    except PolicyError:
        return
    for key, value in changes.items():
        assert getattr(policy, key) is value or getattr(policy, key) == value
    assert isinstance(policy.enabled, bool)
    assert policy.mode in ("rescan", "tracked")
    assert 0 <= policy.max_restore_blocks_per_step <= 1_000_000
