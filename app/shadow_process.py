"""The process that follows the newest engine of a log with shadows: `shadows` starts it, and reads what it tells.

    python -m app.shadow_process LOG

A line at its stdin says that somebody asks. Without one for `FORGET_SECONDS` it stands still, and goes on where it was
with the next; when stdin ends, it ends. Each line at its stdout is a `Told`.
"""

import os
import sqlite3
import sys
import threading
import time

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.aside import yield_to_all
from app.queries.traffic import TierShape, newest_engine, read_shape
from app.shadow_feed import ShadowFeed
from app.shadow_told import Told, tell
from app.shadows import notes_of, usual_shadows
from connector import log
from connector.log import LogError

CHUNK = 500
IDLE_SECONDS = 1.0
FORGET_SECONDS = 120.0


class Following:
    """The shadows of whatever engine is the newest."""

    def __init__(self) -> None:
        self._shape: TierShape | None = None
        self._feed: ShadowFeed | None = None
        self._told = Told()

    def take(self, conn: Connection) -> tuple[int, Told | None]:
        """Read one piece. Returns how many rows it had, and what to tell, if anything."""
        engine_id = newest_engine(conn)
        if engine_id is None:
            return 0, self._unless_known(Told(is_caught_up=True))
        # Against what was told: a piece that failed has told nothing.
        begins = self._told.engine is None or self._told.engine.engine_id != engine_id
        if begins:
            self._shape = read_shape(conn, engine_id)
            is_followed = self._shape is not None and self._shape.unsupported is None
            self._feed = ShadowFeed(self._shape, usual_shadows(self._shape)) if self._shape and is_followed else None
        assert self._shape is not None
        num_rows = self._feed.take(conn, CHUNK) if self._feed is not None else 0
        is_caught_up = num_rows < CHUNK
        is_known = is_caught_up == self._told.is_caught_up and self._told.problem is None
        if not num_rows and not begins and is_known:
            return 0, None
        notes = notes_of(self._shape)
        return num_rows, self._unless_known(
            tell(self._shape, notes, self._feed, begins=begins, is_caught_up=is_caught_up)
        )

    def fails(self, problem: Exception) -> Told | None:
        """The log cannot be read now."""
        return self._unless_known(self._told.model_copy(update={"begins": False, "sums": {}, "problem": str(problem)}))

    def pauses(self) -> Told | None:
        """Nobody asks: what comes from now on is not followed."""
        return self._unless_known(self._told.model_copy(update={"begins": False, "sums": {}, "is_caught_up": False}))

    def _unless_known(self, told: Told) -> Told | None:
        if told == self._told:
            return None
        self._told = told
        return told


class Asked:
    """When somebody asked last, as stdin tells."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._wake = threading.Event()
        threading.Thread(target=self._listen, name="asked", daemon=True).start()

    def _listen(self) -> None:
        for _ in sys.stdin:
            self._at = time.monotonic()
            self._wake.set()
        # The server is gone, also if it was killed. There is nothing to put in order: the log was only read.
        os._exit(0)

    def rest(self) -> None:
        """Wait a moment, or for as long as nobody asks."""
        is_wanted = time.monotonic() - self._at < FORGET_SECONDS
        self._wake.wait(IDLE_SECONDS if is_wanted else None)
        self._wake.clear()

    @property
    def is_forgotten(self) -> bool:
        return time.monotonic() - self._at >= FORGET_SECONDS


def main(db: str) -> None:
    """Follow until stdin ends."""
    yield_to_all()
    asked, following = Asked(), Following()
    url = log.resolve_url(db)
    reader = None
    while True:
        num_rows, begun = 0, time.monotonic()
        try:
            reader = reader or log.open_reader(url)
            # Each piece is a short transaction, so that the WAL can be folded back meanwhile.
            with reader.connect() as conn, conn.begin():
                num_rows, told = following.take(conn)
        except (LogError, SQLAlchemyError, sqlite3.Error) as e:
            told = following.fails(e)
        say(told)
        if asked.is_forgotten:
            say(following.pauses())
        if not num_rows or asked.is_forgotten:
            asked.rest()
        else:
            # On two cores even the lowest priority is felt: most of the time belongs to others.
            time.sleep(2 * (time.monotonic() - begun))


def say(told: Told | None) -> None:
    if told is not None:
        sys.stdout.write(told.model_dump_json() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
