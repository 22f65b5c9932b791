"""The counterfactual over the API and from the command line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from app import shadow_process
from app.aside import start_aside
from app.cli import main
from app.errors import ConflictError
from app.whatif import play_aside
from connector.events import CursorMoved, Lookup, PolicyApplied, RequestFinished
from connector.log import LogError

FULL = '[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true, "window": null}]'


@pytest.fixture
def log(make_log):
    return make_log()


@pytest.fixture
def client(client_of, log):
    return client_of(log)


def caught_up(client, *, engine=None, seconds=60):
    """What the shadows say once their process has read the whole log, of a given engine."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = client.get("/restore/api/shadows?since=0").json()
        if found["is_caught_up"] and engine in (None, found["engine_id"]):
            return found
        # Nothing tells a client that they are: it asks again, as the dashboard does.
        threading.Event().wait(0.05)
    raise AssertionError("the shadows have not read the log")


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


@pytest.mark.parametrize("policy", ["off", "tracked", "adaptive", "adaptive-off", "unlimited"])
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
    caught_up(client)
    assert context.shadows.double_tier(0, 2**62, 258) == pytest.approx(128 / 258)
    assert context.shadows.double_tier(0, 2**62, 300) is None


def test_newest_engine_is_followed_from_its_first_row(client, told, log):
    """The second engine was asked for 65 tokens and gave 32 of them from the GPU. What came before is not its."""
    assert caught_up(client, engine=told)["hit_rate"] == 0
    newest = log.engine(kv_groups=FULL)
    log.chain(newest, hashes("b", 2))
    log.write(newest, Lookup("third", 65, 32, 0, 0, 2, hashes("b", 2)[-1], 1, hashes("b", 2)[1], 1, False, False), at=9)
    found = caught_up(client, engine=newest)
    assert found["hit_rate"] == pytest.approx(32 / 65)
    assert {s["name"]: s["hit_rate"] for s in found["shadows"]} == dict.fromkeys(
        (s["name"] for s in found["shadows"]), pytest.approx(32 / 65)
    )


def test_another_log_in_the_place_of_the_first_is_followed_anew(client, told, log, make_log):
    assert caught_up(client, engine=told)["shadows"]
    log.writer.dispose()
    for end in ("-wal", "-shm"):
        Path(log.path + end).unlink(missing_ok=True)
    other = make_log("other.db")
    # The same number, so that only what was told of it says which file it is of.
    assert other.engine(kv_groups=FULL) == told
    other.writer.dispose()
    Path(other.path).replace(log.path)
    assert caught_up(client)["hit_rate"] is None


def test_process_that_was_killed_is_started_again(client, told):
    before = caught_up(client)
    os.kill(client.app.state.context.shadows.pid, signal.SIGKILL)
    assert caught_up(client) == before


def test_process_that_dies_again_and_again_is_not_started_with_each_question(client, told, monkeypatch, caplog):
    started = []

    def start(module, *arguments):
        # It ends at once, with a line that was cut.
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", "import sys; sys.stdout.write('{'); sys.exit(3)"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
            )
        )  # fmt: skip
        return started[-1]

    monkeypatch.setattr("app.shadows.start_aside", start)
    for _ in range(8):
        assert client.get("/restore/api/shadows").json()["shadows"] == []
        started[-1].wait(60)
    assert len(started) == 2
    assert "ended with status 3" in caplog.text


def test_process_that_nobody_asks_says_that_it_does_not_know_the_end(told, log):
    following = shadow_process.Following()
    with log.writer.connect() as conn:
        assert following.take(conn)[1].is_caught_up
        paused = following.pauses()
        assert (paused.is_caught_up, paused.sums, following.pauses()) == (False, {}, None)
        assert following.take(conn)[1].is_caught_up


def test_engine_whose_first_piece_failed_begins_anew_all_the_same(told, log, monkeypatch):
    following = shadow_process.Following()
    with log.writer.connect() as conn:
        assert following.take(conn)[1].begins
    newest = log.engine(kv_groups=FULL)
    with log.writer.connect() as conn:
        with monkeypatch.context() as patch:
            patch.setattr("app.shadow_feed.read_rows", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                following.take(conn)
        found = following.take(conn)[1]
        assert (found.begins, found.engine.engine_id) == (True, newest)


def test_what_if_ends_with_the_server(told, log):
    with pytest.raises(ConflictError, match="the server ends"):
        play_aside(log.path, "off", None, None, lambda: True)


def test_what_if_over_a_log_that_is_none_says_so(tmp_path):
    path = tmp_path / "log.db"
    path.write_bytes(b"no log" * 1000)
    with pytest.raises(LogError):
        play_aside(str(path), "off", None, None)


def test_process_ends_when_nobody_holds_its_input(told, log):
    """As when the server is killed, with what it told unread."""
    with start_aside("app.shadow_process", log.path) as process:
        assert json.loads(process.stdout.readline())["engine"]["engine_id"] == told
        process.stdin.close()
        assert process.wait(60) == 0


def test_process_has_the_lowest_priority(client, told):
    caught_up(client)
    assert os.getpriority(os.PRIO_PROCESS, client.app.state.context.shadows.pid) == 19


def test_log_that_cannot_be_read_is_said_and_read_when_it_can(tmp_path, make_log):
    path = tmp_path / "late.db"
    with start_aside("app.shadow_process", str(path)) as process:
        assert "late.db" in json.loads(process.stdout.readline())["problem"]
        there = make_log("other.db")
        there.writer.dispose()
        Path(there.path).replace(path)
        assert json.loads(process.stdout.readline())["problem"] is None


def test_command_prints_the_same_as_the_route(client, told, log, capsys):
    assert main(["whatif", "--db", log.path, "--policies", "off", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == client.get("/restore/api/whatif?policies=off").json()


def test_command_refuses_an_unknown_policy_in_one_line(told, log, capsys):
    assert main(["whatif", "--db", log.path, "--policies", "best"]) == 2
    assert capsys.readouterr().err.strip() == (
        "vllm-restore: there is no policy 'best' to play; there are off, tracked, adaptive, adaptive-off, unlimited"
    )


def test_sentence_has_the_larger_tier_under_adaptive_too_but_not_without_its_re_store(client, told, log):
    """No shadow of twice the size follows `adaptive-off`; the one of the engine's own size does."""
    log.step = 50
    log.write(told, PolicyApplied(2, True, "tracked", 64, False, "toggle", "adaptive"), at=6)
    found = caught_up(client)
    double_tier = client.app.state.context.shadows.double_tier
    assert double_tier(0, 2**62, 258) == pytest.approx(128 / 258)
    assert {s["name"]: s["policy"] for s in found["shadows"]} == {
        "active": "adaptive",
        "off": "off",
        "tracked": "tracked",
        "adaptive": "adaptive",
        "unlimited": "unlimited",
    }
    log.step += 1
    last = log.write(told, PolicyApplied(3, False, "tracked", 64, False, "toggle", "adaptive"), at=7)
    while found["last_seq"] < last:
        found = caught_up(client)
    assert found["shadows"][0]["policy"] == "adaptive-off"
    assert double_tier(0, 2**62, 258) is None
