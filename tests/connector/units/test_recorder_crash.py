"""What a log survives: a process that is killed, one that forgets to close, a disk that is full for a while."""

import sqlite3
from contextlib import closing

from connector import log

START = """
import resource, sys, threading
from connector import log
from connector.events import Fault
from connector.engine_row import EngineInfo, KVGroup
from connector.recorder import Recorder

url = log.resolve_url(sys.argv[1])
info = EngineInfo("uid", 0, "m", "0.32.0", "0.1.0", 16, 100, 50, 1000, (KVGroup(16, "FullAttentionSpec", True),), "yes")
engine = Recorder(url, info)
"""


def test_kill_loses_at_most_the_end_and_never_the_database(url, query, run_python, make_recorder, eventually):
    process = run_python(
        START
        + """
n = 0
while True:
    n += engine.record(Fault("test", "x" * 500, n))
    if n % 1000 == 0:
        threading.Event().wait(0.005)
""",
        str(log.path_of(url)),
    )
    # Far enough for several checkpoints, then at any moment.
    eventually(lambda: query("SELECT count(*) FROM fault")[0][0] > 20_000 or process.poll() is not None)
    process.kill()
    assert process.wait() == -9
    found = [n for (n,) in query("SELECT num_faults FROM fault ORDER BY seq")]
    assert len(found) > 20_000
    assert found == list(range(len(found)))
    assert query("SELECT stopped_wall_ns FROM engines") == [(None,)]
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    # The lock of the one that checkpoints went with it, and the next engine writes on.
    following = make_recorder()
    eventually(lambda: following.is_checkpointer)
    assert following.close()
    with log.open_reader(url).connect() as conn:
        assert log.read_policy(conn).version == 0


def test_program_that_ends_without_closing_has_written_everything(url, query, run_python):
    process = run_python(START + "for n in range(5000): engine.record(Fault('test', '', n))", str(log.path_of(url)))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in range(5000)]
    assert query("SELECT stopped_wall_ns IS NOT NULL FROM engines") == [(1,)]


def test_full_disk_is_counted_and_outlived(url, query, run_python):
    # A limit on the size of files stands for the full disk: SQLite meets it in the same calls.
    process = run_python(
        START
        + """
def wait_until(is_so):
    tick = threading.Event()
    while not is_so():
        tick.wait(0.01)

_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
engine.record(Fault("test", "before", 0))
wait_until(lambda: engine.is_checkpointer)
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
for n in range(1, 2001):
    step, _ = engine.begin_step()
    assert step == n
    assert engine.record(Fault("test", "x" * 1000, n))
wait_until(lambda: engine.num_write_failures >= 3)
assert engine.record(Fault("test", "meanwhile", 2001))
print(engine.num_write_failures, engine.num_dropped)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
assert engine.record(Fault("test", "after", 2002))
print(engine.close(), engine.num_dropped)
""",
        str(log.path_of(url)),
    )
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    during, after = out.splitlines()
    assert int(during.split()[0]) >= 3
    assert during.split()[1] == "0"
    assert after == "True 0"
    assert query("SELECT num_faults FROM fault ORDER BY seq") == [(n,) for n in range(2003)]
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
