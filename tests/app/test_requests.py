"""The table of requests: order, pages, states, search."""

import time

import pytest

from connector.events import RequestPreempted

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def log(make_log):
    return make_log()


def page(client, **query):
    response = client.get("/restore/api/requests", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def ids(body):
    return [r["request_id"] for r in body["requests"]]


def test_row_says_what_the_log_says(log, client_of, kit):
    engine = log.engine()
    missing = kit.block_hash("x", 1)
    log.write(engine, kit.event("started", num_tokens=97, num_blocks=3, session_id="s1"), at=1)
    log.write(
        engine,
        kit.event(
            "lookup",
            num_tokens=97,
            gpu_hit_tokens=32,
            cpu_hit_tokens=0,
            cut_index=1,
            missing_hash=missing,
            cause="evicted",
            cause_detail="no_owner",
            lost_tokens=64,
            behind_tokens=32,
            since_ns=7,
            by_request_id="x",
        ),
    )
    log.write(engine, kit.event("restored", num_blocks=2, cpu_block_ids=(1, 2)), kit.event("restored", num_blocks=1))
    log.write(engine, RequestPreempted("r", 1))
    log.write(engine, kit.event("lookup", num_tokens=99, gpu_hit_tokens=0, cpu_hit_tokens=64, is_resumed=True))
    log.write(engine, kit.event("finished", num_output_tokens=5, ttft_ns=77), at=3)
    (row,) = page(client_of(log))["requests"]
    assert row == {
        "seq": 1, "request_id": "r", "engine_id": engine, "session_id": "s1", "started_wall_ns": T0 + SECOND,
        "finished_wall_ns": T0 + 3 * SECOND, "state": "finished", "status": "FINISHED_STOPPED", "prompt_tokens": 97,
        "output_tokens": 5, "gpu_hit_tokens": 32, "cpu_hit_tokens": 0, "computed_tokens": 65, "cut_index": 1,
        "missing_hash": missing.hex(), "num_blocks": 3, "num_preemptions": 1, "restored_blocks": 3, "ttft_ns": 77,
        "restored_hit_tokens": 0, "cause": "evicted", "cause_detail": "no_owner", "lost_tokens": 64,
        "behind_tokens": 32, "since_ns": 7, "by_request_id": "x",
    }  # fmt: skip


@pytest.fixture
def every_state(log, kit):
    """One request in each state, named as the state."""
    now = (time.time_ns() - T0) / SECOND
    dead, live = log.engine(), log.live_engine()
    log.write(dead, kit.event("started", request_id="lost"), at=1)
    log.write(live, kit.event("started", request_id="waiting"), at=now - 5)
    for name in ("running", "preempted", "resumed", "finished"):
        log.write(live, kit.event("started", request_id=name), kit.event("lookup", request_id=name))
    for name in ("preempted", "resumed"):
        log.write(live, RequestPreempted(name, 1))
    log.write(live, kit.event("lookup", request_id="resumed", is_resumed=True))
    log.write(live, kit.event("finished", request_id="finished"))
    return log


def test_states_follow_from_the_events(every_state, client_of):
    rows = page(client_of(every_state))["requests"]
    assert [(r["request_id"], r["state"]) for r in rows] == [
        ("finished", "finished"),
        ("resumed", "running"),
        ("preempted", "preempted"),
        ("running", "running"),
        ("waiting", "waiting"),
        ("lost", "lost"),
    ]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("waiting", ["waiting"]),
        ("running", ["resumed", "running"]),
        ("preempted", ["preempted"]),
        ("finished", ["finished"]),
        ("lost", ["lost"]),
    ],
)
def test_filter_by_state_agrees_with_the_rows(every_state, client_of, state, expected):
    body = page(client_of(every_state), state=state)
    assert ids(body) == expected
    assert {r["state"] for r in body["requests"]} == {state}


def test_unknown_state_is_refused(log, client_of):
    response = client_of(log).get("/restore/api/requests?state=asleep")
    assert response.status_code == 422
    assert "'waiting'" in response.json()["detail"]


@pytest.mark.parametrize("query", [{}, {"state": "lost"}, {"search": "r"}])
def test_pages_go_on_to_the_oldest(log, client_of, kit, query):
    engine = log.engine()
    for n in range(7):
        log.write(engine, kit.event("started", request_id=f"r{n}"), kit.event("lookup", request_id=f"r{n}"))
    client = client_of(log)
    seen, before = [], {}
    for _ in range(3):
        body = page(client, limit=3, **before, **query)
        seen += ids(body)
        before = {"before": body["next_before"]}
    assert seen == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]
    assert body["next_before"] is None


def test_page_that_just_fits_is_the_last(log, client_of, kit):
    engine = log.engine()
    for n in range(3):
        log.write(engine, kit.event("started", request_id=f"r{n}"))
    assert page(client_of(log), limit=3)["next_before"] is None


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("bc", ["Abc"]),
        ("ABC", ["Abc"]),
        ("s-2", ["x%y"]),
        ("%", ["x%y"]),
        ("_", []),
        ("nothing", []),
        ("\0", []),
        ("b\0", []),
    ],
)
def test_search_finds_parts_of_ids_and_takes_no_wildcards(log, client_of, kit, search, expected):
    engine = log.engine()
    log.write(engine, kit.event("started", request_id="Abc", session_id="s-1"))
    log.write(engine, kit.event("started", request_id="x%y", session_id="s-2"))
    assert ids(page(client_of(log), search=search)) == expected


def test_same_id_on_two_engines_stays_apart(log, client_of, kit):
    one, two = log.engine(), log.engine()
    log.write(one, kit.event("started"), kit.event("lookup", gpu_hit_tokens=32))
    log.write(two, kit.event("started"), kit.event("lookup", gpu_hit_tokens=64))
    rows = page(client_of(log))["requests"]
    assert [(r["engine_id"], r["gpu_hit_tokens"]) for r in rows] == [(two, 64), (one, 32)]
