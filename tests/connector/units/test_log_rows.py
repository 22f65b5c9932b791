"""What is appended comes back: every kind of event through its view, in order; hashes; steps; the policy's rows."""

import json
import sqlite3
import time
import types
from contextlib import closing
from dataclasses import fields
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from connector import log, tables
from connector.events import EVENT_TYPES, ChainExtended, Event, EventsDropped, Fault, Lookup, RequestStarted, StepTaken
from connector.policy import Policy, PolicyError, VersionedPolicy

CALM = settings(
    deadline=None,
    max_examples=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
HEADER = ["seq", "engine_id", "step", "monotonic_ns", "wall_ns"]
CLOCKS = st.integers(0, 2**63 - 1)
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(st.characters(exclude_categories=["Cs"])),
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bytes: st.binary(),
    type(None): st.none(),
}


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is tuple:
        return st.lists(st.integers(0, 2**31), max_size=5).map(tuple)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([of_type(h) for h in get_args(hint)])
    return BY_TYPE[hint]


def events_of(kind: type[Any]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: of_type(hints[f.name]) for f in fields(kind)})


ANY_EVENT = st.one_of([events_of(kind) for kind in EVENT_TYPES])
STAMPED = st.tuples(st.integers(0, 2**31), CLOCKS, CLOCKS, ANY_EVENT)


def as_row(event: Event) -> list[Any]:
    """As SQLite gives it: an array is JSON text, a boolean 0 or 1."""
    values = [getattr(event, f.name) for f in fields(event)]
    return [json.dumps(v, separators=(",", ":")) if isinstance(v, tuple) else v for v in values]


def test_every_kind_of_event_is_covered():
    # By name: a slotted dataclass is made twice, and the first one stays among the subclasses.
    assert {kind.__name__ for kind in EVENT_TYPES} == {kind.__name__ for kind in Event.__subclasses__()}
    assert len({kind.kind for kind in EVENT_TYPES}) == len(EVENT_TYPES)


@CALM
@given(st.lists(st.lists(STAMPED, max_size=12), max_size=4))
def test_appended_events_come_back_in_order_through_the_view_of_their_kind(url, batches):
    writer = log.open_writer(url)
    with writer.begin() as conn:
        first = log.append(conn, 7, [(0, 0, 0, EventsDropped(1))])
    last = first
    for batch in batches:
        with writer.begin() as conn:
            last = log.append(conn, 7, batch)
    items = [item for batch in batches for item in batch]
    assert last == first + len(items)
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        kinds = conn.execute("SELECT seq, kind FROM events WHERE seq > ? ORDER BY seq", [first]).fetchall()
        assert kinds == [(first + 1 + i, item[3].kind) for i, item in enumerate(items)]
        for kind in EVENT_TYPES:
            found = conn.execute(f"SELECT * FROM {kind.kind} WHERE seq > ? ORDER BY seq", [first])
            assert [c[0] for c in found.description] == HEADER + [f.name for f in fields(kind)]
            assert [list(row) for row in found] == [
                [first + 1 + i, 7, step, mono, wall, *as_row(event)]
                for i, (step, mono, wall, event) in enumerate(items)
                if type(event) is kind
            ]


@CALM
@given(STAMPED)
def test_event_fills_no_column_of_another_kind(url, stamped):
    with log.open_writer(url).begin() as conn:
        seq = log.append(conn, 7, [stamped])
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        conn.row_factory = sqlite3.Row
        row = conn.execute("SELECT * FROM events WHERE seq = ?", [seq]).fetchone()
    own = {*HEADER, "kind", *(f.name for f in fields(stamped[3]))}
    assert {name for name in row.keys() if row[name] is not None} <= own  # noqa: SIM118 - a Row iterates over values
    assert set(row.keys()) > own


def test_order_is_the_sequence_number_whatever_the_clocks_say(url, query):
    items = [(9 - i, 1000 - i, 5000 - 7 * i, Fault("hook", str(i), i)) for i in range(5)]
    with log.open_writer(url).begin() as conn:
        log.append(conn, 1, items)
    assert query("SELECT message FROM fault ORDER BY seq") == [("0",), ("1",), ("2",), ("3",), ("4",)]


def test_sequence_numbers_are_never_given_twice(url, query):
    writer = log.open_writer(url)
    with writer.begin() as conn:
        assert log.append(conn, 1, [(1, 1, 1, EventsDropped(i)) for i in range(3)]) == 3
        conn.exec_driver_sql("DELETE FROM events")
    with writer.begin() as conn:
        assert log.append(conn, 2, [(1, 1, 1, EventsDropped(9))]) == 4
    assert query("SELECT seq, engine_id FROM events") == [(4, 2)]


