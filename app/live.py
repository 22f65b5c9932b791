"""One tailer of the log for everyone who follows it: streams, and changes of policy that wait for an answer.

While anyone follows, one thread asks one read-only connection every tenth of a second whether the file has changed
(`PRAGMA data_version`: no row is read while nothing happens) and reads what is new once for all. The newest rows stay
in one ring. A follower has no queue of its own but a place in the log; one that falls behind by more than the bound is
told the gap and goes on at the end, so that memory does not grow with slow clients.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from fastapi.sse import ServerSentEvent
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.exits import Transport
from app.models import EventRow, Gap
from app.queries import events as queries
from connector.log import LogError

logger = logging.getLogger("vllm.restore")

GRACE_LOOKS = 10


class Follower:
    """One who follows. `wait` returns when there may be something new, or when the time is over."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def notify(self) -> None:
        """There is something new, or the tailer closes."""
        self._news.set()

    async def wait(self, seconds: float) -> bool:
        """True if there was news within `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        self._news.clear()
        return True


class Tailer:
    """Reads new rows once for all followers. Lives on one event loop; the reading is done in its own thread.

    Args:
        connect: gives a read-only connection to the log; may raise LogError.
        poll_seconds: between two looks at the file.
        max_client_lag: rows that the ring holds, and that a follower may be behind.
    """

    def __init__(self, connect: Callable[[], Connection], *, poll_seconds: float, max_client_lag: int) -> None:
        self._connect = connect
        self._poll_seconds = poll_seconds
        self._max_lag = max_client_lag
        self._ring: deque[EventRow] = deque(maxlen=max_client_lag)
        self._followers: set[Follower] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._num_logs = 0
        self.exit_signalled: Callable[[], bool] = lambda: False
        """Whether the server wants to exit; asked at every look."""
        self.open_transports: Callable[[], list[Transport]] = list
        """The connections of the streams that the server has open."""
        self.newest = 0
        """The newest row that was seen."""

    @property
    def num_followers(self) -> int:
        """How many follow now."""
        return len(self._followers)

    @contextmanager
    def follow(self) -> Generator[Follower]:
        """Be told of news inside the block."""
        follower = Follower()
        self._followers.add(follower)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="restore-tailer")
        try:
            yield follower
        finally:
            self._followers.discard(follower)

    def begin_anew(self) -> None:
        """Another file lies where the log was, with numbers of its own: streams end, and clients come again.

        Safe to call from any thread: followers see it at the next look.
        """
        self._num_logs += 1

    async def close(self) -> None:
        """End every stream and the reading."""
        self._closing = True
        self._notify_all()
        if self._task is not None:
            await self._task

    async def stream(
        self,
        after: int,
        heartbeat_seconds: float,
        kinds: Sequence[str] | None,
        request: str | None,
        other_place: int | None = None,
    ) -> AsyncIterator[ServerSentEvent]:
        """Rows after `after` as server-sent events, until the client leaves or the server wants to exit.

        Args:
            other_place: the client's place where it is beyond the log's end, so of another log.
        """
        place = after
        num_logs = self._num_logs
        with self.follow() as follower:
            yield ServerSentEvent(comment="vllm-restore", retry=1000)
            if other_place is not None:
                yield _gap(other_place, after + 1, is_other_log=True)
            while not self._closing and num_logs == self._num_logs:
                try:
                    rows, start = await self._rows_after(place)
                except (LogError, SQLAlchemyError):
                    return  # The reading thread says why; whoever comes again is told, too.
                if start != place:
                    yield _gap(place, start + 1, is_other_log=False)
                for row in rows:
                    if queries.matches(row, kinds, request):
                        yield ServerSentEvent(event="log", id=str(row.seq), raw_data=row.model_dump_json())
                # No row where one should be: it was deleted.
                place = rows[-1].seq if rows else max(start, self.newest)
                if place >= self.newest and not await follower.wait(heartbeat_seconds):
                    yield ServerSentEvent(comment="still here")

    async def _rows_after(self, place: int) -> tuple[list[EventRow], int]:
        """The rows to send next, and the place that they follow: later than `place` where rows are skipped."""
        start = place if self.newest - place <= self._max_lag else self.newest
        if start >= self.newest:
            return [], start
        if self._ring and self._ring[0].seq <= start + 1:
            return [row for row in self._ring if row.seq > start], start
        return await asyncio.to_thread(self._read, start), start

    def _read(self, after: int) -> list[EventRow]:
        with self._connect() as conn, conn.begin():
            return queries.read_after(conn, after, self._max_lag)

    async def _run(self) -> None:
        """Read for as long as anyone follows."""
        # Asked again after the connection was closed, since someone may have come meanwhile.
        while self._followers and not self._closing:
            await self._read_until_alone()
        if self._closing:
            await self._cut_off_stalled()

    async def _cut_off_stalled(self) -> None:
        """Streams end by themselves now, but what was sent to a client that reads nothing would never be gone."""
        for _ in range(GRACE_LOOKS):
            if not self.open_transports():
                return
            await asyncio.sleep(self._poll_seconds)
        for transport in self.open_transports():
            transport.abort()

    async def _read_until_alone(self) -> None:
        loop = asyncio.get_running_loop()
        # What came while nobody followed is not in it.
        self._ring.clear()
        watch = _Watch(self._connect, self._max_lag)
        num_logs = self._num_logs
        with ThreadPoolExecutor(1, "restore-tailer") as thread:
            try:
                while self._followers and not self._closing:
                    has_news = await loop.run_in_executor(thread, watch.look)
                    if num_logs != self._num_logs:
                        # The caller begins again with an empty ring, and streams that wait see that theirs is over.
                        self.newest = 0
                        return
                    if has_news:
                        self._take(watch)
                    if self.exit_signalled():
                        self._closing = True
                    else:
                        await asyncio.sleep(self._poll_seconds)
            finally:
                await loop.run_in_executor(thread, watch.close)
                self._notify_all()

    def _take(self, watch: "_Watch") -> None:
        if watch.rows:
            if self._ring and watch.rows[0].seq != self._ring[-1].seq + 1:
                self._ring.clear()
            self._ring.extend(watch.rows)
        self.newest = watch.newest
        self._notify_all()

    def _notify_all(self) -> None:
        for follower in self._followers:
            follower.notify()


def _gap(after: int, following: int, *, is_other_log: bool) -> ServerSentEvent:
    gap = Gap(after_seq=after, next_seq=following, is_other_log=is_other_log)
    return ServerSentEvent(event="gap", raw_data=gap.model_dump_json())


class _Watch:
    """The one connection, used by the tailer's thread only."""

    def __init__(self, connect: Callable[[], Connection], max_rows: int) -> None:
        self._connect = connect
        self._max_rows = max_rows
        self._conn: Connection | None = None
        self._version = -1
        self._is_failing = False
        self.newest = -1
        self.rows: list[EventRow] = []

    def look(self) -> bool:
        """Whether another connection has changed the file; then `rows` has what is new, `max_rows` at most."""
        try:
            # Asked for at every look, since it is this that finds another file in the log's place.
            fresh = self._connect()
            if self._conn is None or self._conn.engine is not fresh.engine:
                self.close()
                self._conn = fresh
            else:
                fresh.close()
            version: int = self._conn.exec_driver_sql("PRAGMA data_version").scalar_one()
            self._conn.rollback()
            if version == self._version:
                return False
            with self._conn.begin():
                newest = queries.newest_seq(self._conn)
                # At the first look nothing is new: whoever wants older rows reads them.
                known = newest if self.newest < 0 else max(self.newest, newest - self._max_rows)
                self.rows = queries.read_after(self._conn, known, self._max_rows) if newest > known else []
            self.newest, self._version = newest, version
            self._is_failing = False
        except (LogError, SQLAlchemyError) as e:
            if not self._is_failing:
                logger.warning("Cannot follow the log; trying again: %s", e)
            self._is_failing = True
            self.close()
            return False
        return True

    def close(self) -> None:
        """Let go of the connection."""
        if self._conn is not None:
            self._conn.close()
            self._conn = None
