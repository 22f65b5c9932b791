"""Opening a log: what becomes a log, what is refused and in which words, and that a reader only reads."""

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from connector import log, tables
from connector.log import LogError

NEWEST = "20261130e"


def url_of(path):
    return log.resolve_url(str(path))


def tables_of(path):
    with closing(sqlite3.connect(path)) as conn:
        return {name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


# --- naming ----------------------------------------------------------------------------------------------------------


def test_url_and_plain_path_name_the_same_file(tmp_path):
    path = tmp_path / "log.db"
    for name in (str(path), f"sqlite:///{path}", f"sqlite+pysqlite:///{path}"):
        assert log.path_of(log.resolve_url(name)) == path


def test_relative_path_and_home_are_resolved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert log.path_of(log.resolve_url("x.db")) == tmp_path / "x.db"
    assert log.path_of(log.resolve_url("~/x.db")) == tmp_path / "home" / "x.db"
    assert log.path_of(log.resolve_url("sqlite:///~/x.db")) == tmp_path / "home" / "x.db"


def test_environment_names_the_log_where_nobody_does(tmp_path, monkeypatch):
    monkeypatch.setenv("RESTORE_DB", f"sqlite:///{tmp_path}/env.db")
    assert log.path_of(log.resolve_url()) == tmp_path / "env.db"
    assert log.path_of(log.resolve_url(str(tmp_path / "said.db"))) == tmp_path / "said.db"
    monkeypatch.delenv("RESTORE_DB")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert log.path_of(log.resolve_url()) == tmp_path / "data" / "vllm-restore" / "log.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert log.path_of(log.resolve_url()) == tmp_path / ".local" / "share" / "vllm-restore" / "log.db"


@pytest.mark.parametrize("name", ["odd ?name#1.db", "100%41.db", "größe ☃.db", "a&mode=memory.db"])
def test_any_file_name_works_as_a_plain_path(tmp_path, name):
    path = tmp_path / name
    assert log.upgrade(url_of(path)) == NEWEST
    assert path.exists()
    with log.open_writer(url_of(path)).begin() as conn:
        assert log.read_policy(conn).version == 0


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("postgresql://host/db", "the log is a SQLite file, but 'postgresql' was asked for; write sqlite:///PATH"),
        ("mysql+aiomysql://host/db", "'mysql+aiomysql' was asked for"),
        (":memory:", "the log needs a file"),
        ("sqlite://", "the log needs a file"),
        ("sqlite:///:memory:", "the log needs a file"),
        ("://", "cannot read '://' as a database URL; write sqlite:///PATH or a plain path"),
        ("sqlite:/log.db", "cannot read 'sqlite:/log.db' as a database URL"),
        ("~nobody-of-that-name/log.db", "is no path that can be opened"),
        ("a\0b.db", "is no path that can be opened"),
    ],
)
def test_name_that_is_no_file_is_refused(name, says):
    with pytest.raises(LogError) as error:
        log.resolve_url(name)
    assert says in str(error.value)
    assert "write sqlite:///" in str(error.value)


# --- upgrade ---------------------------------------------------------------------------------------------------------


