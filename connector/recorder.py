"""The engine's pen: a bounded queue, one writer thread that turns it into transactions, and the watch for a new policy.

Log ring. The scheduler's thread only appends to a queue and reads one attribute; it never waits for the disk. What
does not fit into the queue is dropped, counted, and said in the log as `events_dropped`.
"""

import atexit
import logging
import os
import sqlite3
import threading
import time
from collections import deque
from typing import Protocol

from sqlalchemy import URL, Connection
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError

from connector import log
from connector.clock import MACHINE_CLOCK, Clock
from connector.connections import CHECKPOINT_PAGES
from connector.engine_row import EngineInfo, beat, policy_applied, sign_in
from connector.events import EventsDropped, Item, StepTaken
from connector.policy import PolicyError, VersionedPolicy

logger = logging.getLogger("vllm.restore")

CAPACITY = 65_536
BATCH_ITEMS = 10_000
CAUTIOUS_ITEMS = 256
FLUSH_SECONDS = 0.1
HEARTBEAT_SECONDS = 1.0
IDLE_SECONDS = 0.25
CLOSE_SECONDS = 12.0

ROW_ERRORS = (
    ValueError, TypeError, LookupError, OverflowError, DataError, IntegrityError, InterfaceError, ProgrammingError,
)  # fmt: skip
"""What SQLite or its driver says of a row that it will never take: half a surrogate pair, a number past 64 bits."""


class Pen(Protocol):
    """What the scheduler half and its journal write with, and read the policy and the time from.

    `Recorder` is the one that keeps what it is told. The attributes say what they say there.
    """

    clock: Clock
    num_unfinished: int

    @property
    def step(self) -> int: ...
    @property
    def policy(self) -> VersionedPolicy: ...
    @property
    def applied(self) -> VersionedPolicy: ...
    @property
    def num_dropped(self) -> int: ...
    @property
    def num_gaps(self) -> int: ...
    def begin_step(self) -> tuple[int, VersionedPolicy]: ...
    def record(self, event: Item) -> bool: ...
    def end_step(self, taken: StepTaken) -> bool: ...
    def close(self) -> bool: ...


