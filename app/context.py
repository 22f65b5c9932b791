"""What the routes share while the app runs: the log, the tailer, the engine that vLLM gave us, if any.

One object an app, built by `create_app` or the plugin, reached by routes through `deps`. No globals.
"""

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.exc import DatabaseError

from app.live import Tailer
from app.queries.restored import RestoredHits
from app.settings import Settings
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
        self.restored = RestoredHits()
        self.tailer = Tailer(self.connect, poll_seconds=settings.poll_seconds, max_client_lag=settings.max_client_lag)
        self._reader: Engine | None = None
        self._writer: Engine | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> URL:
        """The log's resolved URL.

        Raises:
            LogError: what was given is no SQLite file.
        """
        return log.resolve_url(self.settings.db)

    def connect(self) -> Connection:
        """A read-only connection. The caller closes it.

        Raises:
            LogError: the log is missing or cannot be used.
        """
        with self._lock:
            if self._reader is None:
                self._reader = log.open_reader(self.url)
            reader = self._reader
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
        with self._lock:
            if self._writer is None:
                self._writer = log.open_policy_writer(self.url)
            return self._writer

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
        with self._lock:
            for engine in (self._reader, self._writer):
                if engine is not None:
                    engine.dispose()
            self._reader = self._writer = None
