"""Engines, totals and the timeline, with sums worked out by hand."""

import time

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def lookup(kit, request, tokens, gpu, cpu, **changes):
    return kit.event("lookup", request_id=request, num_tokens=tokens, gpu_hit_tokens=gpu, cpu_hit_tokens=cpu, **changes)


def filled(make_log, kit):
    """Two lookups at 1 s and 11 s, blocks around them; the engine dies at 60 s."""
    log = make_log()
    engine = log.engine()
    h = [kit.block_hash("a", i) for i in range(3)]

    def run(first, last):
        return {"num_blocks": last - first + 1, "head_hash": h[first], "tail_hash": h[last]}

    log.write(engine, kit.event("policy"), at=0)
    log.step = 1
    log.write(engine, kit.event("started", request_id="a"), lookup(kit, "a", 100, 0, 0), at=1)
    log.write(engine, kit.event("stored", **run(0, 2), cpu_block_ids=(0, 1, 2), num_bytes=3000), at=2)
    log.write(engine, kit.step(cpu_blocks_cached=3), at=2)
    log.write(engine, kit.event("finished", request_id="a", ttft_ns=500), at=3)
    log.step = 2
    log.write(engine, kit.event("started", request_id="b"), lookup(kit, "b", 300, 64, 96), at=11)
    log.write(engine, kit.event("loaded", request_id="b", **run(0, 2), cpu_block_ids=(0, 1, 2)), at=11.5)
    log.write(engine, kit.event("evicted", **run(0, 1), cpu_block_ids=(0, 1)), at=12)
    log.write(engine, kit.event("restored", **run(0, 0), cpu_block_ids=(0,), num_bytes=700), at=13)
    log.write(engine, kit.step(cpu_blocks_cached=2), at=13)
    log.write(engine, kit.event("policy", enabled=False, policy_version=1, reason="toggle"), at=14)
    # After a preemption: the same prompt again, which is no new traffic.
    log.write(engine, lookup(kit, "b", 310, 0, 32, is_resumed=True), at=15)
    log.write(engine, kit.event("finished", request_id="b", ttft_ns=900), at=16)
    return log, engine