def test_upgrade_makes_folder_file_tables_and_wal(tmp_path):
    path = tmp_path / "a" / "b" / "log.db"
    assert log.upgrade(url_of(path)) == NEWEST
    assert {"engines", "policies", "block_hashes", "steps", "events", "alembic_version"} <= tables_of(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert log.check(url_of(path)) == NEWEST


def test_second_upgrade_changes_nothing(url):
    with log.open_writer(url).begin() as conn:
        conn.execute(tables.policies.insert().values(created_wall_ns=1, author="me", **log.Policy().as_dict()))
    before = log.path_of(url).read_bytes()
    assert log.upgrade(url) == NEWEST
    assert log.path_of(url).read_bytes() == before


def test_empty_file_becomes_a_log(tmp_path):
    path = tmp_path / "log.db"
    path.touch()
    with pytest.raises(LogError, match=r"is empty; run: vllm-restore db upgrade"):
        log.check(url_of(path))
    assert log.upgrade(url_of(path)) == NEWEST


def test_many_processes_may_upgrade_at_once(tmp_path, run_python):
    program = """
import sys
from connector import log
print("ready", flush=True)
sys.stdin.readline()
print(log.upgrade(log.resolve_url(sys.argv[1])))
"""
    processes = [run_python(program, str(tmp_path / "new" / "log.db")) for _ in range(4)]
    for p in processes:
        assert p.stdout.readline() == "ready\n"
    for p in processes:
        p.stdin.write("go\n")
        p.stdin.flush()
    for p in processes:
        out, err = p.communicate(timeout=120)
        assert (p.returncode, out) == (0, f"{NEWEST}\n"), err
    with closing(sqlite3.connect(tmp_path / "new" / "log.db")) as conn:
        assert conn.execute("SELECT version_num FROM alembic_version").fetchall() == [(NEWEST,)]
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


LATER = """
import sqlalchemy as sa
from alembic import op

revision = "20991231a"
down_revision = "20261130e"


def upgrade() -> None:
    op.add_column("engines", sa.Column("later", sa.Text()))
"""


@pytest.fixture
def later_program(tmp_path, monkeypatch):
    """Within it, this program is one migration further."""
    folder = tmp_path / "migrations"
    shutil.copytree(log.MIGRATIONS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "versions" / "20991231a_later.py").write_text(LATER)

    @contextmanager
    def within() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(log, "MIGRATIONS", folder)
            yield

    return within


def test_older_log_is_refused_until_it_is_upgraded_and_keeps_its_rows(url, later_program):
    log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
    with later_program():
        for opened in (log.check, log.open_reader, log.open_writer):
            with pytest.raises(LogError, match=r"has the older schema 20261130e; run: vllm-restore db upgrade --db /"):
                opened(url)
        assert log.upgrade(url) == "20991231a"
        with log.open_reader(url).connect() as conn:
            assert conn.execute(text("SELECT later FROM engines")).all() == []
            assert log.read_policy(conn).version == 1


def test_newer_log_is_refused_and_left_alone(url, later_program):
    with later_program():
        log.upgrade(url)
    before = log.path_of(url).read_bytes()
    for opened in (log.check, log.upgrade, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match=r"written by a newer vllm-restore; update vllm-restore or name another"):
            opened(url)
    assert log.path_of(url).read_bytes() == before


def test_failed_migration_leaves_the_log_as_it_was(url, tmp_path, later_program, monkeypatch):
    with later_program():
        script = tmp_path / "migrations" / "versions" / "20991231a_later.py"
        script.write_text(LATER + '    op.execute("SELECT * FROM nowhere")\n')
        with pytest.raises(LogError, match="no such table: nowhere"):
            log.upgrade(url)
    assert log.check(url) == NEWEST
    with closing(sqlite3.connect(log.path_of(url))) as conn:
        assert "later" not in {row[1] for row in conn.execute("PRAGMA table_info(engines)")}


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"hello, this is no database", b"x" * 10_000, b"SQLite format 2\0" + b"\0" * 5000])
def test_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for opened in (log.upgrade, log.check, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match=r"notes.txt is not a SQLite database; nothing was changed; name another"):
            opened(url_of(path))
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_damaged_database_is_refused(tmp_path, empty_log):
    path = tmp_path / "log.db"
    path.write_bytes(empty_log.read_bytes()[:16] + b"\xff" * 4080)
    for opened in (log.upgrade, log.check, log.open_reader):
        with pytest.raises(LogError, match=r"log\.db is not a SQLite database"):
            opened(url_of(path))


@pytest.fixture
def busy_log(url) -> Iterator[Path]:
    """A log all of whose pages are in a -wal, too, that an open connection keeps."""
    with closing(sqlite3.connect(path := log.path_of(url), isolation_level=None)) as conn:
        conn.execute("PRAGMA wal_autocheckpoint=0")
        conn.execute("VACUUM")
        yield path


def test_log_overwritten_under_its_wal_is_refused_though_its_newest_pages_can_be_read(busy_log):
    busy_log.write_bytes(b"garbage " * 10_000)
    with closing(sqlite3.connect(busy_log)) as conn:
        assert conn.execute("SELECT version_num FROM alembic_version").fetchone() == (NEWEST,)
    for opened in (log.upgrade, log.check, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match=r"log\.db is not a SQLite database, though its -wal is of one; put back"):
            opened(url_of(busy_log))


def test_log_cut_short_under_its_wal_is_refused(url):
    """Some 220 pages are in the file when it is cut to 25, the schema among them; the -wal has a few of the others."""
    path = log.path_of(url)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("CREATE TABLE more (x)")
        conn.execute("INSERT INTO more VALUES (zeroblob(800000))")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        conn.execute("PRAGMA wal_autocheckpoint=0")
        conn.execute("CREATE TABLE one_more (x)")
        os.truncate(path, 25 * 4096)
        for opened in (log.upgrade, log.check, log.open_reader, log.open_writer):
            with pytest.raises(LogError, match=r"was cut short to 102,400 bytes of [89]\d\d,\d{3}; put back a whole"):
                opened(url_of(path))


