"""Whether two runs got the same work can be told, and whether they did not."""

from dataclasses import replace

import pytest

from connector.replay.digest import Digest
from connector.replay.traffic import Play

PLAYS = (
    Play("chat0", 0, [1, 2, 3], 5, 0, 0.0),
    Play("chat1", 0, [1, 2, 4], 5, 0, 0.5),
    Play("chat0", 1, [1, 2, 3, 8, 9], 7, 0, 1.0),
    Play("chat0", 2, [1, 2, 3, 8, 9, 9], 7, 0, 2.0),
)


def of(*plays: Play) -> Digest:
    digest = Digest()
    for play in plays:
        digest.add(play)
    return digest


def test_same_requests_at_other_times_and_among_others_are_the_same_work() -> None:
    a, b, c, d = PLAYS
    other = of(b, replace(a, at_seconds=9.0), c, d)
    assert of(*PLAYS).differs(other, frozenset()) is None
    assert of(*PLAYS).hex(frozenset()) == other.hex(frozenset())


CHANGES = {
    "another token in the middle": {"tokens": [1, 2, 5, 8, 9]},
    "a token more": {"tokens": [1, 2, 3, 8, 9, 10]},
    "a longer answer": {"num_output_tokens": 8},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_difference_is_found_and_named_by_its_stream(change: dict[str, object]) -> None:
    a, b, c, d = PLAYS
    other = of(a, b, replace(c, **change), d)  # type: ignore[arg-type]
    assert of(*PLAYS).differs(other, frozenset()) == "chat0"
    assert of(*PLAYS).hex(frozenset()) != other.hex(frozenset())


def test_missing_request_or_stream_is_a_difference() -> None:
    a, b, c, d = PLAYS
    assert of(a, b, c).differs(of(*PLAYS), frozenset()) == "chat0"
    assert of(*PLAYS).differs(of(a, c, d), frozenset()) == "chat1"


def test_open_stream_may_end_early_and_must_be_the_same_until_then() -> None:
    a, b, c, d = PLAYS
    is_open = frozenset({"chat0"})
    assert of(*PLAYS).differs(of(a, b, c), is_open) is None
    assert of(*PLAYS).differs(of(replace(a, tokens=[7]), b), is_open) == "chat0"
    assert of(*PLAYS).differs(of(a, c, d), is_open) == "chat1"
    assert of(*PLAYS).hex(is_open) == of(a, b).hex(is_open)
