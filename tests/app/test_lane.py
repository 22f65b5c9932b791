"""A request's page: its cut, what it wanted of what was evicted, its lane over time."""

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def page(make_log, client_of, kit):
    """A chain of five blocks: stored, one of them evicted and one re-stored, then looked up by `r`."""
    log = make_log()
    engine = log.engine()
    h = [kit.block_hash("p", i) for i in range(5)]
    log.chain(engine, h)

    def run(kind, first, last, **changes):
        log.step += 1
        e = kit.event(
            kind, first_index=first, num_blocks=last - first + 1, head_hash=h[first], tail_hash=h[last], **changes
        )
        log.write(engine, e)

    run("stored", 0, 3, request_id="first")
    run("evicted", 1, 2, request_id=None, by_request_id="other")
    run("restored", 1, 1, request_id="first")
    log.step += 1
    log.write(engine, kit.event("started", request_id="r", num_blocks=5, tail_hash=h[4]), at=9)
    log.write(
        engine,
        kit.event("lookup", request_id="r", num_tokens=161, gpu_hit_tokens=32, cpu_hit_tokens=32, tail_hash=h[4],
                  num_blocks=5, cut_index=2, missing_hash=h[2], restored_hit_tokens=32, cause="evicted",
                  cause_detail="owner_running", lost_tokens=64, behind_tokens=32, by_request_id="other", evicted_step=2,
                  since_ns=7, age_ns=5, was_owned=True),
        kit.event("missed", request_id="r", first_index=2, head_hash=h[2], tail_hash=h[2], evicted_step=2, num_owned=1,
                  by_request_id="other"),
    )  # fmt: skip
    run("evicted", 3, 3, request_id=None, by_request_id="r")
    body = client_of(log).get("/restore/api/requests/r").json()
    body["h"] = [x.hex() for x in h]
    return body


def test_cut_says_why_and_what_it_cost(page):
    assert page["cut"] == {
        "index": 2, "missing_hash": page["h"][2], "cause": "evicted", "cause_detail": "owner_running",
        "lost_tokens": 64, "behind_tokens": 32, "sibling_hash": None, "by_request_id": "other", "evicted_step": 2,
        "since_ns": 7, "age_ns": 5, "was_owned": True,
    }  # fmt: skip
    (missed,) = page["missed"]
    assert (missed["first_index"], missed["num_blocks"], missed["by_request_id"], missed["num_owned"]) == (
        2,
        1,
        "other",
        1,
    )
    assert page["saved_tokens"] == 64
    assert page["saved_prefill_s"] is None
    assert page["conversation_id"] == "r"


def test_lane_has_a_row_for_each_moment_and_how_all_blocks_stood_then(page):
    rows = [
        (row["kind"], row["first_index"], row["num_blocks"], [(s["state"], s["num_blocks"]) for s in row["spans"]])
        for row in page["lane"]
    ]
    assert rows == [
        ("blocks_stored", 0, 4, [("cached", 4), ("absent", 1)]),
        ("blocks_evicted", 1, 2, [("cached", 1), ("absent", 2), ("cached", 1), ("absent", 1)]),
        ("blocks_restored", 1, 1, [("cached", 1), ("restored", 1), ("absent", 1), ("cached", 1), ("absent", 1)]),
        ("lookup", 0, 5, [("gpu_hit", 1), ("restored_hit", 1), ("missing", 1), ("behind", 1), ("computed", 1)]),
        ("blocks_evicted", 3, 1, [("cached", 1), ("restored", 1), ("absent", 3)]),
    ]
    assert [row["by_request_id"] for row in page["lane"]] == [None, "other", None, None, "r"]
    assert page["is_lane_complete"] is True


def test_wanted_blocks_are_no_moment_of_their_history(page):
    assert [m["kind"] for m in page["chain"][2]["history"]] == ["blocks_stored", "blocks_evicted"]
    assert page["chain"][2]["why_missing"] == "evicted at step 2 by the store of other"