def test_log_whose_checkpoint_was_killed_is_not_taken_for_one_that_was_cut_short(url, tmp_path):
    """A checkpoint writes the first page, which says how many there are, before the last."""
    path = log.path_of(url)
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("PRAGMA wal_autocheckpoint=0")
        conn.execute("CREATE TABLE more (x)")
        conn.execute("INSERT INTO more VALUES (zeroblob(800000))")
        wal = Path(f"{path}-wal").read_bytes()
        before = path.stat().st_size
        conn.execute("PRAGMA wal_checkpoint(PASSIVE)")
        killed = tmp_path / "killed.db"
        killed.write_bytes(path.read_bytes()[:before])
        Path(f"{killed}-wal").write_bytes(wal)
    assert log.check(url_of(killed)) == NEWEST
    with closing(sqlite3.connect(killed)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_empty_file_is_not_looked_into_while_it_has_a_wal(busy_log):
    """SQLite would delete the -wal, which may be all that is left of the rows."""
    os.truncate(busy_log, 0)
    for opened in (log.upgrade, log.check, log.open_reader):
        with pytest.raises(LogError, match=r"log\.db is empty, and the rows of its -wal belong to another file"):
            opened(url_of(busy_log))
    assert Path(f"{busy_log}-wal").stat().st_size > 50_000


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/null")], ids=["pipe", "device"])
def test_what_is_no_file_is_refused_at_once(tmp_path, make):
    make(path := tmp_path / "log.db")
    for opened in (log.upgrade, log.check, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match="is no file but a pipe, a socket or a device"):
            opened(url_of(path))


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "browser.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE cookies (x)")
    before = path.read_bytes()
    for opened in (log.upgrade, log.check, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match=r"without this log's tables.*name another file with --db"):
            opened(url_of(path))
    assert path.read_bytes() == before


def test_missing_log_is_not_made_by_looking(tmp_path):
    for opened in (log.check, log.open_reader, log.open_writer):
        with pytest.raises(LogError, match=r"there is no log at .*x\.db; start the server, or make one with"):
            opened(url_of(tmp_path / "x.db"))
    assert list(tmp_path.iterdir()) == []


def test_folder_in_the_place_of_the_file_is_refused(tmp_path):
    (tmp_path / "log.db").mkdir()
    for opened in (log.upgrade, log.check):
        with pytest.raises(LogError, match=r"log\.db is a folder; name a file in it"):
            opened(url_of(tmp_path / "log.db"))
    assert [p.name for p in tmp_path.iterdir()] == ["log.db"]


def test_place_where_no_folder_can_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "log.db", tmp_path / "file" / "deeper" / "log.db", Path("/proc/nothing/log.db")):
        with pytest.raises(LogError, match=r"cannot write the log /.*; choose another place with --db or RESTORE_DB"):
            log.upgrade(url_of(path))


# --- folders that cannot be written ----------------------------------------------------------------------------------


