"""The log: one SQLite file in WAL mode. Open it to write, to read, to change the policy; append a batch.

Log ring: SQLAlchemy, `connections` (the pragmas), `tables`, `rollups`, `events`, `policy`.
"""

import fcntl
import json
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, make_url, select
from sqlalchemy.exc import ArgumentError, DatabaseError

from connector import tables
from connector.connections import connect_read_only, connect_without_wal, make_engine
from connector.events import EVENT_TYPES, ChainExtended, Event, Item, RetentionState, StepTaken
from connector.policy import Policy, VersionedPolicy
from connector.rollups import Rollups

MIGRATIONS = Path(__file__).resolve().parent.parent / "migrations"

_PUT_BACK = "put back a whole copy, or move the file and its -wal away"

Stamped = tuple[int, int, int, Item | StepTaken]
"""(step, monotonic ns, wall ns, what happened): one item of the recorder's queue."""


class LogError(Exception):
    """The log cannot be used. The message is one line that says what is wrong and what to do."""


def default_path() -> Path:
    """Where the log lies when nobody says otherwise: the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(data) / "vllm-restore" / "log.db"


def resolve_url(text: str | None = None) -> URL:
    """The log's URL from what a person wrote: a SQLite URL or a plain path. None: `RESTORE_DB`, or the default.

    Raises:
        LogError: not a file that SQLite could open.
    """
    text = text or os.environ.get("RESTORE_DB") or str(default_path())
    try:
        # A plain path is taken as it stands: what would mean something in a URL ("?", "%") may be part of a name.
        is_url = "://" in text or text.startswith("sqlite:")
        url = make_url(text) if is_url else URL.create("sqlite", database=text)
    except ArgumentError as e:
        raise LogError(f"cannot read {text!r} as a database URL; write sqlite:///PATH or a plain path") from e
    if url.get_backend_name() != "sqlite":
        raise LogError(f"the log is a SQLite file, but {url.drivername!r} was asked for; write sqlite:///PATH")
    if not url.database or url.database == ":memory:":
        raise LogError("the log needs a file, since the engine and the app are two processes; write sqlite:///PATH")
    try:
        path = Path(url.database).expanduser().resolve()
    except (RuntimeError, ValueError, OSError) as e:  # an unknown ~user, a loop of links, a NUL byte
        raise LogError(f"{url.database!r} is no path that can be opened: {e}; write sqlite:///PATH") from e
    return url.set(drivername="sqlite", database=str(path))


def path_of(url: URL) -> Path:
    """The file behind a resolved URL."""
    assert url.database is not None
    return Path(url.database)


# --- opening ---------------------------------------------------------------------------------------------------------


def open_reader(url: URL) -> Engine:
    """A read-only engine. Keep transactions short: a long one keeps the WAL from being folded back.

    Raises:
        LogError: as `check`.
    """
    check(url)
    return make_engine(url, read_only=True, begin="BEGIN")


def open_writer(url: URL) -> Engine:
    """An engine whose transactions take the write lock when they begin; one connection per checkout, never pooled.

    Raises:
        LogError: as `check`.
    """
    check(url)
    return make_engine(url, read_only=False, begin="BEGIN IMMEDIATE")


open_policy_writer = open_writer


def hold_checkpoint_lock(url: URL) -> int | None:
    """Try to become the one connection of this log that checkpoints; the lock goes with the process, however it ends.

    Returns:
        The held file descriptor, or None where another process has the lock.
    """
    fd = os.open(f"{path_of(url)}.checkpoint", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


# --- schema ----------------------------------------------------------------------------------------------------------


def upgrade(url: URL) -> str:
    """Create the log or bring its schema up to date, and return the revision. Several processes may call it at once.

    Raises:
        LogError: a folder that cannot be written, a file that is no SQLite database, a schema newer than this program.
    """
    from alembic import command

    path = path_of(url)
    try:
        _refuse_what_is_no_file(path)
        if path.exists():
            _revision(url)  # somebody else's file is refused before anything is written beside it
        path.parent.mkdir(parents=True, exist_ok=True)
        with _file_lock(Path(f"{path}.lock")):
            if not path.exists():
                _set_aside(path)
                path.touch()
            try:
                # Looked at before anything is written: somebody else's database keeps even its journal mode.
                found = _revision(url)
                conn = sqlite3.connect(path)
                try:
                    # WAL lets readers and the writer work at once. It stays set in the file.
                    (mode,) = conn.execute("PRAGMA journal_mode=WAL").fetchone()
                finally:
                    conn.close()
                if mode != "wal":
                    raise LogError(
                        f"{path} lies on a file system without WAL support ({mode}); put the log on a local disk"
                    )
                # Only the newest revision needs no work; the lock and a look at the file are all that a second start
                # costs.
                if found != _newest():
                    with make_engine(url, read_only=False, begin="BEGIN IMMEDIATE").begin() as connection:
                        command.upgrade(_alembic_config(connection), "head")
            except (DatabaseError, sqlite3.DatabaseError) as e:
                raise LogError(
                    f"cannot use {path} as the log: {_reason(e)}; move it away or name another with --db"
                ) from e
    except OSError as e:
        raise LogError(
            f"cannot write the log {path}: {e.strerror or e}; choose another place with --db or RESTORE_DB"
        ) from e
    return check(url)


def _set_aside(path: Path) -> None:
    """A file that was moved away alone leaves its WAL here, which must not be taken for the new file's: it is kept
    under another name."""
    for suffix in ("-wal", "-shm"):
        side = Path(f"{path}{suffix}")
        if side.exists():
            side.replace(f"{path}.left{suffix}")


def check(url: URL) -> str:
    """The schema revision of an existing log.

    Raises:
        LogError: it is missing, no SQLite database, or of another schema than this program's.
    """
    path = path_of(url)
    try:
        if not path.exists():
            raise LogError(
                f"there is no log at {path}; start the server, or make one with: vllm-restore db upgrade --db {path}"
            )
        _refuse_what_is_no_file(path)
        found = _revision(url)
    except OSError as e:
        raise LogError(f"cannot read the log {path}: {e.strerror or e}") from e
    except (DatabaseError, sqlite3.DatabaseError) as e:
        hint = ""
        if not os.access(path, os.R_OK, effective_ids=True):
            hint = "; this user may not read it"
        elif not os.access(path.parent, os.W_OK, effective_ids=True):
            hint = f"; {path.parent} cannot be written, which a log with a -wal file needs: copy the log elsewhere"
        raise LogError(f"cannot read the log {path}: {_reason(e)}{hint}") from e
    if found is None:
        raise LogError(f"{path} is empty; run: vllm-restore db upgrade --db {path}")
    if found != _newest():
        raise LogError(f"{path} has the older schema {found}; run: vllm-restore db upgrade --db {path}")
    return found


def _alembic_config(connection: Connection | None = None) -> Any:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def _known_revisions() -> list[str]:
    """Every revision, newest first. Read off the file names: loading Alembic's scripts takes half a second."""
    return sorted((p.stem.split("_")[0] for p in (MIGRATIONS / "versions").glob("[0-9]*.py")), reverse=True)


