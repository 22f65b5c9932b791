"""Causes, benefit and the sentence, with sums worked out by hand."""

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def lookup(kit, request, tokens, gpu=0, cpu=0, **changes):
    return kit.event("lookup", request_id=request, num_tokens=tokens, gpu_hit_tokens=gpu, cpu_hit_tokens=cpu, **changes)


def get(client, view, **query):
    response = client.get(f"/restore/api/{view}", params=query)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
def missed(make_log, kit):
    """1,000 prompt tokens: 250 found, 300 lost to two evictions, 50 to a store that was never made."""
    log = make_log()
    engine = log.engine(directory_capacity=64)
    evicted = {"cause": "evicted", "cut_index": 3, "missing_hash": b"\x01"}
    log.write(engine, lookup(kit, "a", 400, 100, 50, **evicted, cause_detail="owner_running", lost_tokens=200,
                             behind_tokens=64, since_ns=5, by_request_id="z"), at=1)  # fmt: skip
    log.write(engine, lookup(kit, "b", 300, 100, **evicted, cause_detail="no_owner", lost_tokens=100), at=2)
    log.write(engine, lookup(kit, "c", 200, cause="never_stored", cause_detail="cpu_full", lost_tokens=50), at=12)
    log.write(engine, lookup(kit, "d", 100), at=13)
    # After a preemption: no new prompt.
    log.write(engine, lookup(kit, "a", 9000, **evicted, lost_tokens=9000, is_resumed=True), at=14)
    log.write(engine, kit.step(num_forgotten=3), at=14)
    return log


def test_causes_are_counted_by_cause_and_detail_the_greatest_loss_first(missed, client_of):
    body = get(client_of(missed), "causes", since=T0, until=T0 + 20 * SECOND, bucket=10)
    assert (body["num_lookups"], body["prompt_tokens"], body["lost_tokens"], body["behind_tokens"]) == (
        4,
        1000,
        350,
        64,
    )
    assert [tuple(row.values()) for row in body["causes"]] == [
        ("evicted", "owner_running", 1, 400, 200, 64, 0.2),
        ("evicted", "no_owner", 1, 300, 100, 0, 0.1),
        ("never_stored", "cpu_full", 1, 200, 50, 0, 0.05),
        (None, None, 1, 100, 0, 0, 0.0),
    ]
    assert body["points"] == [
        {"wall_ns": T0, "prompt_tokens": 700, "lost_tokens": {"evicted": 300}},
        {"wall_ns": T0 + 10 * SECOND, "prompt_tokens": 300, "lost_tokens": {"never_stored": 50}},
    ]
    assert body["directory"] == {"engine_id": 1, "capacity": 64, "num_forgotten": 3}


def test_examples_of_causes_are_the_lookups_that_lost_most(missed, client_of):
    examples = get(client_of(missed), "causes", since=T0, until=T0 + 20 * SECOND)["examples"]
    assert [(e["request_id"], e["lost_tokens"]) for e in examples] == [("a", 200), ("b", 100), ("c", 50)]
    first = examples[0]
    assert (first["cause"], first["detail"], first["cut_index"], first["missing_hash"]) == (
        "evicted", "owner_running", 3, "01",
    )  # fmt: skip
    assert (first["since_ns"], first["by_request_id"], first["wall_ns"]) == (5, "z", T0 + SECOND)


