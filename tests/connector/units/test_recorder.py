"""The recorder: what is recorded is in the log once and in order, the engine's thread never waits, policies arrive."""

import sqlite3
import threading
import time
from contextlib import closing

import pytest

from connector import log, recorder
from connector.events import ChainExtended, Fault, RequestStarted, StepTaken
from connector.log import LogError
from connector.policy import Policy

STEP = StepTaken(1, 10, 0, 0, 0, 0, 0, 50, 0, 0, 90, 1000)


def note(n):
    return Fault("test", str(n), n)


@pytest.fixture
def impatient(monkeypatch):
    """A locked database is given up for this try after a moment, so that tries do fail."""
    monkeypatch.setattr("connector.connections.BUSY_TIMEOUT_MS", 20)


@pytest.fixture
def never_idle(monkeypatch):
    """The writer leaves it to the next step to say that a policy holds."""
    monkeypatch.setattr(recorder, "IDLE_SECONDS", 1e9)


# --- signing in and off ----------------------------------------------------------------------------------------------


def test_engine_signs_in_with_what_it_is_and_the_policy_that_holds(make_recorder, url, query):
    log.write_policy(log.open_policy_writer(url), {"mode": "rescan", "max_restore_blocks_per_step": 5}, "me")
    before = time.time_ns()
    engine = make_recorder()
    assert engine.policy.version == 1
    assert query(
        "SELECT id, engine_uid, model, num_gpu_blocks, num_cpu_blocks, block_bytes, restore_support, sqlite_version,"
        " kv_groups, stopped_wall_ns FROM engines"
    ) == [
        (
            engine.engine_id,
            "uid",
            "m",
            100,
            50,
            1000,
            "yes",
            sqlite3.sqlite_version,
            '[{"block_size": 16, "kind": "FullAttentionSpec", "is_prefix_cacheable": true, "window": null, '
            '"drops_last_block": false, "num_draft_tokens": 0}]',
            None,
        )
    ]
    ((started, beat),) = query("SELECT started_wall_ns, heartbeat_wall_ns FROM engines")
    assert before <= started <= beat <= time.time_ns()
    assert query(
        "SELECT seq, engine_id, step, policy_version, enabled, mode, max_restore_blocks_per_step, is_idle, reason"
        " FROM policy_applied"
    ) == [(1, engine.engine_id, 0, 1, 1, "rescan", 5, 1, "start")]


def test_each_start_is_an_engine_of_its_own(make_recorder, query):
    first, second = make_recorder(), make_recorder()
    assert first.engine_id != second.engine_id
    assert query("SELECT count(*) FROM engines") == [(2,)]


def test_engine_beats_without_steps_until_it_is_closed(make_recorder, query, eventually, monkeypatch):
    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 0.0)
    engine = make_recorder()

    def beat():
        return query("SELECT heartbeat_wall_ns FROM engines")[0][0]

    for _ in range(3):
        seen = beat()
        eventually(lambda seen=seen: beat() > seen)
    assert query("SELECT stopped_wall_ns FROM engines") == [(None,)]
    assert engine.close()
    ((stopped, last),) = query("SELECT stopped_wall_ns, heartbeat_wall_ns FROM engines")
    assert stopped == last


def test_log_that_cannot_be_written_is_said_at_start(make_recorder, locked, impatient):
    with pytest.raises(LogError, match=r"cannot write the log /.*log\.db: database is locked"):
        make_recorder()


def test_missing_log_is_said_at_start(make_recorder, url):
    log.path_of(url).unlink()
    with pytest.raises(LogError, match="there is no log at"):
        make_recorder()


# --- order and completeness ------------------------------------------------------------------------------------------


