"""The rows of the log by REST."""

import typing

import pytest

from app.models import EventKind
from connector.events import EVENT_TYPES, Fault


@pytest.fixture
def log(make_log, kit):
    """Seven rows of two requests."""
    builder = make_log()
    engine = builder.engine()
    run = {"num_blocks": 2, "head_hash": kit.block_hash("a", 0), "tail_hash": kit.block_hash("a", 1)}
    builder.step = 4
    builder.write(
        engine, kit.event("policy"), kit.event("started", request_id="r1"), kit.event("started", request_id="r2")
    )
    builder.write(engine, kit.event("stored", request_id="r1", cpu_block_ids=(7, 9), **run))
    builder.write(
        engine, kit.event("lookup", request_id="r2"), kit.event("lookup", request_id="r1"), Fault("x", "y", 1)
    )
    return builder


def get(client, **query):
    response = client.get("/restore/api/events", params=query)
    assert response.status_code == 200, response.text
    body = response.json()
    return [e["seq"] for e in body["events"]], body["last_seq"]


def test_row_has_header_and_its_kinds_columns(log, client_of, kit):
    (row,) = client_of(log).get("/restore/api/events?kind=blocks_stored").json()["events"]
    assert row.pop("wall_ns") >= 1_790_000_000_000_000_000
    assert row == {
        "seq": 4, "engine_id": 1, "step": 4, "monotonic_ns": 0, "kind": "blocks_stored", "request_id": "r1",
        "data": {
            "kv_group": 0, "first_index": 0, "num_blocks": 2, "tail_hash": kit.block_hash("a", 1).hex(),
            "head_hash": kit.block_hash("a", 0).hex(), "cpu_block_ids": [7, 9], "num_bytes": 1000, "scheduled_step": 1,
            "copy_ns": None,
        },
    }  # fmt: skip


def test_without_a_place_the_newest_rows_come_in_order(log, client_of):
    assert get(client_of(log), limit=3) == ([5, 6, 7], 7)


def test_after_goes_forward_and_says_where_to_go_on(log, client_of):
    client = client_of(log)
    assert get(client, after=0, limit=3) == ([1, 2, 3], 3)
    assert get(client, after=3, limit=10) == ([4, 5, 6, 7], 7)
    assert get(client, after=7) == ([], 7)


def test_place_of_another_log_is_told_by_the_real_last_row(log, client_of, make_log):
    assert get(client_of(log), after=900) == ([], 7)
    assert get(client_of(make_log("empty.db")), after=900) == ([], 0)
    # No other answer has a number smaller than the one that was given, or a client would begin anew for nothing.
    assert get(client_of(log), after=7, kind="lookup") == ([], 7)
    assert get(client_of(log), after=5, kind="lookup", limit=1) == ([6], 6)


def test_before_goes_backward(log, client_of):
    client = client_of(log)
    assert get(client, before=6, limit=2) == ([4, 5], 5)
    assert get(client, before=1) == ([], 0)


def test_both_ways_at_once_is_refused(log, client_of):
    response = client_of(log).get("/restore/api/events?after=1&before=5")
    assert response.status_code == 422
    assert "not both" in response.json()["detail"]


def test_filters_narrow_and_combine(log, client_of):
    client = client_of(log)
    assert get(client, kind="lookup") == ([5, 6], 7)
    assert get(client, kind=["lookup", "fault"]) == ([5, 6, 7], 7)
    assert get(client, request="r1") == ([2, 4, 6], 7)
    assert get(client, request="r") == ([2, 3, 4, 5, 6], 7)
    assert get(client, request="r1", kind="lookup") == ([6], 7)
    assert get(client, request="none") == ([], 7)


def test_filtered_page_that_is_full_goes_on_where_it_ended(log, client_of):
    assert get(client_of(log), kind="lookup", after=0, limit=1) == ([5], 5)


@pytest.mark.parametrize(
    "query", ["kind=nope", "limit=0", "limit=1001", "after=-1", "after=x", "after=99999999999999999999"]
)
def test_bad_parameter_is_refused_and_named(log, client_of, query):
    response = client_of(log).get(f"/restore/api/events?{query}")
    assert response.status_code == 422
    assert query.split("=")[0] in response.json()["detail"]


def test_every_kind_of_event_can_be_asked_for():
    assert set(typing.get_args(EventKind)) == {t.kind for t in EVENT_TYPES}