@contextmanager
def unprivileged() -> Iterator[None]:
    """As a user whom file permissions bind, where the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        if not os.access(log.MIGRATIONS, os.R_OK, effective_ids=True):
            pytest.skip("another user cannot read this checkout")
        yield
    finally:
        os.seteuid(0)


@contextmanager
def in_use(path: Path) -> Iterator[None]:
    """Somebody has the log open, so that the WAL stays where it is when a writer closes."""
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("SELECT 1 FROM policies").fetchall()
        yield


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """Fill `folder` and `chmod` it 0o555; every user may enter it."""
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        folder = Path(parent) / "shelf"
        folder.mkdir()
        yield folder
        folder.chmod(0o755)


def test_log_that_may_not_be_read_is_said(read_only_folder, url):
    path = read_only_folder / "log.db"
    shutil.copy(log.path_of(url), path)
    path.chmod(0)
    with unprivileged(), pytest.raises(LogError, match=r"cannot read the log .*log\.db: .*; this user may not read it"):
        log.check(url_of(path))
    path.chmod(0o644)
    read_only_folder.chmod(0)
    with unprivileged(), pytest.raises(LogError, match=r"cannot read the log .*log\.db: Permission denied"):
        log.check(log.resolve_url(str(path)))


def test_folder_that_cannot_be_written_is_said_at_upgrade(read_only_folder):
    read_only_folder.chmod(0o555)
    with unprivileged(), pytest.raises(LogError, match=r"cannot write the log .*: Permission denied; choose another"):
        log.upgrade(url_of(read_only_folder / "log.db"))


def test_log_copied_into_a_read_only_folder_can_be_read(read_only_folder, url):
    log.write_policy(log.open_policy_writer(url), {"mode": "rescan"}, "me")
    shutil.copy(log.path_of(url), read_only_folder / "log.db")
    read_only_folder.chmod(0o555)
    with unprivileged():
        reader = log.open_reader(url_of(read_only_folder / "log.db"))
        for _ in range(2):
            with reader.connect() as conn:
                assert log.read_policy(conn).policy.mode == "rescan"
        reader.dispose()
    assert [p.name for p in read_only_folder.iterdir()] == ["log.db"]


def test_reader_of_a_read_only_folder_sees_an_engine_that_starts_there_later(read_only_folder, url):
    path = read_only_folder / "log.db"
    shutil.copy(log.path_of(url), path)
    read_only_folder.chmod(0o555)
    with unprivileged():
        reader = log.open_reader(url_of(path))
        with reader.connect() as conn:
            assert log.read_policy(conn).version == 0
    read_only_folder.chmod(0o755)
    with in_use(path):
        log.write_policy(log.open_policy_writer(url_of(path)), {"enabled": False}, "engine's owner")
        read_only_folder.chmod(0o555)
        with unprivileged(), reader.connect() as conn:
            assert log.read_policy(conn).version == 1
        reader.dispose()


def test_copy_with_an_unfinished_wal_in_a_read_only_folder_says_what_to_do(read_only_folder, url):
    with in_use(log.path_of(url)):
        log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
        for name in ("log.db", "log.db-wal"):
            shutil.copy(log.path_of(url).with_name(name), read_only_folder / name)
    read_only_folder.chmod(0o555)
    with (
        unprivileged(),
        pytest.raises(LogError, match=r"cannot read the log .*-wal file needs: copy the log elsewhere"),
    ):
        log.open_reader(url_of(read_only_folder / "log.db"))


# --- readers and writers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO policies VALUES (9, 1, 'x', 1, 'rescan', 0, 'lru')",
        "DELETE FROM events",
        "CREATE TABLE t (x)",
        "PRAGMA user_version = 7",
    ],
)
def test_reader_cannot_write(url, sql):
    reader = log.open_reader(url)
    with reader.connect() as conn, pytest.raises(OperationalError, match="readonly"):
        conn.exec_driver_sql(sql)
    reader.dispose()


def test_reader_holds_one_snapshot_for_a_transaction(url):
    writer, reader = log.open_policy_writer(url), log.open_reader(url)
    with reader.connect() as conn:
        assert log.read_policy(conn).version == 0
        log.write_policy(writer, {"enabled": False}, "me")
        assert log.read_policy(conn).version == 0
        conn.rollback()
        assert log.read_policy(conn).version == 1
    reader.dispose()


def test_readers_and_policy_writers_never_checkpoint(url):
    for engine in (log.open_reader(url), log.open_writer(url), log.open_policy_writer(url)):
        with engine.connect() as conn:
            assert conn.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar_one() == 0
        engine.dispose()


# --- migrations and metadata -----------------------------------------------------------------------------------------


def statements(path):
    """What makes the schema, blanks aside, but for Alembic's own table."""
    with closing(sqlite3.connect(path)) as conn:
        return {
            name: " ".join(sql.split())
            for name, sql in conn.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
            if name not in ("alembic_version", "sqlite_sequence")
        }


def test_migrations_make_what_the_metadata_says(url, tmp_path):
    reader = log.open_reader(url)
    with reader.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), tables.metadata) == []
    reader.dispose()
    own = create_engine(f"sqlite:///{tmp_path / 'own.db'}")
    with own.begin() as conn:
        tables.metadata.create_all(conn)
        for statement in tables.view_statements():
            conn.exec_driver_sql(statement)
    own.dispose()
    assert statements(log.path_of(url)) == statements(tmp_path / "own.db")


def test_looking_at_a_log_keeps_the_locks_of_connections_that_are_open(url):
    """Another program that closes the log last folds its WAL back and deletes it. It is not the last while we have it
    open, whatever else of ours looked at the file meanwhile."""
    reader = log.open_reader(url)
    log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
    with reader.connect() as conn:
        assert log.read_policy(conn).version == 1
        log.check(url)
        log.upgrade(url)
        code = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM policies'); c.close()"
        subprocess.run([sys.executable, "-c", code, str(log.path_of(url))], check=True)
        assert Path(f"{log.path_of(url)}-wal").exists()
    reader.dispose()


def test_what_a_log_that_was_moved_away_alone_leaves_is_kept_and_not_joined_to_the_new_one(url):
    """The newest rows stand in the WAL. Beside the moved file it can be read again."""
    path = log.path_of(url)
    writer = log.open_writer(url)
    with writer.connect() as conn:  # keeps the WAL from being folded back
        log.write_policy(log.open_policy_writer(url), {"enabled": False}, "me")
        path.rename(moved := path.with_name("moved.db"))
        log.upgrade(url)
        with log.open_reader(url).connect() as fresh:
            assert log.read_policy(fresh).version == 0
        Path(f"{path}.left-wal").rename(f"{moved}-wal")
        assert conn is not None
    with log.open_reader(log.resolve_url(str(moved))).connect() as old:
        assert log.read_policy(old).version == 1