def test_close_flushes_everything_in_order_with_step_and_clocks(make_recorder, query):
    engine = make_recorder()
    before = (time.monotonic_ns(), time.time_ns())
    for n in range(500):
        if n % 5 == 0:
            assert engine.begin_step()[0] == n // 5 + 1
        assert engine.record(note(n))
        if n % 5 == 4:
            assert engine.end_step(STEP)
    assert engine.close()
    after = (time.monotonic_ns(), time.time_ns())
    rows = query("SELECT seq, num_faults, step, monotonic_ns, wall_ns FROM fault ORDER BY seq")
    assert [r[:3] for r in rows] == [(n + 2, n, n // 5 + 1) for n in range(500)]
    assert [before[0], *(r[3] for r in rows), after[0]] == sorted([before[0], *(r[3] for r in rows), after[0]])
    assert all(before[1] <= r[4] <= after[1] for r in rows)
    assert query("SELECT step FROM steps ORDER BY step") == [(n + 1,) for n in range(100)]


def test_closing_twice_is_the_same_as_once(make_recorder, query):
    engine = make_recorder()
    engine.record(note(1))
    assert engine.close()
    assert engine.close()
    assert query("SELECT count(*) FROM fault") == [(1,)]


def test_more_than_a_batch_is_written_in_order(make_recorder, query, monkeypatch):
    monkeypatch.setattr(recorder, "BATCH_ITEMS", 7)
    engine = make_recorder()
    for n in range(100):
        engine.record(note(n))
    assert engine.close()
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in range(100)]
    assert query("SELECT stopped_wall_ns IS NOT NULL FROM engines") == [(1,)]


def test_two_engines_write_one_log_each_in_its_own_order(make_recorder, query):
    engines = [make_recorder(), make_recorder()]

    def produce(engine):
        for n in range(2000):
            engine.record(note(n))

    threads = [threading.Thread(target=produce, args=[e]) for e in engines]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(e.close() for e in engines)
    for e in engines:
        assert query("SELECT num_faults FROM fault WHERE engine_id = ? ORDER BY seq", e.engine_id) == [
            (n,) for n in range(2000)
        ]


# --- the engine never waits ------------------------------------------------------------------------------------------


def test_recording_returns_while_another_holds_the_log_and_all_is_written_once_afterwards(
    make_recorder, url, query, eventually
):
    engine = make_recorder()
    with closing(sqlite3.connect(log.path_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # All of this happens while the lock is held: a call that waited for it would never come back.
        for n in range(300):
            step, _ = engine.begin_step()
            assert step == n + 1
            assert engine.record(note(n))
            assert engine.end_step(STEP)
        assert query("SELECT count(*) FROM fault") == [(0,)]
        other.execute("COMMIT")
    eventually(lambda: query("SELECT count(*) FROM fault") == [(300,)])
    assert engine.close()
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in range(300)]
    assert query("SELECT count(*) FROM steps") == [(300,)]
    assert engine.num_dropped == 0


def test_writes_that_fail_are_counted_said_once_and_repeated_without_loss(
    make_recorder, url, query, eventually, heard, impatient
):
    engine = make_recorder()
    with closing(sqlite3.connect(log.path_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for n in range(50):
            engine.record(note(n))
        eventually(lambda: engine.num_write_failures >= 3)
        for n in range(50, 100):
            engine.record(note(n))
        other.execute("COMMIT")
    eventually(lambda: query("SELECT count(*) FROM fault") == [(100,)])
    assert engine.close()
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in range(100)]
    assert len(heard.messages) == 1
    assert "Cannot write the log" in heard.messages[0]
    assert "database is locked" in heard.messages[0]


def test_full_queue_drops_counts_and_says_where_and_how_many(make_recorder, url, query, eventually):
    engine = make_recorder(capacity=10)
    expected = []
    dropped = 0

    def record(n):
        nonlocal dropped
        if engine.record(note(n)):
            if dropped:
                expected.append(("events_dropped", dropped))
                dropped = 0
            expected.append(("fault", n))
            return
        dropped += 1

    with closing(sqlite3.connect(log.path_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for n in range(100):
            record(n)
        # The writer can have taken one queue's worth before it met the lock.
        num_dropped = engine.num_dropped
        assert num_dropped >= 100 - 2 * 10
        other.execute("COMMIT")
    eventually(lambda: query("SELECT count(*) FROM fault")[0][0] == 100 - num_dropped)
    record(100)
    assert engine.close()
    found = query(
        "SELECT kind, coalesce(num_events, num_faults) FROM events WHERE kind != 'policy_applied' ORDER BY seq"
    )
    assert found == expected
    assert sum(n for kind, n in found if kind == "events_dropped") == engine.num_dropped == num_dropped


def test_drops_at_the_very_end_are_said_at_close(make_recorder, url, query):
    engine = make_recorder(capacity=5)
    with closing(sqlite3.connect(log.path_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        kept = [n for n in range(30) if engine.record(note(n))]
        other.execute("COMMIT")
    assert engine.close()
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in kept]
    assert query("SELECT sum(num_events) FROM events_dropped") == [(30 - len(kept),)]


def test_close_says_no_when_the_log_stays_locked(make_recorder, locked, query, heard, impatient):
    locked.execute("ROLLBACK")
    engine = make_recorder()
    locked.execute("BEGIN IMMEDIATE")
    engine.record(note(1))
    assert not engine.close(timeout=60.0)
    locked.execute("ROLLBACK")
    assert any("1 items are lost" in m for m in heard.messages)
    assert query("SELECT count(*) FROM fault") == [(0,)]
    assert query("SELECT stopped_wall_ns FROM engines") == [(None,)]


@pytest.mark.parametrize(
    "bad",
    [
        RequestStarted("half a surrogate pair \ud800", 1, 1, None, None),
        Fault("hook", "past 64 bits", 2**63),
        ChainExtended(None, 0, ("no bytes", object())),  # pyright: ignore[reportArgumentType]
        "no event at all",
    ],
)
def test_row_that_sqlite_refuses_costs_itself_alone(make_recorder, query, eventually, heard, bad):
    engine = make_recorder()
    engine.record(note(1))
    engine.record(bad)
    engine.record(note(2))
    eventually(lambda: engine.num_dropped == 1)
    engine.record(note(3))
    assert engine.close()
    assert query(
        "SELECT kind, coalesce(num_events, num_faults) FROM events WHERE kind != 'policy_applied' ORDER BY seq"
    ) == [("fault", 1), ("events_dropped", 1), ("fault", 2), ("fault", 3)]
    assert query("SELECT stopped_wall_ns IS NOT NULL FROM engines") == [(1,)]
    assert any("does not go into the log" in m for m in heard.messages)


def test_engine_whose_last_row_is_refused_still_signs_off(make_recorder, query, heard):
    engine = make_recorder()
    engine.record(Fault("hook", "\ud800", 1))
    assert engine.close()
    assert query("SELECT num_events FROM events_dropped") == [(1,)]
    assert query("SELECT stopped_wall_ns IS NOT NULL FROM engines") == [(1,)]


# --- the policy ------------------------------------------------------------------------------------------------------


def test_new_policy_holds_from_the_step_that_says_so(make_recorder, url, query, never_idle):
    engine = make_recorder()
    for _ in range(3):
        assert engine.begin_step()[1].version == 0
    log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
    assert engine.await_policy(1, timeout=60)
    step, versioned = engine.begin_step()
    assert (step, versioned.version, versioned.policy) == (4, 1, Policy(enabled=False))
    engine.begin_step()
    assert engine.close()
    assert query("SELECT step, policy_version, enabled, mode, is_idle, reason FROM policy_applied ORDER BY seq") == [
        (0, 0, 1, "tracked", 1, "start"),
        (4, 1, 0, "tracked", 0, "toggle"),
    ]


def test_idle_engine_answers_by_itself_and_only_once(make_recorder, url, query, eventually):
    engine = make_recorder()
    for _ in range(2):
        engine.begin_step()
    log.write_policy(log.open_policy_writer(url), {"mode": "rescan"}, "me")
    eventually(lambda: query("SELECT 1 FROM policy_applied WHERE policy_version = 1"))
    step, versioned = engine.begin_step()
    assert (step, versioned.version) == (3, 1)
    assert engine.close()
    assert query("SELECT step, is_idle, reason, mode FROM policy_applied WHERE policy_version = 1") == [
        (2, 1, "toggle", "rescan")
    ]


def test_every_step_obeys_the_policy_that_the_log_names_for_it(make_recorder, url, query, monkeypatch, eventually):
    # With no patience the writer answers whenever it can, so that both ways of saying race for every version.
    monkeypatch.setattr(recorder, "IDLE_SECONDS", 0.0)
    monkeypatch.setattr(recorder, "FLUSH_SECONDS", 0.0)
    engine = make_recorder()
    writer = log.open_policy_writer(url)
    obeyed = {}
    changing = threading.Thread(
        target=lambda: [log.write_policy(writer, {"max_restore_blocks_per_step": n}, "me") for n in range(40)]
    )
    changing.start()
    while not obeyed or obeyed[max(obeyed)] < 40:
        step, versioned = engine.begin_step()
        obeyed[step] = versioned.version
        # A step takes a while, in which the writer's thread runs.
        engine.await_policy(versioned.version + 1, timeout=0.001)
    changing.join()
    assert engine.close()
    said = query("SELECT step, is_idle, policy_version FROM policy_applied ORDER BY seq")
    versions = [v for _, _, v in said]
    assert versions == sorted(set(versions))
    assert versions[-1] == 40
    for step, version in obeyed.items():
        holding = [v for at, is_idle, v in said if (at < step if is_idle else at <= step)]
        assert holding[-1] == version


def test_policy_that_came_while_the_log_was_locked_is_not_missed(
    make_recorder, locked, query, eventually, impatient, never_idle
):
    locked.execute("ROLLBACK")
    engine = make_recorder()
    for n in (1, 2):  # between the two writes the engine has looked for a policy once
        engine.record(note(n))
        eventually(lambda n=n: query("SELECT count(*) FROM fault") == [(n,)])
    locked.execute("BEGIN IMMEDIATE")
    engine.record(note(3))
    eventually(lambda: engine.num_write_failures >= 2)
    locked.execute("INSERT INTO policies VALUES (1, 1, 'me', 0, 'rescan', 3, 'lru')")
    locked.execute("COMMIT")
    assert engine.await_policy(1, timeout=30)
    assert engine.policy.policy == Policy(False, "rescan", 3)


def test_policy_row_out_of_bounds_is_not_obeyed_and_recording_goes_on(
    make_recorder, locked, url, query, heard, eventually
):
    locked.execute("ROLLBACK")
    engine = make_recorder()
    locked.execute("INSERT INTO policies VALUES (1, 1, 'sql', 1, 'fastest', 3, 'lru')")
    eventually(heard.anything.is_set)
    assert "mode must be one of rescan, tracked, not 'fastest'" in heard.messages[0]
    assert engine.begin_step()[1].version == 0
    engine.record(note(1))
    locked.execute("DELETE FROM policies")
    assert log.write_policy(log.open_policy_writer(url), {"mode": "rescan"}, "me").version == 2
    assert engine.await_policy(2, timeout=60)
    assert engine.close()
    assert query("SELECT num_faults FROM fault") == [(1,)]
    assert engine.num_write_failures == 0


def test_policy_row_out_of_bounds_at_start_is_said(make_recorder, locked):
    locked.execute("INSERT INTO policies VALUES (1, 1, 'sql', 1, 'fastest', 3, 'lru')")
    locked.execute("COMMIT")
    with pytest.raises(LogError, match=r"newest row of policies .* mode must be one of .*; delete that row"):
        make_recorder()


def test_awaiting_a_policy_that_does_not_come_ends(make_recorder):
    assert not make_recorder().await_policy(1, timeout=0.0)


# --- checkpoints -----------------------------------------------------------------------------------------------------


def test_exactly_one_of_two_engines_checkpoints_and_the_other_takes_over(make_recorder, url, eventually, monkeypatch):
    monkeypatch.setattr(recorder, "HEARTBEAT_SECONDS", 0.0)
    first = make_recorder()
    eventually(lambda: first.is_checkpointer)
    second = make_recorder()
    for n in range(5):
        second.record(note(n))
        assert (first.is_checkpointer, second.is_checkpointer) == (True, False)
        assert log.hold_checkpoint_lock(url) is None
    assert first.close()
    eventually(lambda: second.is_checkpointer)
    assert log.hold_checkpoint_lock(url) is None


def test_wal_stays_small_while_an_engine_writes_much(make_recorder, url, query, eventually):
    engine = make_recorder()
    eventually(lambda: engine.is_checkpointer)
    megabyte = "x" * 1_000_000
    for n in range(1, 25):
        engine.record(Fault("test", megabyte, n))
        eventually(lambda n=n: query("SELECT count(*) FROM fault") == [(n,)])
    # A checkpoint is due at 1,000 pages of 4,096 bytes, and a reader that is just looking may put it off for a while.
    assert log.path_of(url).with_name("log.db-wal").stat().st_size < 12_000_000
    assert log.path_of(url).stat().st_size > 12_000_000


# --- a file that goes away -------------------------------------------------------------------------------------------


def test_engine_whose_log_was_deleted_begins_a_new_one_and_keeps_its_policy(make_recorder, url, query, eventually):
    engine = make_recorder()
    version = log.write_policy(log.open_policy_writer(url), {"mode": "rescan"}, "me").version
    assert engine.await_policy(version)
    engine.record(note(1))
    eventually(lambda: query("SELECT count(*) FROM fault") == [(1,)])
    gaps = engine.num_gaps

    for name in ("", "-wal", "-shm"):
        log.path_of(url).with_name(log.path_of(url).name + name).unlink(missing_ok=True)
    eventually(lambda: engine.num_reopened == 1)
    eventually(lambda: engine.policy.policy.mode == "rescan")
    engine.record(note(2))
    assert engine.close()

    assert query("SELECT num_faults FROM fault") == [(2,)]
    assert query("SELECT count(*) FROM engines WHERE stopped_wall_ns IS NOT NULL") == [(1,)]
    assert query("SELECT mode FROM policies") == [("rescan",)]
    assert engine.num_gaps > gaps  # so that chains that the old log knew are told again


def test_busy_engine_is_not_answered_for(make_recorder, url, query, eventually):
    engine = make_recorder()
    engine.num_unfinished = 1
    step, _ = engine.begin_step()
    version = log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me").version
    assert engine.await_policy(version)
    # Beats go on, and well past the time after which an idle engine would be answered for.
    ((before,),) = query("SELECT heartbeat_wall_ns FROM engines")
    eventually(lambda: query("SELECT heartbeat_wall_ns FROM engines")[0][0] > before + 1e9)
    assert query("SELECT count(*) FROM policy_applied WHERE policy_version = 1") == [(0,)]
    engine.begin_step()
    engine.close()
    assert query("SELECT step, is_idle FROM policy_applied WHERE policy_version = 1") == [(step + 1, 0)]
