"""The app's SQLAlchemy engines over the log, opened when first needed, and anew when another file lies in its place.

A pooled connection stays on the file that it opened, also when that one was deleted. Only `context` imports this.
"""

import threading
from collections.abc import Callable

from sqlalchemy import URL, Engine

from connector import log
from connector.log import LogError

FileId = tuple[int, int]
"""Device and inode."""


class LogEngines:
    """One reader and one writer. Safe to use from several threads.

    Args:
        url: gives the log's resolved URL; may raise LogError.
        replaced: called, without any lock held, when another file lies where the log was.
        is_recorded: no engine of this server will begin the log anew.
    """

    def __init__(self, url: Callable[[], URL], replaced: Callable[[], None], *, is_recorded: bool) -> None:
        self._url = url
        self._replaced = replaced
        self._is_recorded = is_recorded
        self._lock = threading.Lock()
        self._reader: Engine | None = None
        self._writer: Engine | None = None
        self._file: FileId | None = None

    def reader(self) -> Engine:
        """The engine that reads the file which lies there now.

        Raises:
            LogError: the log is missing, was deleted, or cannot be used.
        """
        with self._lock:
            had_one = self._file is not None
            is_new = self._look()
            if self._reader is None:
                self._reader = log.open_reader(self._url())
            reader = self._reader
        if is_new and had_one:
            self._replaced()
        return reader

    def writer(self) -> Engine:
        """The engine for a change of policy.

        Raises:
            LogError: as `reader`.
        """
        self.reader()
        with self._lock:
            if self._writer is None:
                self._writer = log.open_policy_writer(self._url())
            return self._writer

    def dispose(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._forget()

    def _look(self) -> bool:
        """Whether the file is not the one of the last look. Until one was there, opening says what is wrong."""
        url = self._url()
        try:
            stat = log.path_of(url).stat()
        except OSError as e:
            self._forget()
            if self._file is None:
                return False
            if not isinstance(e, FileNotFoundError):
                raise LogError(f"the log {url.database} cannot be read any more: {e.strerror or e}") from e
            hint = "" if self._is_recorded else "; the engine begins a new one within a second or two"
            raise LogError(f"the log {url.database} was deleted while the server runs{hint}") from e
        found = (stat.st_dev, stat.st_ino)
        if found == self._file:
            return False
        self._forget()
        self._file = found
        return True

    def _forget(self) -> None:
        for engine in (self._reader, self._writer):
            if engine is not None:
                engine.dispose()
        self._reader = self._writer = None