def test_batch_that_is_rolled_back_leaves_nothing(url, query):
    with log.open_writer(url).connect() as conn:
        log.append(conn, 1, [(1, 1, 1, EventsDropped(1)), (1, 1, 1, ChainExtended(None, 0, (b"a",)))])
        conn.rollback()
        assert log.append(conn, 1, [(1, 1, 1, EventsDropped(2))]) == 1
        conn.commit()
    assert query("SELECT seq, num_events FROM events_dropped") == [(1, 2)]
    assert query("SELECT * FROM block_hashes") == []


def test_empty_batch_returns_the_last_sequence_number(url):
    writer = log.open_writer(url)
    with writer.begin() as conn:
        assert log.append(conn, 1, []) == 0
        log.append(conn, 1, [(1, 1, 1, EventsDropped(1))])
        assert log.append(conn, 1, []) == 1


# --- hashes ----------------------------------------------------------------------------------------------------------


def test_each_hash_stands_with_its_parent_and_depth(url, query):
    with log.open_writer(url).begin() as conn:
        log.append(
            conn,
            3,
            [
                (1, 1, 1, ChainExtended(None, 0, (b"a", b"b", b"c"))),
                (2, 1, 1, ChainExtended(b"b", 2, (b"d",))),
            ],
        )
    assert query("SELECT hash, parent_hash, depth FROM block_hashes ORDER BY hash") == [
        (b"a", None, 0),
        (b"b", b"a", 1),
        (b"c", b"b", 2),
        (b"d", b"b", 2),
    ]


def test_hash_told_twice_keeps_its_first_telling_for_each_engine(url, query):
    writer = log.open_writer(url)
    for engine, told in [
        (1, ChainExtended(None, 0, (b"a", b"b"))),
        (1, ChainExtended(b"x", 5, (b"b", b"c"))),
        (2, ChainExtended(b"x", 5, (b"b",))),
    ]:
        with writer.begin() as conn:
            log.append(conn, engine, [(1, 1, 1, told)])
    assert query("SELECT engine_id, hash, parent_hash, depth FROM block_hashes ORDER BY engine_id, hash") == [
        (1, b"a", None, 0),
        (1, b"b", b"a", 1),
        (1, b"c", b"b", 6),
        (2, b"b", b"x", 5),
    ]


@CALM
@given(st.lists(st.integers(0, 3), max_size=30), st.data())
def test_every_chain_can_be_rebuilt_from_pieces_told_in_any_size(url, path, data):
    chain = [repr(path[: i + 1]).encode() for i in range(len(path))]
    at = 0
    with log.open_writer(url).begin() as conn:
        conn.exec_driver_sql("DELETE FROM block_hashes")
        while at < len(chain):
            n = data.draw(st.integers(1, len(chain) - at))
            log.append(
                conn, 1, [(1, 1, 1, ChainExtended(chain[at - 1] if at else None, at, tuple(chain[at : at + n])))]
            )
            at += n
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        rebuilt: list[bytes] = []
        here = chain[-1] if chain else None
        while here is not None:
            rebuilt.insert(0, here)
            (here,) = conn.execute("SELECT parent_hash FROM block_hashes WHERE hash = ?", [here]).fetchone()
    assert rebuilt == chain


# --- steps -----------------------------------------------------------------------------------------------------------


def test_step_is_one_row_with_its_clocks(url, query):
    taken = StepTaken(
        num_running=1,
        num_scheduled_tokens=2,
        num_stored=3,
        num_restored=4,
        num_loaded=5,
        num_evicted=6,
        num_restorable=7,
        cpu_blocks_free=8,
        cpu_blocks_cached=9,
        cpu_blocks_in_flight=10,
        gpu_blocks_free=11,
        hook_ns=12,
        previous_ns=13,
        previous_tokens=14,
        previous_running=15,
        num_forgotten=16,
    )
    with log.open_writer(url).begin() as conn:
        assert log.append(conn, 4, [(17, 100, 200, taken)]) == 0
    names = [f.name for f in fields(StepTaken)]
    assert query(f"SELECT engine_id, step, monotonic_ns, wall_ns, {', '.join(names)} FROM steps") == [
        (4, 17, 100, 200, *range(1, 17))
    ]


def test_steps_of_two_engines_do_not_touch_each_other(url, query):
    taken = StepTaken(*range(12))
    writer = log.open_writer(url)
    for engine in (1, 2):
        with writer.begin() as conn:
            log.append(conn, engine, [(step, 0, 0, taken) for step in (1, 2)])
    assert query("SELECT engine_id, step FROM steps ORDER BY 1, 2") == [(1, 1), (1, 2), (2, 1), (2, 2)]