def test_summary_of_the_whole_log(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    body = client_of(log).get("/restore/api/summary").json()
    assert body["tokens"] == {
        "prompt_tokens": 400,
        "gpu_hit_tokens": 64,
        "cpu_hit_tokens": 96,
        "restored_hit_tokens": 0,
        "computed_tokens": 240,
        "hit_rate": 0.4,
    }
    assert (body["stored_blocks"], body["restored_blocks"], body["evicted_blocks"], body["loaded_blocks"]) == (
        3,
        1,
        2,
        3,
    )
    assert (body["stored_bytes"], body["restored_bytes"], body["loaded_bytes"]) == (3000, 700, 1000)
    assert (body["ttft_p50_ns"], body["ttft_p90_ns"]) == (500, 900)
    assert body["num_requests"] == 2
    assert body["num_running"] == 0
    assert body["cpu_tier"] is None
    assert body["last_seq"] == 13


def test_summary_since_a_moment_counts_what_came_at_it_and_after(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    body = client_of(log).get(f"/restore/api/summary?since={T0 + 11 * SECOND}").json()
    assert body["tokens"]["prompt_tokens"] == 300
    assert body["stored_blocks"] == 0
    assert body["num_requests"] == 1
    assert body["ttft_p50_ns"] == 900


def test_summary_until_a_moment_counts_what_came_before_it(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    client = client_of(log)

    def read(since, until):
        query = {"since": T0 + round(since * SECOND), "until": T0 + round(until * SECOND)}
        return client.get("/restore/api/summary", params=query).json()

    first = read(0, 11)
    assert (first["since_wall_ns"], first["until_wall_ns"]) == (T0, T0 + 11 * SECOND)
    assert (first["num_requests"], first["tokens"]["prompt_tokens"], first["stored_blocks"]) == (1, 100, 3)
    assert (first["ttft_p50_ns"], first["ttft_p90_ns"]) == (500, 500)
    assert (first["loaded_blocks"], first["evicted_blocks"], first["restored_blocks"]) == (0, 0, 0)
    assert first["last_minute"]["prompt_tokens"] == 100
    second = read(11, 16)
    assert (second["num_requests"], second["tokens"]["prompt_tokens"], second["evicted_blocks"]) == (1, 300, 2)
    # The end of b at 16 s is not in it.
    assert second["ttft_p50_ns"] is None


def test_summary_of_a_piece_is_the_sum_of_its_timeline(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    client = client_of(log)
    query = {"since": T0 + 10 * SECOND, "until": T0 + 20 * SECOND}
    sums = client.get("/restore/api/summary", params=query).json()
    points = client.get("/restore/api/timeline", params={**query, "bucket": 5}).json()["points"]
    for name in ("stored_blocks", "restored_blocks", "evicted_blocks", "loaded_blocks"):
        assert sums[name] == sum(p[name] for p in points)
    for name in ("prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "computed_tokens"):
        assert sums["tokens"][name] == sum(p[name] or 0 for p in points)


def test_summary_of_an_empty_range_is_refused(make_log, client_of):
    client = client_of(make_log())
    for since in (T0, T0 + 1):
        response = client.get("/restore/api/summary", params={"since": since, "until": T0})
        assert response.status_code == 422
        assert "since" in response.json()["detail"]
    assert client.get("/restore/api/summary?until=x").status_code == 422


def test_summary_of_an_empty_log_has_no_rate(make_log, client_of):
    body = client_of(make_log()).get("/restore/api/summary").json()
    assert body["tokens"]["hit_rate"] is None
    assert body["ttft_p50_ns"] is None
    assert body["last_fault"] is None
    assert body["last_seq"] == 0


def test_percentiles_are_nearest_ranks(make_log, client_of, kit):
    log = make_log()
    engine = log.engine()
    for ttft in (70, 10, 40, 100, 20, 90, 30, 80, 60, 50, None):
        log.write(engine, kit.event("finished", ttft_ns=ttft))
    body = client_of(log).get("/restore/api/summary").json()
    assert (body["ttft_p50_ns"], body["ttft_p90_ns"]) == (50, 90)


def test_tier_and_running_requests_of_live_engines_are_summed(make_log, client_of, kit):
    log = make_log()
    now = (time.time_ns() - T0) / SECOND
    one = log.live_engine(num_cpu_blocks=50)
    two = log.live_engine(num_cpu_blocks=30)
    log.engine(num_cpu_blocks=1000)
    for step, cached in ((1, 9), (2, 10)):
        log.step = step
        log.write(one, kit.step(cpu_blocks_cached=cached, cpu_blocks_in_flight=2, num_restorable=4), at=now - 2)
    for request in "xyz":
        log.write(one, kit.event("started", request_id=request), at=now - 2)
    log.write(one, kit.event("finished", request_id="x"), at=now - 1)
    body = client_of(log).get("/restore/api/summary").json()
    assert body["num_running"] == 2
    assert body["cpu_tier"] == {
        "num_blocks": 80,
        "free_blocks": 68,
        "cached_blocks": 10,
        "in_flight_blocks": 2,
        "restorable_blocks": 4,
        "block_bytes": 1000,
    }
    assert two != one


def test_faults_and_dropped_events_are_counted(make_log, client_of, kit):
    from connector.events import BlocksDropped, EventsDropped, Fault

    log = make_log()
    one, two = log.engine(), log.engine()
    log.write(one, Fault("on_step", "first", 1), at=1)
    log.write(one, Fault("on_step", "tenth", 10), EventsDropped(7), at=20)
    log.write(two, Fault("on_load", "last", 2), EventsDropped(1), BlocksDropped("r", 0, 3, 5, "cpu_full"), at=30)
    client = client_of(log)
    body = client.get("/restore/api/summary").json()
    assert (body["num_faults"], body["num_events_dropped"], body["dropped_blocks"]) == (12, 8, 5)
    assert body["last_fault"] == "on_load: last"
    before = client.get(f"/restore/api/summary?until={T0 + 25 * SECOND}").json()
    assert (before["num_faults"], before["num_events_dropped"], before["last_fault"]) == (10, 7, "on_step: tenth")
    assert client.get(f"/restore/api/summary?since={T0 + 10 * SECOND}").json()["num_faults"] == 11


def timeline(client, **query):
    response = client.get("/restore/api/timeline", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_timeline_sums_each_bucket(make_log, client_of, kit):
    log, engine = filled(make_log, kit)
    body = timeline(client_of(log), since=T0, until=T0 + 30 * SECOND, bucket=10)
    assert (body["since_wall_ns"], body["until_wall_ns"], body["bucket_ns"]) == (T0, T0 + 30 * SECOND, 10 * SECOND)
    first, second, third = body["points"]
    assert first == {
        "wall_ns": T0, "prompt_tokens": 100, "gpu_hit_tokens": 0, "cpu_hit_tokens": 0, "restored_hit_tokens": 0,
        "computed_tokens": 100, "lost_tokens": 0, "hit_rate": 0.0, "stored_blocks": 3, "restored_blocks": 0,
        "evicted_blocks": 0, "loaded_blocks": 0, "cpu_blocks_cached": 3, "engine_up": True,
    }  # fmt: skip
    assert second["computed_tokens"] == 140
    assert second["hit_rate"] == 160 / 300
    assert (second["restored_blocks"], second["evicted_blocks"], second["loaded_blocks"]) == (1, 2, 3)
    assert second["cpu_blocks_cached"] == 2
    # No lookup: null, not 0. The engine idles, so its tier stays as it is.
    assert third["prompt_tokens"] is None
    assert third["hit_rate"] is None
    assert third["stored_blocks"] == 0
    assert third["cpu_blocks_cached"] == 2
    assert [m["label"] for m in body["policy_markers"]] == ["tracked", "off"]
    assert (body["policy_markers"][1]["wall_ns"], body["policy_markers"][1]["engine_id"]) == (T0 + 14 * SECOND, engine)
    assert body["policy_at_start"] is None


def test_timeline_knows_the_state_before_its_start(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    body = timeline(client_of(log), since=T0 + 20 * SECOND, until=T0 + 30 * SECOND, bucket=5)
    assert body["policy_at_start"] == "off"
    assert body["policy_markers"] == []
    assert [p["cpu_blocks_cached"] for p in body["points"]] == [2, 2]


def test_timeline_shows_when_no_engine_was_up(make_log, client_of, kit):
    log, _ = filled(make_log, kit)  # up from 0 s to 60 s
    second = log.engine(started_wall_ns=T0 + 100 * SECOND, heartbeat_wall_ns=T0 + 130 * SECOND,
                        stopped_wall_ns=T0 + 119 * SECOND)  # fmt: skip
    log.write(second, kit.step(cpu_blocks_cached=1), at=105)
    body = timeline(client_of(log), since=T0 - 20 * SECOND, until=T0 + 140 * SECOND, bucket=20)
    assert [p["engine_up"] for p in body["points"]] == [False, True, True, True, True, False, True, False]
    assert [p["cpu_blocks_cached"] for p in body["points"]] == [None, 2, 2, 2, 2, None, 1, None]


def test_range_is_rounded_outwards_to_whole_buckets(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    body = timeline(client_of(log), since=T0 + 4 * SECOND, until=T0 + 12 * SECOND, bucket=10)
    assert (body["since_wall_ns"], body["until_wall_ns"]) == (T0, T0 + 20 * SECOND)
    assert body["points"][0]["prompt_tokens"] == 100


def test_default_range_of_a_recorded_log_ends_where_it_ends(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    body = timeline(client_of(log))
    assert body["until_wall_ns"] - T0 - 60 * SECOND <= 5 * SECOND
    assert body["bucket_ns"] == 5 * SECOND
    assert sum(p["prompt_tokens"] or 0 for p in body["points"]) == 400


def test_default_range_inside_a_server_ends_now(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    before = time.time_ns()
    assert timeline(client_of(log, is_recorded=False))["until_wall_ns"] >= before


def test_range_that_cannot_be_drawn_is_refused(make_log, client_of):
    client = client_of(make_log())
    too_fine = client.get("/restore/api/timeline", params={"since": T0, "until": T0 + 2001 * SECOND, "bucket": 1})
    assert too_fine.status_code == 422
    assert "2001 points" in too_fine.json()["detail"]
    empty = client.get("/restore/api/timeline", params={"since": T0, "until": T0})
    assert empty.status_code == 422
    assert "empty" in empty.json()["detail"]
    assert client.get("/restore/api/timeline?bucket=0").status_code == 422
    assert client.get("/restore/api/timeline?since=-1").status_code == 422
    most = timeline(client, since=T0, until=T0 + 2000 * SECOND, bucket=1)
    assert len(most["points"]) == 2000


def test_long_ranges_get_buckets_that_fit(make_log, client_of):
    client = client_of(make_log())
    for seconds in (1, 900, 86_400, 86_400 * 365, 86_400 * 365 * 30):
        assert len(timeline(client, since=T0, until=T0 + seconds * SECOND)["points"]) <= 241


def test_engines_are_live_while_their_heart_beats(make_log, client_of):
    log = make_log()
    killed = log.engine()
    stopped = log.live_engine(stopped_wall_ns=time.time_ns())
    live = log.live_engine()
    body = client_of(log).get("/restore/api/engines").json()
    assert [(e["id"], e["is_live"]) for e in body] == [(live, True), (stopped, False), (killed, False)]
    assert body[0]["kv_groups"] == [{"block_size": 32, "kind": "full_attention", "is_prefix_cacheable": True}]


def test_an_engine_is_not_live_by_a_heartbeat_that_is_still_to_come(make_log, client_of):
    """The clock was set back by ten minutes: one engine was killed before that, one goes on and has beaten since."""
    log = make_log()
    now = time.time_ns()
    killed = log.engine(started_wall_ns=now, heartbeat_wall_ns=now + 600 * SECOND)
    live = log.live_engine()
    client = client_of(log)
    body = client.get("/restore/api/engines").json()
    assert [(e["id"], e["is_live"]) for e in body] == [(live, True), (killed, False)]
    assert client.get("/restore/healthz").json()["num_live_engines"] == 1


def test_range_of_a_summary_is_rounded_outwards_to_whole_seconds(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    client = client_of(log)
    # Lookups at 1 s and 11 s: half seconds around them hold both, and a range that ends at one does not hold it.
    query = {"since": T0 + SECOND + SECOND // 2, "until": T0 + 11 * SECOND + 1}
    body = client.get("/restore/api/summary", params=query).json()
    assert (body["since_wall_ns"], body["until_wall_ns"]) == (T0 + SECOND, T0 + 12 * SECOND)
    assert body["tokens"]["prompt_tokens"] == 400
    body = client.get("/restore/api/summary", params={**query, "until": T0 + 11 * SECOND}).json()
    assert body["tokens"]["prompt_tokens"] == 100


def test_bucket_is_rounded_up_to_whole_seconds(make_log, client_of, kit):
    log, _ = filled(make_log, kit)
    client = client_of(log)
    for given, seconds in ((0.25, 1), (2.5, 3), (5, 5)):
        assert timeline(client, since=T0, until=T0 + 15 * SECOND, bucket=given)["bucket_ns"] == seconds * SECOND
