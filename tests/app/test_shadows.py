"""The counterfactual over the API and from the command line."""

import json

import pytest

from app.cli import main
from connector.events import CursorMoved, Lookup, RequestFinished

FULL = '[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true, "window": null}]'


@pytest.fixture
def log(make_log):
    return make_log()


@pytest.fixture
def client(client_of, log):
    return client_of(log)


def hashes(name, count):
    return tuple(f"{name}{i}".encode().ljust(32, b".") for i in range(count))


@pytest.fixture
def told(log):
    """One prompt of 4 blocks of 32 tokens that is asked for twice; the tier gave nothing the second time, though it has
    room for all."""
    engine = log.engine(kv_groups=FULL)
    log.chain(engine, hashes("a", 4))
    tail = hashes("a", 4)[-1]
    for number, request_id in enumerate(("first", "second")):
        log.step = 10 * (number + 1)
        found = Lookup(request_id, 129, 0, 0, 0, 4, tail, 0, hashes("a", 1)[0], 1, False, False)
        log.write(engine, found, at=number)
        log.step += 1
        log.write(engine, CursorMoved(request_id, 0, 0, 4))
        log.step += 1
        log.write(engine, RequestFinished(request_id, "FINISHED_STOPPED", 129, 1, 4, tail, 1, 1))
    log.step = 40
    log.write(engine, CursorMoved("second", 0, 4, 4), at=5)
    return engine


@pytest.mark.parametrize("policy", ["off", "tracked", "unlimited"])
def test_what_if_finds_the_second_prompt_whole(client, told, policy):
    """128 of the second's 129 tokens: half of all, less one token each."""
    (row,) = client.get(f"/restore/api/whatif?policies={policy}").json()["rows"]
    assert row["cpu_hit_tokens"] == 128
    assert row["hit_rate"] == pytest.approx(128 / 258)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("policies=best", "best"),
        ("policies=", "at least one"),
        ("cpu_gib=0", "'0' is no size"),
        ("cpu_gib=nan", "'nan' is no size"),
        ("cpu_gib=-1", "'-1' is no size"),
        ("cpu_gib=one", "'one' is no size"),
        ("cpu_gib=0.000000001", "hold no block"),
        ("cpu_gib=1e30", "more than can be played"),
        ("engine=9", "no engine 9"),
    ],
)
def test_what_cannot_be_played_is_refused_with_its_reason(client, told, query, word):
    answer = client.get(f"/restore/api/whatif?{query}")
    assert answer.status_code == 422
    assert word in answer.json()["detail"]


def test_log_without_a_lookup_says_that_there_is_nothing_to_play(client, log):
    log.engine(kv_groups=FULL)
    answer = client.get("/restore/api/whatif")
    assert answer.status_code == 422
    assert "nothing to play" in answer.json()["detail"]


def test_tier_with_room_for_all_that_was_seen_costs_no_more_than_what_was_seen(client, told):
    """A million GiB would be 10^12 blocks of 1000 bytes."""
    row = client.get("/restore/api/whatif?policies=off&cpu_gib=1000000").json()["rows"][0]
    assert row["cpu_blocks"] == 1_000_000 * 2**30 // 1000
    assert row["hit_rate"] == pytest.approx(128 / 258)


def test_command_refuses_an_engine_beyond_all_numbers(told, log, capsys):
    assert main(["whatif", "--db", log.path, "--engine", "9" * 20]) == 2
    assert f"there is no engine {'9' * 20} in this log" in capsys.readouterr().err


def test_sentence_has_no_larger_tier_where_the_shadow_saw_only_a_part(client, told, log):
    """The shadow follows the newest engine; the range has another's traffic too."""
    context = client.app.state.context
    context.shadows._take()
    assert context.shadows.double_tier(0, 2**62, 258) == pytest.approx(128 / 258)
    assert context.shadows.double_tier(0, 2**62, 300) is None


def test_command_prints_the_same_as_the_route(client, told, log, capsys):
    assert main(["whatif", "--db", log.path, "--policies", "off", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == client.get("/restore/api/whatif?policies=off").json()


def test_command_refuses_an_unknown_policy_in_one_line(told, log, capsys):
    assert main(["whatif", "--db", log.path, "--policies", "best"]) == 2
    assert capsys.readouterr().err.strip() == (
        "vllm-restore: there is no policy 'best' to play; there are off, tracked, adaptive, adaptive-off, unlimited"
    )
