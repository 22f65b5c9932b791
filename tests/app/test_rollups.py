"""The sums a second are what the rows add up to: recomputed from the raw rows, whatever came between."""

import importlib.util
import os
import random
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from connector import log, tables
from connector.events import BlocksDropped, CursorMoved

ROOT = Path(__file__).resolve().parents[2]


def migration():
    """The revision that fills the sums of an older log: the same numbers, from the raw rows, in SQL."""
    path = ROOT / "migrations" / "versions" / "20261130c_rollups.py"
    spec = importlib.util.spec_from_file_location("rollups_migration", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(conn):
    """Both tables, each row by its keys. Floats are rounded: sums in another order end in other digits."""
    both = {}
    for table in (tables.rollups, tables.rollup_causes):
        names = [c.name for c in table.c]
        for row in conn.execute(f"SELECT {', '.join(names)} FROM {table.name}"):
            rounded = [round(v, 9) if isinstance(v, float) else v for v in row]
            both[table.name, *(v for v, c in zip(row, table.c, strict=True) if c.primary_key)] = dict(
                zip(names, rounded, strict=True)
            )
    return both


def assert_sums_are_right(path, tmp_path):
    """Compare what was written beside the rows with what the rows add up to."""
    copy = tmp_path / "recomputed.db"
    with closing(sqlite3.connect(path)) as conn, closing(sqlite3.connect(copy)) as other:
        conn.backup(other)
        written = read(conn)
        other.execute("DELETE FROM rollups")
        other.execute("DELETE FROM rollup_causes")
        for statement in migration().fill_statements():
            other.execute(statement)
        recomputed = read(other)
    assert written == recomputed
    return written


def random_items(kit, rng, count):
    """Rows of every kind that is summed, and of some that are not."""

    def number(top=10_000_000_000):
        return rng.randrange(top)

    def maybe(value):
        return value if rng.random() < 0.7 else None

    for _ in range(count):
        n = rng.randrange(1, 9)
        run = {"num_blocks": n, "head_hash": b"h", "tail_hash": b"t"}
        cause = rng.choice([None, "evicted", "never_seen"])
        yield rng.choice(
            [
                kit.event("started"),
                kit.event("finished"),
                kit.event(
                    "lookup", num_tokens=number(500), gpu_hit_tokens=number(100), cpu_hit_tokens=number(100),
                    restored_hit_tokens=number(50), lost_tokens=number(99), behind_tokens=number(9), cause=cause,
                    cause_detail=maybe("d") if cause else None, cut_index=maybe(3), is_resumed=rng.random() < 0.2,
                ),
                kit.event("stored", **run, num_bytes=number(999), copy_ns=maybe(number())),
                kit.event("restored", **run, num_bytes=number(999), copy_ns=maybe(number())),
                kit.event("loaded", **run, num_bytes=number(999), copy_ns=maybe(number()), num_restored=n - 1),
                kit.event(
                    "evicted", **run, age_ns=maybe(rng.choice([10**8 - 1, 10**8, 10**9, number(10**14)])),
                    num_loaded=n - 1, is_by_restore=rng.random() < 0.3,
                ),
                kit.event(
                    "missed", **run, since_ns=rng.choice([0, 316_227_765, 316_227_766, number(10**14)]),
                    num_owned=n // 2, is_by_restore=rng.random() < 0.3,
                ),
                BlocksDropped("r", 0, None, n, "cpu_full"),
                CursorMoved("r", 0, 1, 2),
                kit.step(
                    previous_ns=maybe(number()), previous_tokens=maybe(number(400)), previous_running=maybe(number(9)),
                    cpu_blocks_cached=number(50),
                ),
            ]
        )  # fmt: skip


def test_they_are_what_the_rows_add_up_to(make_log, kit, tmp_path):
    rng = random.Random(5)
    builder = make_log()
    engines = [builder.engine(), builder.engine()]
    version = 0
    steps = dict.fromkeys(engines, 0)
    for batch in range(60):
        engine = rng.choice(engines)
        items = []
        for item in random_items(kit, rng, rng.randrange(1, 40)):
            # The clock goes on by fractions of a second, and the policy changes in the middle of one.
            builder.now += rng.random() / 20
            wall = kit.T0 + round(builder.now * kit.SECOND)
            if rng.random() < 0.05:
                version += 1
                steps[engine] += 1
                items.append((steps[engine], 0, wall, kit.event("policy", policy_version=version)))
            if isinstance(item, kit.StepTaken):
                steps[engine] += 1
            items.append((steps[engine], 0, wall, item))
        if batch % 7 == 3:
            # As an idle engine answers: with the number of the step that was taken last.
            version += 1
            items.append((steps[engine], 0, wall, kit.event("policy", policy_version=version, is_idle=True)))
        with builder.writer.begin() as conn:
            log.append(conn, engine, items)
    written = assert_sums_are_right(builder.path, tmp_path)
    keys = [key[1:4] for key in written if key[0] == "rollups"]
    assert {engine for _, engine, _ in keys} == set(engines)
    assert len({(second, engine) for second, engine, _ in keys}) < len(keys), "no policy changed inside a second"


def test_one_second_worked_out_by_hand(make_log, kit):
    builder = make_log()
    engine = builder.engine()
    builder.step = 4
    builder.write(
        engine,
        kit.event("lookup", num_tokens=100, gpu_hit_tokens=32, cpu_hit_tokens=32, restored_hit_tokens=16,
                  lost_tokens=20, behind_tokens=8, cause="evicted", cause_detail="no_owner", cut_index=2),
        kit.event("lookup", num_tokens=900, is_resumed=True),
        kit.event("policy", policy_version=3),
        kit.event("lookup", num_tokens=7, cut_index=0),
        kit.event("evicted", num_blocks=5, tail_hash=b"t", head_hash=b"h", num_loaded=2, age_ns=999_999_999),
        kit.step(cpu_blocks_cached=9, previous_ns=2_000_000_000, previous_tokens=100, previous_running=1),
        kit.step(cpu_blocks_cached=8, previous_ns=1, previous_tokens=1, previous_running=1),
        at=2.9,
    )  # fmt: skip
    second = kit.T0 // kit.SECOND + 2
    with closing(sqlite3.connect(builder.path)) as conn:
        conn.row_factory = sqlite3.Row
        before, after = map(dict, conn.execute("SELECT * FROM rollups ORDER BY policy_version"))
        causes = conn.execute(
            "SELECT policy_version, cause, cause_detail, num_lookups, prompt_tokens, lost_tokens, behind_tokens "
            "FROM rollup_causes ORDER BY policy_version"
        ).fetchall()
    assert (before["second"], before["engine_id"], before["policy_version"]) == (second, engine, -1)
    assert (before["num_lookups"], before["prompt_tokens"], before["gpu_hit_tokens"]) == (1, 100, 32)
    assert (before["restored_hit_tokens"], before["lost_tokens"], before["behind_tokens"]) == (16, 20, 8)
    assert (after["policy_version"], after["num_lookups"], after["prompt_tokens"]) == (3, 1, 7)
    assert (after["evicted_blocks"], after["evicted_unhit_blocks"], after["evicted_age_2"]) == (5, 3, 5)
    assert (after["prefill_steps"], after["prefill_x"], after["prefill_xy"]) == (1, 100.0, 200.0)
    assert (after["last_step"], after["cpu_blocks_cached"]) == (4, 8)
    assert [tuple(row) for row in causes] == [
        (-1, "evicted", "no_owner", 1, 100, 20, 8),
        (3, "not_recorded", "", 1, 7, 0, 0),
    ]


def test_batch_that_fails_leaves_no_sums(make_log, kit, tmp_path):
    builder = make_log()
    engine = builder.engine()
    builder.write(engine, kit.event("lookup"), at=1)
    with pytest.raises(ValueError, match="surrogates"):
        builder.write(engine, kit.event("lookup"), kit.event("lookup", request_id="\ud800"), at=1)
    written = assert_sums_are_right(builder.path, tmp_path)
    assert [row["num_lookups"] for key, row in written.items() if key[0] == "rollups"] == [1]


def test_they_are_right_after_the_writer_was_killed(make_log, tmp_path):
    builder = make_log()
    engine = builder.engine()
    code = f"""
import sys, time
sys.path[:0] = [{str(ROOT)!r}]
from connector import log
from connector.events import BlocksStored, Lookup
writer = log.open_writer(log.resolve_url({builder.path!r}))
n = 0
with writer.connect() as conn:
    while True:
        items = [(n, n, time.time_ns(), e) for _ in range(200) for e in (
            Lookup("r", 65, 0, 0, 0, 2, None, 1, b"m", 1, False, False, "evicted", "no_owner", 32, 0),
            BlocksStored("r", 0, 0, 2, b"t", b"h", (1, 2), 1000, n, 5))]
        with conn.begin():
            log.append(conn, {engine}, items)
        n += 1
        if n == 5:
            print("five", flush=True)
"""
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    with writer:
        assert writer.stdout.readline() == "five\n"
        os.kill(writer.pid, signal.SIGKILL)
    written = assert_sums_are_right(builder.path, tmp_path)
    total = sum(row["num_lookups"] for key, row in written.items() if key[0] == "rollups")
    assert total >= 1000
    assert total % 200 == 0


def test_older_log_gets_them_when_it_is_upgraded(tmp_path, kit):
    """A log of the first revision, with a lookup that was cut and does not say why."""
    from alembic import command
    from alembic.config import Config

    from connector.connections import make_engine

    path = tmp_path / "old.db"
    url = log.resolve_url(str(path))
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA journal_mode=WAL")
    with make_engine(url, read_only=False, begin="BEGIN IMMEDIATE").begin() as conn:
        config = Config()
        config.set_main_option("script_location", str(log.MIGRATIONS))
        config.attributes["connection"] = conn
        command.upgrade(config, "20261130a")
        conn.exec_driver_sql(
            "INSERT INTO events (engine_id, step, monotonic_ns, wall_ns, kind, request_id, num_tokens, gpu_hit_tokens, "
            "cpu_hit_tokens, cut_index, is_resumed) VALUES (1, 1, 0, 5000000001, 'lookup', 'r', 100, 32, 0, 1, 0)"
        )
        conn.exec_driver_sql(
            "INSERT INTO events (engine_id, step, monotonic_ns, wall_ns, kind, num_blocks) "
            "VALUES (1, 1, 0, 5999999999, 'blocks_evicted', 4)"
        )
    log.upgrade(url)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute(
            "SELECT second, num_lookups, prompt_tokens, lost_tokens, evicted_blocks, evicted_judged_blocks FROM rollups"
        ).fetchall() == [(5, 1, 100, 0, 4, 0)]
        assert conn.execute("SELECT cause, num_lookups FROM rollup_causes").fetchall() == [("not_recorded", 1)]