def _newest() -> str:
    return _known_revisions()[0]


def _revision(url: URL) -> str | None:
    path = path_of(url)
    if path.stat().st_size == 0 and _bytes_of_wal(path):
        # Not even opened: SQLite takes such a -wal for a remnant and deletes it, and it may be all that is left.
        raise LogError(f"{path} is empty, and the rows of its -wal belong to another file; {_PUT_BACK}")
    try:
        conn = connect_read_only(path)
    except sqlite3.DatabaseError as e:
        if e.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise
        raise LogError(f"{path} is not a SQLite database; nothing was changed; name another file with --db") from e
    try:
        _look_behind_wal(path, conn)
        names = {name for (name,) in conn.execute("SELECT name FROM sqlite_master")}
        if not names:
            return None
        if "alembic_version" not in names:
            raise LogError(
                f"{path} is a SQLite database without this log's tables, so another program's; nothing was changed; "
                "name another file with --db"
            )
        row = conn.execute("SELECT version_num FROM alembic_version").fetchone()
    finally:
        conn.close()
    found = row[0] if row else None
    if found is not None and found not in _known_revisions():
        raise LogError(
            f"{path} has schema {found}, which this version does not know: it was written by a newer vllm-restore; "
            "update vllm-restore or name another file with --db"
        )
    return found


