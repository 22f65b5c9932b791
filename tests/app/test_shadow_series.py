"""Sums over ranges of seconds, against sums over a plain list of what was added."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app import shadow_series
from app.shadow_series import SECOND_NS, Hits, Series

MOMENTS = st.integers(0, 31 * SECOND_NS)
LOOKUPS = st.lists(
    st.tuples(st.integers(0, 30 * SECOND_NS), st.integers(1, 99), st.integers(0, 99), st.integers(0, 99)), max_size=40
)


def summed(lookups, start, end):
    """A second counts as a whole where its begin lies in the range."""
    inside = [row[1:] for row in lookups if start <= row[0] // SECOND_NS * SECOND_NS < end]
    return Hits(*(sum(column) for column in zip(*inside, strict=True))) if inside else Hits()


@given(LOOKUPS, MOMENTS, MOMENTS, st.integers(SECOND_NS // 4, 7 * SECOND_NS))
def test_ranges_and_buckets_sum_what_was_added_in_any_order(lookups, start, end, bucket):
    series, copy = Series(), Series()
    for number, row in enumerate(lookups):
        series.add(*row)
        if number % 3 == 0:
            # Asked in between, what is known of the begin is kept; told in between, the copy knows the same.
            assert series.total(start, end) == summed(lookups[: number + 1], start, end)
            for second, sums in series.take_changes().items():
                copy.put(second, Hits(*sums))
    for second, sums in series.take_changes().items():
        copy.put(second, Hits(*sums))
    for each in (series, copy):
        assert each.total(start, end) == summed(lookups, start, end)
        found = each.buckets(start, end, bucket)
        wanted = {
            n: summed(lookups, start + n * bucket, min(end, start + (n + 1) * bucket))
            for n in range(max(0, -(-(end - start) // bucket)))
        }
        assert found == {n: hits for n, hits in wanted.items() if hits.prompt_tokens}


def test_changes_are_told_once():
    series = Series()
    series.add(5 * SECOND_NS + 1, 10, 2, 3)
    series.add(5 * SECOND_NS + 2, 10, 0, 1)
    assert series.take_changes() == {5: (20, 2, 4)}
    assert series.take_changes() == {}


def test_oldest_seconds_go_when_there_are_too_many(monkeypatch):
    monkeypatch.setattr(shadow_series, "MAX_SECONDS", 20)
    series = Series()
    for second in range(25):
        series.add(second * SECOND_NS, 1, 0, 0)
        assert series.total(0, 10**18).prompt_tokens <= 20
    # Two at a time: at the 21st, the 23rd and the 25th.
    assert series.total(0, 6 * SECOND_NS).prompt_tokens == 0
    assert series.total(6 * SECOND_NS, 25 * SECOND_NS).prompt_tokens == 19


@pytest.mark.parametrize(("start", "end"), [(5, 5), (9, 3)])
def test_empty_range_has_no_traffic(start, end):
    series = Series()
    series.add(4 * SECOND_NS, 1, 0, 0)
    assert series.total(start * SECOND_NS, end * SECOND_NS).hit_rate is None