# --- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        Fault("hook", "half a surrogate pair \ud800", 1),
        Fault("hook", "too big", 2**63),
        RequestStarted("r", 1, 1, None, {"not": "text"}),  # pyright: ignore[reportArgumentType]
        Lookup(None, 1, 0, 0, 0, 1, None, None, None, 1, False, object()),  # pyright: ignore[reportArgumentType]
    ],
)
def test_row_that_sqlite_cannot_hold_raises_and_does_not_break_the_transaction(url, query, event):
    writer = log.open_writer(url)
    with writer.begin() as conn:
        with pytest.raises(Exception, match=r"surrogates|too large|not supported"):
            log.append(conn, 1, [(1, 1, 1, event)])
        log.append(conn, 1, [(1, 1, 1, EventsDropped(1))])
    assert query("SELECT seq, kind FROM events") == [(1, "events_dropped")]


# --- policies --------------------------------------------------------------------------------------------------------


def test_log_without_policies_gives_the_default_as_version_0(url):
    with log.open_reader(url).connect() as conn:
        assert log.read_policy(conn) == VersionedPolicy(0, Policy())


def test_each_change_is_a_row_on_top_of_the_newest(url, query):
    writer = log.open_policy_writer(url)
    before = time.time_ns()
    assert log.write_policy(writer, {"mode": "rescan"}, "127.0.0.1") == VersionedPolicy(1, Policy(mode="rescan"))
    assert log.write_policy(writer, {"enabled": False}, "demo") == VersionedPolicy(2, Policy(False, "rescan"))
    assert log.write_policy(writer, {}, "demo") == VersionedPolicy(3, Policy(False, "rescan"))
    assert query("SELECT version, author, enabled, mode, max_restore_blocks_per_step FROM policies") == [
        (1, "127.0.0.1", 1, "rescan", 64),
        (2, "demo", 0, "rescan", 64),
        (3, "demo", 0, "rescan", 64),
    ]
    times = [before, *(t for (t,) in query("SELECT created_wall_ns FROM policies ORDER BY version")), time.time_ns()]
    assert times == sorted(times)
    with log.open_reader(url).connect() as conn:
        assert log.read_policy(conn) == VersionedPolicy(3, Policy(False, "rescan"))


@pytest.mark.parametrize("changes", [{"mode": "x"}, {"enabled": False, "max_restore_blocks_per_step": -1}, {"y": 1}])
def test_refused_change_writes_no_row_and_leaves_the_log_free(url, query, changes):
    writer = log.open_policy_writer(url)
    with pytest.raises(PolicyError):
        log.write_policy(writer, changes, "me")
    assert query("SELECT count(*) FROM policies") == [(0,)]
    assert log.write_policy(writer, {"enabled": False}, "me").version == 1


def test_concurrent_changes_of_many_processes_are_all_kept(url, query, run_python):
    program = """
import sys
from connector import log
engine = log.open_policy_writer(log.resolve_url(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for n in range(25):
    log.write_policy(engine, {sys.argv[2]: eval(sys.argv[3])}, f"{sys.argv[2]} {n}")
"""
    changes = [
        ("enabled", "n % 2 == 0"),
        ("mode", "['rescan', 'tracked'][n % 2]"),
        ("max_restore_blocks_per_step", "n"),
    ]
    processes = [run_python(program, str(log.path_of(url)), *change) for change in changes]
    for p in processes:
        assert p.stdout.readline() == "ready\n"
    for p in processes:
        p.stdin.write("go\n")
        p.stdin.flush()
    for p in processes:
        _, err = p.communicate(timeout=120)
        assert p.returncode == 0, err
    rows = query("SELECT version, author, enabled, mode, max_restore_blocks_per_step FROM policies ORDER BY version")
    assert [row[0] for row in rows] == list(range(1, 76))
    # Every row must be the row before it with the one change that its author asked for.
    policy: dict[str, Any] = {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 64}
    asked = dict(changes)
    for _, author, *values in rows:
        key, n = author.split()
        policy[key] = eval(asked[key], {"n": int(n)})
        assert dict(zip(policy, values, strict=True)) == policy
    for key in asked:
        assert [a for _, a, *_ in rows if a.startswith(key)] == [f"{key} {n}" for n in range(25)]


def test_change_waits_for_another_writer_and_gives_up_with_the_reason(url, locked, monkeypatch):
    monkeypatch.setattr("connector.connections.BUSY_TIMEOUT_MS", 50)
    with pytest.raises(OperationalError, match="database is locked"):
        log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
    locked.execute("ROLLBACK")
    assert log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me").version == 1


def test_policy_row_needs_a_budget_that_is_not_negative(url):
    with log.open_writer(url).connect() as conn, pytest.raises(Exception, match="CHECK constraint failed"):
        conn.execute(
            tables.policies.insert().values(
                created_wall_ns=1, author="sql", enabled=True, mode="rescan", max_restore_blocks_per_step=-1
            )
        )
