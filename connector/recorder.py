"""The engine's pen: a bounded queue, one writer thread that turns it into transactions, and the watch for a new policy.

Log ring. The scheduler's thread only appends to a queue and reads one attribute; it never waits for the disk. What
does not fit into the queue is dropped, counted, and said in the log as `events_dropped`.
"""

import atexit
import json
import logging
import os
import socket
import sqlite3
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass

from sqlalchemy import URL, Connection
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError, SQLAlchemyError

from connector import log, tables
from connector.connections import CHECKPOINT_PAGES
from connector.events import ChainExtended, Event, EventsDropped, PolicyApplied, StepTaken
from connector.policy import PolicyError, VersionedPolicy

logger = logging.getLogger("vllm.restore")

CAPACITY = 65_536
BATCH_ITEMS = 10_000
FLUSH_SECONDS = 0.1
HEARTBEAT_SECONDS = 1.0
IDLE_SECONDS = 0.25
CLOSE_SECONDS = 12.0

ROW_ERRORS = (
    ValueError, TypeError, LookupError, OverflowError, DataError, IntegrityError, InterfaceError, ProgrammingError,
)  # fmt: skip
"""What SQLite or its driver says of a row that it will never take: half a surrogate pair, a number past 64 bits."""


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One KV-cache group, as the `kv_groups` column says it. `block_size` in tokens."""

    block_size: int
    kind: str
    is_prefix_cacheable: bool


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Who writes: the columns of the `engines` table that the engine knows at its start."""

    engine_uid: str
    dp_index: int
    model: str
    vllm_version: str
    restore_version: str
    hash_block_size: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    block_bytes: int
    kv_groups: tuple[KVGroup, ...]
    restore_support: str


