"""What the routes share while the app runs: the log, the tailer, the engine that vLLM gave us, if any.

One object an app, built by `create_app` or the plugin, reached by routes through `deps`. No globals.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DatabaseError

from app.live import Tailer
from app.log_engines import LogEngines
from app.queries.conversation_index import ConversationIndex
from app.settings import Settings
from app.shadows import ShadowFollower
from connector import log
from connector.log import LogError


class EngineClient(Protocol):
    """The two properties of vLLM's engine client that the app reads."""

    @property
    def is_running(self) -> bool: ...

    @property
    def errored(self) -> bool: ...


class AppContext:
    """Opens the log when it is first needed, so that a log that is missing at start may appear later."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.api_keys = settings.api_keys
        self.bound_host = settings.bound_host
        self.engine_client: EngineClient | None = None
        self._engines = LogEngines(lambda: self.url, self._begin_anew, is_recorded=settings.is_recorded)
        self._conversations = ConversationIndex()
        self.shadows = ShadowFollower(self.named_log)
        self.tailer = Tailer(self.connect, poll_seconds=settings.poll_seconds, max_client_lag=settings.max_client_lag)

    @property
    def url(self) -> URL:
        """The log's resolved URL.

        Raises:
            LogError: what was given is no SQLite file.
        """
        return log.resolve_url(self.settings.db)

    def named_log(self) -> str:
        """The log's file, or what was given where that names none."""
        try:
            return str(self.url.database)
        except LogError:
            return self.settings.db or ""

    def connect(self) -> Connection:
        """A read-only connection. The caller closes it.

        Raises:
            LogError: the log is missing, was deleted, or cannot be used.
        """
        reader = self._engines.reader()
        try:
            return reader.connect()
        except DatabaseError as e:
            raise LogError(f"cannot read the log {self.url.database}: {e.orig}") from e

    @contextmanager
    def snapshot(self) -> Generator[Connection]:
        """One short read transaction: every query in it sees the same rows."""
        with self.connect() as conn, conn.begin():
            yield conn

    def policy_writer(self) -> Engine:
        """The engine for the app's one write: a row of `policies`.

        Raises:
            LogError: the log is missing or cannot be used.
        """
        return self._engines.writer()

    def conversations(self) -> ConversationIndex:
        """Which request goes on from which, up to the log's last row.

        Raises:
            LogError: the log is missing or cannot be used.
        """
        # First, since it may find that what was read so far is of another file.
        self._engines.reader()
        index = self._conversations
        index.catch_up(self.connect)
        return index

    def _begin_anew(self) -> None:
        # What was grouped, and the numbers that streams have, are of the file that is gone.
        self._conversations = ConversationIndex()
        self.shadows.begin_anew()
        self.tailer.begin_anew()

    def now_ns(self) -> int:
        """The wall clock, in nanoseconds since the epoch."""
        return time.time_ns()

    def engine_failure(self) -> str | None:
        """Why vLLM's engine cannot work, or None."""
        client = self.engine_client
        if client is not None and client.errored and not client.is_running:
            return "vLLM's engine has died; see the server's own log"
        return None

    async def close(self) -> None:
        """Stop following the log and let go of the file."""
        await self.tailer.close()
        await asyncio.to_thread(self.shadows.close)
        self._engines.dispose()