class Recorder:
    """Records what one engine does. One thread produces (the scheduler's), one writes (this class's own).

    Args:
        url: a log that exists (`log.upgrade`).
        info: who writes.
        capacity: items that the queue holds; one more is dropped and counted.
        clock: what events are stamped with, and what the scheduler half reads.

    Raises:
        log.LogError: the log cannot be opened. Later failures never raise: they are counted and retried.
    """

    def __init__(self, url: URL, info: EngineInfo, *, capacity: int = CAPACITY, clock: Clock = MACHINE_CLOCK) -> None:
        self._url = url
        self.clock = clock
        self._capacity = capacity
        self._queue: deque[log.Stamped] = deque()
        self._batch: list[log.Stamped] = []
        self._unsaid_drops = 0
        # Each is counted by one thread alone: the scheduler's, the writer's.
        self._num_overflowed = 0
        self._num_refused = 0
        self.num_write_failures = 0
        """Batches that had to be tried again, since the start."""
        self._step = 0
        self._lock = threading.Condition(threading.Lock())
        self._wake = threading.Event()
        self._stopping = False
        self._closed = False
        self._checkpoint_fd: int | None = None
        self._data_version: int | None = None
        self._refused_policy: str | None = None
        self._is_beginning_anew = False
        self._writer = log.open_writer(url)
        self._conn: Connection | None = None
        self.num_unfinished = 0
        """Requests that the engine has and has not finished: while there are any, it will take another step."""
        self.num_reopened = 0
        """How often the log was begun anew because its file was deleted or replaced."""
        self._info = info
        self.engine_id = self._sign_in()
        # One thread is alive that must not keep the process: the atexit hook flushes where nobody called `close`.
        self._thread = threading.Thread(target=self._run, name="restore-recorder", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    # --- the scheduler's side -------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The step that has begun last; 0 before the first."""
        return self._step

    @property
    def policy(self) -> VersionedPolicy:
        """The newest policy that was seen. The engine obeys what `begin_step` returned."""
        return self._policy

    @property
    def applied(self) -> VersionedPolicy:
        """The policy that the log says is obeyed: an idle engine has answered for it before its next step begins."""
        return self._applied

    @property
    def num_dropped(self) -> int:
        """Items that are missing from the log since the start: they did not fit, or SQLite would not take them."""
        return self._num_overflowed + self._num_refused

    @property
    def num_gaps(self) -> int:
        """Grows whenever something that was recorded is not in the log: whoever relies on it has to tell it again."""
        return self._num_overflowed + self._num_refused + self.num_reopened

    @property
    def is_checkpointer(self) -> bool:
        """Whether this recorder's connection is the one of this log that checkpoints. False before the first beat."""
        return self._checkpoint_fd is not None

    def begin_step(self) -> tuple[int, VersionedPolicy]:
        """Start the next step: its number and the policy that holds during it."""
        # The lock is held for two assignments, here and where the writer answers for an idle engine: so exactly one of
        # the two says when a policy began to hold, and the step it names is exact.
        with self._lock:
            self._step += 1
            policy = self._policy
            is_new = policy.version != self._applied.version
            self._applied = policy
        if is_new:
            self.record(policy_applied(policy, is_idle=False, reason="toggle"))
        return self._step, policy

    def await_policy(self, version: int, timeout: float = 5.0) -> bool:
        """Block until this version of the policy was seen. For programs that drive an engine step by step; never the
        engine."""
        with self._lock:
            return self._lock.wait_for(lambda: self._policy.version >= version, timeout)

    def record(self, event: Item) -> bool:
        """Queue one event, stamped with the current step and both clocks.

        Returns:
            False where the queue was full: the event is lost, and counted.
        """
        return self._put(event)

    def end_step(self, taken: StepTaken) -> bool:
        """Queue the current step's row."""
        return self._put(taken)

    def _put(self, item: Item | StepTaken) -> bool:
        if len(self._queue) >= self._capacity:
            with self._lock:
                self._num_overflowed += 1
                self._unsaid_drops += 1
            return False
        if self._unsaid_drops and (said := self._take_unsaid_drops()) is not None:
            self._queue.append(said)
        self._queue.append((self._step, self.clock.monotonic_ns(), self.clock.wall_ns(), item))
        return True

    def _take_unsaid_drops(self) -> log.Stamped | None:
        """What is missing from the log and was not said yet. Both threads may say it, each drop is said once."""
        with self._lock:
            count, self._unsaid_drops = self._unsaid_drops, 0
        if not count:
            return None
        return self._step, self.clock.monotonic_ns(), self.clock.wall_ns(), EventsDropped(count)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        """Flush the queue, sign off, end the thread. Safe to call twice.

        Returns:
            True if everything that was recorded is in the log.
        """
        if not self._closed:
            self._closed = True
            self._stopping = True
            self._wake.set()
            self._thread.join(timeout)
            atexit.unregister(self.close)
            if num_lost := len(self._queue) + len(self._batch):
                logger.error("The log could not be flushed within %.0f s; %d items are lost", timeout, num_lost)
        return not self._thread.is_alive() and not self._queue and not self._batch

    # --- the writer's side ----------------------------------------------------------------------------------------

    def _sign_in(self) -> int:
        engine_id, self._policy = sign_in(self._writer, self._info, self.clock)
        self._applied = self._policy
        self._file = _identity(self._url)
        path, sqlite = self._url.database, sqlite3.sqlite_version
        logger.info("Recording to %s as engine %d (SQLite %s)", path, engine_id, sqlite)
        return engine_id

    def _run(self) -> None:
        last_beat = 0.0
        pending_since: float | None = None
        failing = False
        while True:
            stopping = self._stopping
            now = time.monotonic()
            try:
                is_beat = stopping or now - last_beat >= HEARTBEAT_SECONDS
                if is_beat:
                    self._begin_anew_where_the_file_is_gone()
                conn = self._connect()
                self._fill_batch()
                if self._batch or is_beat:
                    # After a failure in small bites: a disk that is all but full may still take those.
                    bite = CAUTIOUS_ITEMS if failing else BATCH_ITEMS
                    is_final = stopping and not self._queue and len(self._batch) <= bite
                    self._write(conn, bite, is_beat=is_beat, is_final=is_final)
                    last_beat = now if is_beat else last_beat
                if self._watch_policy(conn):
                    pending_since = now
                if pending_since is not None and now - pending_since >= IDLE_SECONDS and not self.num_unfinished:
                    pending_since = None
                    self._answer_for_an_idle_engine()
                failing = False
            except Exception as e:
                self.num_write_failures += 1
                if not failing:
                    logger.exception("Cannot write the log %s; trying again: %s", self._url.database, e)
                failing = True
                self._disconnect()
                if stopping:
                    break
            if stopping and not self._queue and not self._batch:
                break
            if failing or len(self._queue) < BATCH_ITEMS:
                self._wake.wait(FLUSH_SECONDS)
        self._disconnect()
        if self._checkpoint_fd is not None:
            os.close(self._checkpoint_fd)

    def _begin_anew_where_the_file_is_gone(self) -> None:
        """Somebody deleted or replaced the log: what is written to the old file, nobody can read."""
        if _identity(self._url) == self._file:
            return
        if not self._is_beginning_anew:
            self._is_beginning_anew = True
            logger.error(
                "The log %s was deleted or replaced while this engine runs; it begins anew", self._url.database
            )
        self._disconnect()
        if self._checkpoint_fd is not None:
            os.close(self._checkpoint_fd)
            self._checkpoint_fd = None
        log.upgrade(self._url)
        obeyed = self._policy
        self.engine_id = self._sign_in()
        if self._policy.version == 0 and obeyed.policy != self._policy.policy:
            # A new log knows of no toggle; this engine goes on as it was told.
            log.write_policy(self._writer, obeyed.policy.as_dict(), "engine, after its log was deleted")
        self.num_reopened += 1
        self._is_beginning_anew = False

    def _fill_batch(self) -> None:
        """Move items from the queue to the batch, which keeps those of a write that failed."""
        while self._queue and len(self._batch) < BATCH_ITEMS:
            self._batch.append(self._queue.popleft())
        if self._unsaid_drops and not self._queue and (said := self._take_unsaid_drops()) is not None:
            # The engine has fallen silent after an overflow.
            self._batch.append(said)

    def _write(self, conn: Connection, bite: int, *, is_beat: bool, is_final: bool) -> None:
        items = self._batch[:bite]
        try:
            with conn.begin():
                log.append(conn, self.engine_id, items)
                if is_beat:
                    self._beat(conn, is_final=is_final)
        except ROW_ERRORS as e:
            # One such row would come back with every try and stop the log for ever. The others are written.
            logger.error("A row does not go into the log: %s", e)
            with conn.begin():
                refused = sum(not self._write_one(conn, item) for item in items)
                if is_beat:
                    self._beat(conn, is_final=is_final)
            self._num_refused += refused
        del self._batch[:bite]

    def _write_one(self, conn: Connection, item: log.Stamped) -> bool:
        try:
            log.append(conn, self.engine_id, [item])
        except ROW_ERRORS:
            log.append(conn, self.engine_id, [(*item[:3], EventsDropped(1))])
            return False
        return True

    def _watch_policy(self, conn: Connection) -> bool:
        """Take over a policy that is newer than the one that holds; True if there was one."""
        raw = conn.connection.driver_connection
        assert raw is not None
        # Changes when another connection has committed anything. It means something on one connection only.
        (data_version,) = raw.execute("PRAGMA data_version").fetchone()
        if data_version == self._data_version:
            return False
        try:
            with conn.begin():
                newest = log.read_policy(conn)
        except PolicyError as e:
            if str(e) != self._refused_policy:
                self._refused_policy = str(e)
                logger.error("The newest policy in %s is not obeyed: %s", self._url.database, e)
            newest = self._policy
        self._data_version = data_version
        if newest.version == self._policy.version:
            return False
        with self._lock:
            self._policy = newest
            self._lock.notify_all()
        return True

    def _answer_for_an_idle_engine(self) -> None:
        """No step has begun since the policy changed, so nobody has said that it holds: say that the next step
        obeys."""
        with self._lock:
            policy = self._policy
            if policy.version == self._applied.version:
                return
            self._applied = policy
            step = self._step
        event = policy_applied(policy, is_idle=True, reason="toggle")
        self._batch.append((step, self.clock.monotonic_ns(), self.clock.wall_ns(), event))

    def _beat(self, conn: Connection, *, is_final: bool) -> None:
        beat(conn, self.engine_id, self.clock, is_final=is_final)
        if self._checkpoint_fd is None:
            self._take_over_checkpoints()

    def _connect(self) -> Connection:
        if self._conn is None:
            self._conn = self._writer.connect()
            if self._checkpoint_fd is not None:
                self._set_autocheckpoint(self._conn)
        return self._conn

    def _take_over_checkpoints(self) -> None:
        self._checkpoint_fd = log.hold_checkpoint_lock(self._url)
        if self._checkpoint_fd is not None and self._conn is not None:
            self._set_autocheckpoint(self._conn)

    @staticmethod
    def _set_autocheckpoint(conn: Connection) -> None:
        raw = conn.connection.driver_connection
        assert raw is not None
        raw.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")

    def _disconnect(self) -> None:
        if self._conn is not None:
            try:
                self._conn.close()
            except SQLAlchemyError as e:
                logger.debug("Closing a broken connection: %s", e)
            self._conn = None
            self._data_version = None


def _identity(url: URL) -> tuple[int, int] | None:
    """Which file the path names now; None where there is none."""
    try:
        found = log.path_of(url).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