class Recorder:
    """Records what one engine does. One thread produces (the scheduler's), one writes (this class's own).

    Args:
        url: a log that exists (`log.upgrade`).
        info: who writes.
        capacity: items that the queue holds; one more is dropped and counted.

    Raises:
        log.LogError: the log cannot be opened. Later failures never raise: they are counted and retried.
    """

    def __init__(self, url: URL, info: EngineInfo, *, capacity: int = CAPACITY) -> None:
        self._url = url
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
        self._writer = log.open_writer(url)
        self._conn: Connection | None = None
        self.engine_id = self._sign_in(info)
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
    def num_dropped(self) -> int:
        """Items that are missing from the log since the start: they did not fit, or SQLite would not take them."""
        return self._num_overflowed + self._num_refused

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
            is_new = policy.version != self._applied_version
            self._applied_version = policy.version
        if is_new:
            self.record(policy_applied(policy, is_idle=False, reason="toggle"))
        return self._step, policy

    def await_policy(self, version: int, timeout: float = 5.0) -> bool:
        """Block until this version of the policy was seen. For programs that drive an engine step by step; never the
        engine."""
        with self._lock:
            return self._lock.wait_for(lambda: self._policy.version >= version, timeout)

    def record(self, event: Event | ChainExtended) -> bool:
        """Queue one event, stamped with the current step and both clocks.

        Returns:
            False where the queue was full: the event is lost, and counted.
        """
        return self._put(event)

    def end_step(self, taken: StepTaken) -> bool:
        """Queue the current step's row."""
        return self._put(taken)

    def _put(self, item: Event | ChainExtended | StepTaken) -> bool:
        if len(self._queue) >= self._capacity:
            with self._lock:
                self._num_overflowed += 1
                self._unsaid_drops += 1
            return False
        if self._unsaid_drops and (said := self._take_unsaid_drops()) is not None:
            self._queue.append(said)
        self._queue.append((self._step, time.monotonic_ns(), time.time_ns(), item))
        return True

    def _take_unsaid_drops(self) -> log.Stamped | None:
        """What is missing from the log and was not said yet. Both threads may say it, each drop is said once."""
        with self._lock:
            count, self._unsaid_drops = self._unsaid_drops, 0
        return (self._step, time.monotonic_ns(), time.time_ns(), EventsDropped(count)) if count else None

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

    def _sign_in(self, info: EngineInfo) -> int:
        now = time.time_ns()
        row = {k: v for k, v in asdict(info).items() if k != "kv_groups"}
        row |= {
            "kv_groups": json.dumps([asdict(g) for g in info.kv_groups]),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "sqlite_version": sqlite3.sqlite_version,
            "started_wall_ns": now,
            "started_monotonic_ns": time.monotonic_ns(),
            "heartbeat_wall_ns": now,
        }
        try:
            with self._writer.begin() as conn:
                key = conn.execute(tables.engines.insert().values(row)).inserted_primary_key
                assert key is not None
                self._policy = log.read_policy(conn)
                start = policy_applied(self._policy, is_idle=True, reason="start")
                log.append(conn, key[0], [(0, time.monotonic_ns(), now, start)])
        except SQLAlchemyError as e:
            raise log.LogError(f"cannot write the log {self._url.database}: {getattr(e, 'orig', None) or e}") from e
        except PolicyError as e:
            raise log.LogError(
                f"the newest row of policies in {self._url.database} cannot be obeyed: {e}; delete that row"
            ) from e
        self._applied_version = self._policy.version
        logger.info("Recording to %s as engine %d (SQLite %s)", self._url.database, key[0], sqlite3.sqlite_version)
        return key[0]

    def _run(self) -> None:
        last_beat = 0.0
        pending_since: float | None = None
        failing = False
        while True:
            stopping = self._stopping
            now = time.monotonic()
            try:
                conn = self._connect()
                self._fill_batch()
                is_beat = stopping or now - last_beat >= HEARTBEAT_SECONDS
                if self._batch or is_beat:
                    self._write(conn, is_beat, final=stopping and not self._queue)
                    last_beat = now if is_beat else last_beat
                if self._watch_policy(conn):
                    pending_since = now
                if pending_since is not None and now - pending_since >= IDLE_SECONDS:
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

    def _fill_batch(self) -> None:
        """Move items from the queue to the batch, which keeps those of a write that failed."""
        while self._queue and len(self._batch) < BATCH_ITEMS:
            self._batch.append(self._queue.popleft())
        if self._unsaid_drops and not self._queue and (said := self._take_unsaid_drops()) is not None:
            # The engine has fallen silent after an overflow.
            self._batch.append(said)

    def _write(self, conn: Connection, is_beat: bool, *, final: bool) -> None:
        try:
            with conn.begin():
                log.append(conn, self.engine_id, self._batch)
                if is_beat:
                    self._beat(conn, final=final)
        except ROW_ERRORS as e:
            # One such row would come back with every try and stop the log for ever. The others are written.
            logger.error("A row does not go into the log: %s", e)
            with conn.begin():
                refused = sum(not self._write_one(conn, item) for item in self._batch)
                if is_beat:
                    self._beat(conn, final=final)
            self._num_refused += refused
        self._batch.clear()

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
            if policy.version == self._applied_version:
                return
            self._applied_version = policy.version
            step = self._step
        event = policy_applied(policy, is_idle=True, reason="toggle")
        self._batch.append((step, time.monotonic_ns(), time.time_ns(), event))

    def _beat(self, conn: Connection, *, final: bool) -> None:
        now = time.time_ns()
        values: dict[str, int] = {"heartbeat_wall_ns": now}
        if final:
            values["stopped_wall_ns"] = now
        conn.execute(tables.engines.update().where(tables.engines.c.id == self.engine_id).values(values))
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


def policy_applied(versioned: VersionedPolicy, *, is_idle: bool, reason: str) -> PolicyApplied:
    """The event that says that a policy holds."""
    p = versioned.policy
    return PolicyApplied(
        policy_version=versioned.version,
        enabled=p.enabled,
        mode=p.mode,
        max_restore_blocks_per_step=p.max_restore_blocks_per_step,
        is_idle=is_idle,
        reason=reason,
    )
