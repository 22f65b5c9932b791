"""How a connection to the log's file is opened: the pragmas, each with its reason.

Log ring: SQLAlchemy and the standard library; only `log` and the recorder import it.
"""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry, NullPool, QueuePool

BUSY_TIMEOUT_MS = 10_000
CHECKPOINT_PAGES = 1_000


class _Immutable(sqlite3.Connection):
    """A connection to a file that nobody had open to write when it was opened. Good for one use."""


def _connect(path: Path, mode: str, kind: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    # isolation_level None: this module says BEGIN itself; the driver's own rules start no transaction for a SELECT.
    return sqlite3.connect(
        f"{path.as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_TIMEOUT_MS / 1000,
        factory=kind,
    )


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that cannot write, also where the folder cannot be written.

    Raises:
        sqlite3.DatabaseError: the file is no database, or cannot be read as it lies there.
    """
    conn = _connect(path, "ro")
    try:
        conn.execute("PRAGMA schema_version")  # the first look into the file
    except sqlite3.Error as e:
        conn.close()
        # SQLite wants to make its -shm file in a folder that cannot be written. Where there is no WAL, nobody needs it.
        wal = Path(f"{path}-wal")
        has_wal = wal.exists() and wal.stat().st_size > 0
        if (
            has_wal
            or os.access(path.parent, os.W_OK, effective_ids=True)
            or not isinstance(e, sqlite3.OperationalError)
        ):
            raise
        conn = connect_without_wal(path)
    return conn


def connect_without_wal(path: Path) -> sqlite3.Connection:
    """A connection that sees the file alone, as if its -wal were not there.

    It takes no lock, and leaves those that this process has on the file.
    """
    return _connect(path, "ro&immutable=1", _Immutable)


def _connector(path: Path, read_only: bool) -> Callable[[], sqlite3.Connection]:
    def connect() -> sqlite3.Connection:
        conn = connect_read_only(path) if read_only else _connect(path, "rw")
        # Checkpoints are for the one connection that holds the checkpoint lock (see `log.hold_checkpoint_lock`): SQLite
        # before 3.51.3 can corrupt a WAL when two connections race one.
        conn.execute("PRAGMA wal_autocheckpoint=0")
        if read_only:
            conn.execute("PRAGMA query_only=1")
        else:
            # A crash of the machine may lose the last commits, a crash of the process loses none; never the database.
            conn.execute("PRAGMA synchronous=NORMAL")
        return conn

    return connect


def _forget_immutable(conn: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    # An engine of another user may start on the file any time, and an immutable connection would not see it.
    if isinstance(conn, _Immutable):
        record.invalidate()


def make_engine(url: URL, *, read_only: bool, begin: str) -> Engine:
    """A SQLAlchemy engine whose every transaction starts with the statement `begin`."""
    path = Path(url.database or "")
    engine = create_engine(
        url,
        creator=_connector(path, read_only),
        poolclass=QueuePool if read_only else NullPool,
        # An error is said in a line; with parameters it would be the ten thousand rows of a batch.
        hide_parameters=True,
    )

    # `begin` is sent where a transaction starts, so that a reader holds one snapshot and a writer takes the lock at
    # once instead of failing in the middle when it turns from reader to writer.
    def on_begin(conn: Connection) -> None:
        conn.exec_driver_sql(begin)

    event.listen(engine, "begin", on_begin)
    event.listen(engine, "checkin", _forget_immutable)
    return engine