def _look_behind_wal(path: Path, conn: sqlite3.Connection) -> None:
    """Raises LogError where the file itself was overwritten or cut short, which its -wal hides: the newest pages, the
    first often among them, are read from there."""
    if not _bytes_of_wal(path):
        return
    try:
        with closing(connect_without_wal(path)) as alone:
            alone.execute("PRAGMA schema_version")
    except sqlite3.DatabaseError as e:
        if e.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
            raise LogError(f"{path} is not a SQLite database, though its -wal is of one; {_PUT_BACK}") from e
    (num_pages,) = conn.execute("PRAGMA page_count").fetchone()
    (page_bytes,) = conn.execute("PRAGMA page_size").fetchone()
    # Pages that only the -wal has may be missing, as they are where a checkpoint was killed; there are at most so many.
    # In this order, since a checkpoint has moved every page to the file when the -wal goes.
    num_needed = num_pages - _bytes_of_wal(path) // page_bytes
    if (num_bytes := path.stat().st_size) < num_needed * page_bytes:
        raise LogError(f"{path} was cut short to {num_bytes:,} bytes of {num_pages * page_bytes:,}; {_PUT_BACK}")


def _bytes_of_wal(path: Path) -> int:
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def _refuse_what_is_no_file(path: Path) -> None:
    # The file itself is for SQLite alone to open: POSIX drops every lock that a process has on a file as soon as the
    # process closes any descriptor of it, and with them what keeps another's checkpoint from our connections.
    if path.is_dir():
        raise LogError(f"{path} is a folder; name a file in it")
    # A pipe would keep whoever opens it waiting.
    if path.exists() and not path.is_file():
        raise LogError(f"{path} is no file but a pipe, a socket or a device; name a file with --db")


def _reason(e: Exception) -> str:
    return str(getattr(e, "orig", None) or e)


@contextmanager
def _file_lock(path: Path) -> Generator[None]:
    with path.open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


# --- appending -------------------------------------------------------------------------------------------------------


# Made once: `json.dumps` with separators of its own makes an encoder for each call, which costs more than the rest of a
# row.
_json_array = json.JSONEncoder(separators=(",", ":")).encode