def test_a_detail_that_lost_little_has_its_examples_too(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    evicted = {"cause": "evicted", "cut_index": 3, "missing_hash": b"\x01"}
    for n in range(6):
        log.write(engine, lookup(kit, f"big {n}", 400, **evicted, cause_detail="no_owner", lost_tokens=300), at=n)
    log.write(engine, lookup(kit, "small", 400, **evicted, cause_detail="owner_running", lost_tokens=1), at=9)
    found = get(client_of(log), "causes", since=T0, until=T0 + 20 * SECOND)["examples"]
    assert [(e["request_id"], e["detail"]) for e in found] == [
        *((f"big {n}", "no_owner") for n in (4, 3, 2, 1, 0)),
        ("small", "owner_running"),
    ]


def test_lookup_of_an_older_log_has_a_cause_that_was_not_recorded(make_log, client_of, kit):
    log = make_log()
    log.write(log.engine(), lookup(kit, "a", 100, cut_index=0), at=1)
    (row,) = get(client_of(log), "causes", since=T0, until=T0 + SECOND * 5)["causes"]
    assert (row["cause"], row["num_lookups"]) == ("not_recorded", 1)


def test_log_without_traffic_has_no_rates(make_log, client_of):
    client = client_of(make_log())
    causes = get(client, "causes")
    assert (causes["causes"], causes["examples"], causes["directory"]) == ([], [], None)
    glance = get(client, "glance")
    assert [n["share"] for n in glance["numbers"]] == [None, None, None, None]
    assert glance["sentence"] == "No request was admitted in this range."
    body = get(client, "benefit")
    total = body["total"]
    assert (total["hit_rate"], total["roi"], total["saved_s"], total["spent_s"]) == (None, None, None, None)
    assert (total["regret"]["wanted_share"], total["restore"]["copy_ns"]) == (None, None)
    assert (body["holds"], body["policies"]) == (None, [])


def test_glance_says_what_came_from_cache_and_what_was_lost(missed, client_of):
    body = get(client_of(missed), "glance", since=T0, until=T0 + 20 * SECOND)
    assert [n["share"] for n in body["numbers"]] == [0.25, 0.3, 0.2, None]
    assert body["sentence"] == (
        "25 % of prompt tokens came from cache; 30 % were lost to CPU evictions, "
        "of which re-store could have saved 20 %."
    )
    assert [(n["view"], n["query"]) for n in body["numbers"][1:3]] == [
        ("causes", {"cause": "evicted"}), ("causes", {"cause": "evicted", "detail": "owner_running"}),
    ]  # fmt: skip


def test_glance_takes_the_larger_tier_from_whoever_follows_shadows(missed, client_of):
    client = client_of(missed)
    asked = []
    client.app.state.context.shadows.double_tier = lambda since, until, tokens: asked.append((since, until)) or 0.5
    body = get(client, "glance", since=T0, until=T0 + 20 * SECOND)
    assert body["double_tier"] == 0.5
    assert body["sentence"].endswith("; a tier twice as large would give 50 %.")
    assert asked == [(T0, T0 + 20 * SECOND)]


def prefill(kit, log, engine):
    """Steps of 100, 200 and 300 tokens that took 1, 2 and 3 s: 0.01 s a token; and two that did no prefill."""
    for tokens in (100, 200, 300):
        log.step += 1
        log.write(engine, kit.step(previous_ns=tokens * 10_000_000, previous_tokens=tokens, previous_running=1))
    for tokens, running in ((4, 4), (2, 3)):
        log.step += 1
        log.write(engine, kit.step(previous_ns=900 * SECOND, previous_tokens=tokens, previous_running=running))


def run_of(kit, kind, blocks, **changes):
    if kind != "missed":
        changes["cpu_block_ids"] = tuple(range(blocks))
    return kit.event(kind, num_blocks=blocks, head_hash=b"h", tail_hash=b"t", **changes)


def test_benefit_of_restores_that_were_hit(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    first, second = log.policy(enabled=False), log.policy(enabled=True)
    log.write(engine, kit.event("policy", policy_version=first, enabled=False), at=1)
    log.write(engine, lookup(kit, "a", 1000, 0, 0, cause="evicted", cause_detail="owner_running", lost_tokens=96), at=1)
    log.write(engine, run_of(kit, "evicted", 10), run_of(kit, "missed", 3, since_ns=2 * SECOND, num_owned=2), at=2)
    log.write(engine, kit.event("policy", policy_version=second), at=3)
    prefill(kit, log, engine)
    # 4 blocks in 0.08 s; one of them displaced another that was wanted again.
    log.write(engine, run_of(kit, "restored", 4, num_bytes=4000, copy_ns=80_000_000), at=4)
    log.write(engine, run_of(kit, "evicted", 2, is_by_restore=True), at=4)
    log.write(engine, kit.event("missed", tail_hash=b"t", since_ns=50_000_000, is_by_restore=True), at=5)
    log.write(engine, lookup(kit, "b", 1000, 100, 128, restored_hit_tokens=64), at=6)
    log.write(engine, run_of(kit, "loaded", 4, num_restored=2), at=6)
    body = get(client_of(log), "benefit")
    total, (off, on) = body["total"], body["policies"]
    assert [(p["policy_version"], p["label"], p["num_lookups"]) for p in (off, on)] == [
        (1, "off", 1),
        (2, "tracked", 1),
    ]
    assert (off["first_wall_ns"], off["last_wall_ns"]) == (T0 + SECOND, T0 + 3 * SECOND)
    assert total["regret"] | {"histogram": None} == {
        "evicted_blocks": 12, "wanted_blocks": 4, "wanted_owned_blocks": 2, "wanted_share": 4 / 12, "lost_tokens": 96,
        "histogram": None,
    }  # fmt: skip
    filled = [(b["from_ns"], b["to_ns"], b["num_blocks"]) for b in total["regret"]["histogram"] if b["num_blocks"]]
    assert filled == [(0, 100_000_000, 1), (SECOND, 3_162_277_660, 3)]
    assert on["restore"] == {
        "restored_blocks": 4, "restored_bytes": 4000, "copy_ns": 80_000_000, "measured_blocks": 4, "loaded_blocks": 2,
        "hit_tokens": 64, "displaced_blocks": 2, "displaced_wanted_blocks": 1,
    }  # fmt: skip
    assert on["prefill"]["seconds_per_token"] == pytest.approx(0.01)
    assert (on["prefill"]["num_steps"], on["prefill"]["r_squared"]) == (3, pytest.approx(1.0))
    # 64 tokens of 0.01 s for 0.08 s of copying; the displaced block has 32 tokens.
    assert on["saved_s"] == pytest.approx(0.64)
    assert on["spent_s"] == pytest.approx(0.08)
    assert on["roi"] == pytest.approx(8.0)
    assert on["displaced_s"] == pytest.approx(0.32)
    assert (off["roi"], off["spent_s"], off["restore"]["copy_ns"]) == (None, None, None)
    # Of 256 tokens, which are 8 blocks: 0.16 s and 8,000 bytes to copy, 2.56 s to prefill.
    assert [a["measured"] for a in body["assumptions"]] == [pytest.approx(v) for v in (0.16, 8000, 2.56, 16)]
    assert [a["quoted"] for a in body["assumptions"]] == [0.0005, 2e6, 0.025, 50]
    assert body["hits_per_restore"] == 0.5
    assert body["holds"] is False
    assert body["verdict"].startswith("It does not hold here, though re-store paid: a re-stored block that is hit once")
    assert "8 times what it spent" in body["verdict"]


@pytest.mark.parametrize(
    ("displaced_blocks", "hit_tokens", "begins", "is_harm"),
    [
        # 0.08 s of copying; 0.32 s a displaced block that was wanted; 0.01 s a token that was hit.
        (1, 64, "It does not hold here, though re-store paid: ", False),
        (2, 64, "It does not hold here: ", True),
        (12, 512, "It holds here: ", False),
        (16, 512, "It holds here: ", True),
    ],
)
def test_what_re_stores_pushed_out_counts_in_the_verdict(
    make_log, client_of, kit, displaced_blocks, hit_tokens, begins, is_harm
):
    log = make_log()
    engine = log.engine()
    prefill(kit, log, engine)
    log.write(engine, run_of(kit, "restored", 4, num_bytes=4000, copy_ns=80_000_000), at=4)
    log.write(engine, run_of(kit, "missed", displaced_blocks, since_ns=SECOND, is_by_restore=True), at=5)
    log.write(engine, lookup(kit, "b", 1000, 0, hit_tokens, restored_hit_tokens=hit_tokens), at=6)
    log.write(engine, run_of(kit, "loaded", 4, num_restored=2), at=6)
    body = get(client_of(log), "benefit")
    assert body["total"]["displaced_s"] == pytest.approx(0.32 * displaced_blocks)
    assert body["total"]["saved_s"] == pytest.approx(0.01 * hit_tokens)
    assert body["verdict"].startswith(begins)
    assert body["verdict"].endswith("it cost more than it gained.") is is_harm


def test_restores_that_nobody_hit_return_nothing(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    prefill(kit, log, engine)
    log.write(engine, run_of(kit, "restored", 4, num_bytes=4000, copy_ns=80_000_000), at=4)
    body = get(client_of(log), "benefit")
    assert (body["total"]["saved_s"], body["total"]["roi"], body["holds"]) == (0.0, 0.0, False)
    assert body["verdict"].startswith("It does not hold here: nothing that was re-stored has been hit")


def test_copies_that_are_not_measured_have_no_price(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    prefill(kit, log, engine)
    log.write(engine, run_of(kit, "restored", 4), lookup(kit, "b", 100, 0, 64, restored_hit_tokens=64), at=4)
    body = get(client_of(log), "benefit")
    assert (body["total"]["spent_s"], body["total"]["roi"], body["holds"]) == (None, None, None)
    assert body["total"]["saved_s"] == pytest.approx(0.64)
    assert body["verdict"] == "The worker does not measure its copies here, so the return is not known."


def test_time_of_copies_that_were_not_measured_is_taken_from_those_that_were(make_log, client_of, kit):
    log = make_log()
    log.write(log.engine(), run_of(kit, "restored", 1, copy_ns=SECOND), run_of(kit, "restored", 3), at=1)
    total = get(client_of(log), "benefit")["total"]
    assert (total["restore"]["copy_ns"], total["restore"]["measured_blocks"], total["spent_s"]) == (SECOND, 1, 4.0)


def test_steps_of_one_size_have_no_slope(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    for took in (1, 2, 3, 4):
        log.step += 1
        log.write(engine, kit.step(previous_ns=took * SECOND, previous_tokens=333, previous_running=1), at=1)
    prefill_speed = get(client_of(log), "benefit")["total"]["prefill"]
    assert prefill_speed == {
        "seconds_per_token": None, "num_steps": 4, "r_squared": None,
        "doubt": "all steps did the same amount of prefill, so its speed cannot be measured",
    }  # fmt: skip


def noisy_prefill(kit, log, engine):
    """Steps of 100 and 200 tokens that took 1 and 9 s each: a slope of nothing; then one of 300 that took 7 s."""
    for tokens, took in ((100, 1), (100, 9), (200, 1), (200, 9), (300, 7)):
        log.step += 1
        log.write(engine, kit.step(previous_ns=took * SECOND, previous_tokens=tokens, previous_running=1))


def test_poor_fit_leaves_the_verdict_open(make_log, client_of, kit):
    """Around the means (180 tokens, 5.4 s): sum of dx·dy 240, of dx² 28,000, of dy² 67.2. A slope of 240 / 28,000 =
    1/117, which is R² = 240² / (28,000 · 67.2) = 0.03. At it 51,200 hit tokens would have paid 439 s for 0.08 s."""
    log = make_log()
    engine = log.engine()
    noisy_prefill(kit, log, engine)
    log.write(engine, run_of(kit, "restored", 4, num_bytes=4000, copy_ns=80_000_000), at=4)
    log.write(engine, kit.event("started", request_id="b"), at=5)
    log.write(engine, lookup(kit, "b", 60_000, 0, 51_200, restored_hit_tokens=51_200), at=5)
    client = client_of(log)
    body = get(client, "benefit")
    assert body["total"]["prefill"]["seconds_per_token"] == pytest.approx(240 / 28_000)
    assert body["total"]["prefill"]["r_squared"] == pytest.approx(0.0306, abs=1e-4)
    assert body["total"]["roi"] > 5000
    assert body["holds"] is None
    assert body["verdict"].startswith("It cannot be told whether it holds here: how long a step took has little to do")
    assert "R² 0.03" in body["verdict"]
    report = client.get("/restore/api/report").text
    assert body["verdict"].replace("'", "&#39;") in report
    assert "Do not rely on it" in report
    # Nor is a request's page told what its hits spared.
    page = get(client, "requests/b")
    assert (page["saved_tokens"], page["saved_prefill_s"]) == (51_200, None)


def test_what_was_never_hit_gained_nothing_however_fast_prefill_is(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    noisy_prefill(kit, log, engine)
    log.write(engine, run_of(kit, "restored", 4, num_bytes=4000, copy_ns=80_000_000), at=4)
    body = get(client_of(log), "benefit")
    assert body["holds"] is False
    assert body["verdict"].startswith("It does not hold here: nothing that was re-stored has been hit")


@pytest.mark.parametrize(
    ("steps", "doubt"),
    [
        ([(100, 1), (200, 2)], "too few steps did prefill"),
        ([(100, 3), (200, 2), (300, 1)], "steps with more prefill took no longer"),
        ([(100, 2), (200, 2), (300, 2)], "steps with more prefill took no longer"),
    ],
)
def test_speed_that_cannot_be_measured_is_said_with_the_reason(make_log, client_of, kit, steps, doubt):
    log = make_log()
    engine = log.engine()
    for tokens, took in steps:
        log.step += 1
        log.write(engine, kit.step(previous_ns=took * SECOND, previous_tokens=tokens, previous_running=1))
    log.write(engine, run_of(kit, "restored", 4, copy_ns=80_000_000), at=4)
    log.write(engine, lookup(kit, "b", 100, 0, 64, restored_hit_tokens=64), at=5)
    body = get(client_of(log), "benefit")
    assert body["total"]["prefill"]["seconds_per_token"] is None
    assert (body["total"]["saved_s"], body["holds"]) == (None, None)
    assert body["verdict"].startswith(f"It cannot be told whether it holds here: {doubt}")


def test_versions_of_the_policy_are_priced_alike_and_add_up_to_the_total(make_log, client_of, kit):
    """The first version saw steps of 0.01 s a token, the second of 0.03 s; a copy of the second was not measured."""
    log = make_log()
    engine = log.engine()
    first, second = log.policy(mode="rescan"), log.policy(mode="tracked")
    for at, version, pace in ((1, first, 10_000_000), (11, second, 30_000_000)):
        log.write(engine, kit.event("policy", policy_version=version), at=at)
        for tokens in (100, 200, 300):
            log.step += 1
            log.write(engine, kit.step(previous_ns=tokens * pace, previous_tokens=tokens, previous_running=1))
        log.write(engine, run_of(kit, "restored", 4, copy_ns=80_000_000), at=at + 1)
        log.write(engine, lookup(kit, f"r{at}", 100, 0, 64, restored_hit_tokens=64), at=at + 2)
        log.write(engine, kit.event("missed", tail_hash=b"t", is_by_restore=True), at=at + 3)
    log.write(engine, run_of(kit, "restored", 2), at=16)
    body = get(client_of(log), "benefit")
    total, (one, two) = body["total"], body["policies"]
    # Both paces met at the same sizes: the line through all steps has their mean.
    assert total["prefill"]["seconds_per_token"] == pytest.approx(0.02)
    assert [p["prefill"]["seconds_per_token"] for p in (one, two)] == [pytest.approx(0.01), pytest.approx(0.03)]
    assert [p["saved_s"] for p in (one, two)] == [pytest.approx(64 * 0.02)] * 2
    # 0.02 s a block where it was measured; two more blocks at that.
    assert [p["spent_s"] for p in (one, two)] == [pytest.approx(0.08), pytest.approx(0.12)]
    for name in ("saved_s", "spent_s", "displaced_s"):
        assert one[name] + two[name] == pytest.approx(total[name]), name


def test_bytes_and_seconds_of_256_tokens_are_over_all_groups(make_log, client_of, kit):
    log = make_log()
    groups = (
        '[{"block_size": 32, "kind": "full", "is_prefix_cacheable": true}, '
        '{"block_size": 64, "kind": "sliding_window", "is_prefix_cacheable": true}]'
    )
    engine = log.engine(kv_groups=groups)
    log.write(engine, run_of(kit, "restored", 2, copy_ns=20_000_000), at=1)
    # 8 blocks of the one and 4 of the other, 1,000 bytes and 0.01 s each.
    seconds, size, _, _ = get(client_of(log), "benefit")["assumptions"]
    assert (seconds["measured"], size["measured"]) == (pytest.approx(0.12), 12_000)


@pytest.mark.parametrize("view", ["causes", "benefit", "glance"])
def test_empty_range_is_refused(make_log, client_of, view):
    response = client_of(make_log()).get(f"/restore/api/{view}", params={"since": T0, "until": T0})
    assert response.status_code == 422
    assert "empty" in response.json()["detail"]