def test_reset_clears_the_lane(make_log, client_of, kit):
    from connector.events import CacheReset

    log = make_log()
    engine = log.engine()
    h = [kit.block_hash("p", i) for i in range(2)]
    log.chain(engine, h)
    log.write(engine, kit.event("started", request_id="r", num_blocks=2, tail_hash=h[1]))
    log.write(engine, kit.event("stored", tail_hash=h[0]), CacheReset(1))
    lane = client_of(log).get("/restore/api/requests/r").json()["lane"]
    assert [(row["kind"], row["spans"]) for row in lane] == [
        ("blocks_stored", [{"state": "cached", "num_blocks": 1}, {"state": "absent", "num_blocks": 1}]),
        ("cache_reset", [{"state": "absent", "num_blocks": 2}]),
    ]


def test_seconds_saved_are_tokens_at_the_measured_speed_of_this_engine(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    for tokens in (100, 200, 300):
        log.step += 1
        log.write(engine, kit.step(previous_ns=tokens * 10_000_000, previous_tokens=tokens, previous_running=1), at=1)
    log.write(engine, kit.event("started"), kit.event("lookup", gpu_hit_tokens=32, cpu_hit_tokens=32), at=2)
    body = client_of(log).get("/restore/api/requests/r").json()
    assert (body["saved_tokens"], body["saved_prefill_s"]) == (64, pytest.approx(0.64))


def test_request_that_waits_has_no_cut(make_log, client_of, kit):
    log = make_log()
    log.write(log.live_engine(), kit.event("started"))
    body = client_of(log).get("/restore/api/requests/r").json()
    assert (body["cut"], body["saved_tokens"], body["lane"], body["missed"]) == (None, None, [], [])


@pytest.mark.parametrize(
    ("cause", "words"), [("never_seen", "never seen before this request"), ("never_stored", "never stored")]
)
def test_block_without_a_moment_is_missing_for_the_reason_that_the_engine_gave(make_log, client_of, kit, cause, words):
    log = make_log()
    engine = log.engine()
    h = [kit.block_hash("p", i) for i in range(2)]
    log.chain(engine, h)
    log.write(engine, kit.event("started", num_blocks=2, tail_hash=h[1]))
    log.write(engine, kit.event("lookup", tail_hash=h[1], cut_index=0, missing_hash=h[0], cause=cause))
    chain = client_of(log).get("/restore/api/requests/r").json()["chain"]
    assert [block["why_missing"] for block in chain] == [words, None]


@pytest.mark.parametrize(
    ("num_before", "num_after", "kept_before", "kept_after"),
    [(300, 600, 150, 349), (450, 20, 450, 20), (700, 20, 479, 20), (10, 700, 10, 489)],
)
def test_lane_of_a_busy_head_keeps_what_lies_around_the_lookup(
    make_log, client_of, kit, num_before, num_after, kept_before, kept_after
):
    """A block that all prompts share goes on being loaded; a page holds 500 rows, 150 of them before the lookup where
    there are more on both sides."""
    log = make_log()
    engine = log.engine()
    h = kit.block_hash("p", 0)
    log.chain(engine, [h])

    def load(count):
        log.write(engine, *(kit.event("loaded", request_id="other", head_hash=h, tail_hash=h) for _ in range(count)))

    load(num_before)
    log.write(engine, kit.event("started", request_id="r", num_blocks=1, tail_hash=h))
    log.write(engine, kit.event("lookup", request_id="r", num_blocks=1, tail_hash=h, cpu_hit_tokens=32))
    load(num_after)
    body = client_of(log).get("/restore/api/requests/r").json()
    kinds = [row["kind"] for row in body["lane"]]
    assert kinds == ["blocks_loaded"] * kept_before + ["lookup"] + ["blocks_loaded"] * kept_after
    assert body["is_lane_complete"] is (num_before + num_after < 500)