def _values_of(columns: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    first, *more = columns
    if more:
        return attrgetter(first, *more)
    return lambda item: (getattr(item, first),)


def _insert(kind: type[Event]) -> tuple[str, Callable[[Any], tuple[Any, ...]]]:
    columns = tables.event_columns(kind)
    names = ", ".join((*tables.EVENT_HEADER, "kind", *columns))
    head = ", ".join(["?"] * len(tables.EVENT_HEADER))
    tail = ", ?" * len(columns)
    # The kind is the same for every row of the statement, so it is text in it, not a parameter.
    sql = f"INSERT INTO events ({names}) VALUES ({head}, '{kind.kind}'{tail})"
    values = _values_of(columns)
    if "cpu_block_ids" not in columns:
        return sql, values
    at = columns.index("cpu_block_ids")

    def with_array(e: Any) -> tuple[Any, ...]:
        row = values(e)
        return (*row[:at], _json_array(row[at]), *row[at + 1 :])

    return sql, with_array


_INSERTS = {kind: _insert(kind) for kind in EVENT_TYPES}
_STEP_FIELDS = tuple(c.name for c in tables.steps.c)[4:]
_INSERT_STEP = (
    f"INSERT OR REPLACE INTO steps (engine_id, step, monotonic_ns, wall_ns, {', '.join(_STEP_FIELDS)}) "
    f"VALUES (?, ?, ?, ?{', ?' * len(_STEP_FIELDS)})"
)
_step_values = attrgetter(*_STEP_FIELDS)
_STATE_FIELDS = tuple(c.name for c in tables.retention_states.c)[4:]
_INSERT_STATE = (
    f"INSERT OR REPLACE INTO retention_states (engine_id, step, monotonic_ns, wall_ns, {', '.join(_STATE_FIELDS)}) "
    f"VALUES (?, ?, ?, ?{', ?' * len(_STATE_FIELDS)})"
)
_state_values = attrgetter(*_STATE_FIELDS)
# A hash may be told twice (the engine's memory of what it told is bounded); the first telling stands.
_INSERT_HASH = "INSERT OR IGNORE INTO block_hashes (engine_id, hash, parent_hash, depth) VALUES (?, ?, ?, ?)"


def append(conn: Connection, engine_id: int, items: Sequence[Stamped]) -> int:
    """Write a batch in its order and its sums, inside the caller's transaction, and return the last event's `seq`.

    Rows go in through the driver's `executemany`: 3 to 8 µs of processor time each, by their width, where Core's insert
    objects cost three times that (`tests/bench/log_cost.py`), and the driver lets other threads run at every row.
    """
    seq = conn.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'").scalar_one()
    rows: defaultdict[type[Event], list[tuple[Any, ...]]] = defaultdict(list)
    hashes: list[tuple[int, bytes, bytes | None, int]] = []
    steps: list[tuple[Any, ...]] = []
    states: list[tuple[Any, ...]] = []
    rollups = Rollups(conn, engine_id)
    for step, monotonic_ns, wall_ns, item in items:
        if isinstance(item, ChainExtended):
            parents = (item.parent_hash, *item.hashes)
            hashes.extend((engine_id, h, parents[i], item.first_depth + i) for i, h in enumerate(item.hashes))
        elif isinstance(item, StepTaken):
            steps.append((engine_id, step, monotonic_ns, wall_ns, *_step_values(item)))
            rollups.add_step(step, wall_ns, item)
        elif isinstance(item, RetentionState):
            values = (_json_array(v) if isinstance(v, tuple) else v for v in _state_values(item))
            states.append((engine_id, step, monotonic_ns, wall_ns, *values))
        else:
            seq += 1
            kind = type(item)
            rows[kind].append((seq, engine_id, step, monotonic_ns, wall_ns, *_INSERTS[kind][1](item)))
            rollups.add(wall_ns, kind, item)
    if hashes:
        conn.exec_driver_sql(_INSERT_HASH, hashes)
    for kind, kind_rows in rows.items():
        conn.exec_driver_sql(_INSERTS[kind][0], kind_rows)
    if steps:
        conn.exec_driver_sql(_INSERT_STEP, steps)
    if states:
        conn.exec_driver_sql(_INSERT_STATE, states)
    # Last, so that a row that SQLite refuses is not in the sums.
    rollups.write(conn)
    return seq


# --- the policy ------------------------------------------------------------------------------------------------------


def read_policy(conn: Connection) -> VersionedPolicy:
    """The newest policy; version 0 with the defaults where nobody has set one."""
    p = tables.policies.c
    query = select(tables.policies).order_by(p.version.desc()).limit(1)
    row = conn.execute(query).one_or_none()
    if row is None:
        return VersionedPolicy(0, Policy())
    return VersionedPolicy(row.version, Policy.of(row))


def write_policy(
    engine: Engine, changes: dict[str, Any], author: str, *, wall_ns: int | None = None
) -> VersionedPolicy:
    """Change some toggles of the newest policy, as one row, and return it. Concurrent changes queue up. `wall_ns`: when
    it was asked for, if not now.

    Raises:
        PolicyError: an unknown key or a value out of bounds; nothing was written.
    """
    with engine.begin() as conn:
        policy = read_policy(conn).policy.changed(changes)
        values = {**policy.as_dict(), "created_wall_ns": wall_ns or time.time_ns(), "author": author}
        result = conn.execute(tables.policies.insert().values(values))
        key = result.inserted_primary_key
        assert key is not None
        return VersionedPolicy(key[0], policy)
