"""How many tokens were found in the CPU tier thanks to a re-store.

A block of the CPU tier holds what was copied into it last, and it cannot be given to something else while it is read.
So a loaded block is there thanks to a re-store exactly if the newest copy into that CPU block, before it in the log's
order, was a re-store. That is one pass over the log, which remembers where it stopped: the first call on a long log
takes seconds, every other one a moment.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from app.queries.engines import group_block_sizes

CHUNK = 20_000
# The plus keeps SQLite from using the index on `kind`, whose order is not the log's.
_READ = """
SELECT seq, engine_id, wall_ns, kind, request_id, kv_group, first_index, cpu_block_ids,
       gpu_hit_tokens, cpu_hit_tokens, is_resumed
FROM events
WHERE seq > ? AND +kind IN ('blocks_stored', 'blocks_restored', 'blocks_loaded', 'lookup', 'request_finished')
ORDER BY seq LIMIT ?
"""


@dataclass(slots=True)
class _Hit:
    """One lookup and the tokens of its CPU hit that a re-store gave, as disjoint intervals of the prompt."""

    wall_ns: int
    first_token: int
    end_token: int
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def add(self, start: int, end: int) -> None:
        """Count an interval once, even where several KV-cache groups hold the same tokens."""
        start, end = max(start, self.first_token), min(end, self.end_token)
        if start >= end:
            return
        rest: list[tuple[int, int]] = []
        for a, b in self.spans:
            if b < start or a > end:
                rest.append((a, b))
            else:
                start, end = min(a, start), max(b, end)
        self.spans = [*rest, (start, end)]

    @property
    def tokens(self) -> int:
        return sum(b - a for a, b in self.spans)


class RestoredHits:
    """The pass and what it found. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._last_seq = -1
        self._restored: dict[int, set[int]] = {}
        self._open: dict[tuple[int, str], _Hit | None] = {}
        self._hits: list[_Hit] = []
        self._block_sizes: dict[int, list[int]] = {}

    def catch_up(self, connect: Callable[[], Connection]) -> None:
        """Read what is new, in short transactions."""
        with self._lock:
            is_behind = True
            while is_behind:
                with connect() as conn, conn.begin():
                    is_behind = self._read(conn)

    def tokens(self, since_ns: int, until_ns: int) -> int:
        """Tokens of lookups in a range of wall time."""
        with self._lock:
            return sum(h.tokens for h in self._hits if since_ns <= h.wall_ns < until_ns)

    def tokens_by_bucket(self, since_ns: int, until_ns: int, bucket_ns: int) -> dict[int, int]:
        """The same by bucket index; buckets with none are left out."""
        sums: dict[int, int] = {}
        with self._lock:
            for hit in self._hits:
                if since_ns <= hit.wall_ns < until_ns:
                    i = (hit.wall_ns - since_ns) // bucket_ns
                    sums[i] = sums.get(i, 0) + hit.tokens
        return sums

    def _read(self, conn: Connection) -> bool:
        """Read a chunk; True if there is more."""
        newest: int = conn.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM events").scalar_one()
        if newest < self._last_seq:
            self._forget()  # another file lies there now
        if self._last_seq < 0:
            # Before the first re-store there is nothing to find.
            first = conn.exec_driver_sql("SELECT min(seq) FROM events WHERE kind = 'blocks_restored'").scalar_one()
            if first is None:
                return False
            self._last_seq = first - 1
        if newest == self._last_seq:
            return False
        rows = conn.exec_driver_sql(_READ, (self._last_seq, CHUNK)).all()
        for row in rows:
            self._take(conn, row)
        is_full = len(rows) == CHUNK
        self._last_seq = rows[-1][0] if is_full else newest
        return is_full

    def _take(self, conn: Connection, row: Any) -> None:
        _, engine, wall_ns, kind, request, group, first_index, ids_text, gpu_hit, cpu_hit, is_resumed = row
        if kind == "lookup":
            # A lookup after a preemption is not counted in the totals, so it is not counted here.
            is_counted = cpu_hit and not is_resumed
            self._open[engine, request] = _Hit(wall_ns, gpu_hit, gpu_hit + cpu_hit) if is_counted else None
        elif kind == "request_finished":
            self._open.pop((engine, request), None)
        else:
            ids: list[int] = json.loads(ids_text)
            restored = self._restored.setdefault(engine, set())
            if kind == "blocks_stored":
                restored.difference_update(ids)
            elif kind == "blocks_restored":
                restored.update(ids)
            elif restored and (hit := self._open.get((engine, request))) is not None:
                self._load(hit, self._block_size(conn, engine, group), first_index, [i in restored for i in ids])

    def _load(self, hit: _Hit, block_size: int, first_index: int, are_restored: list[bool]) -> None:
        had_none = not hit.spans
        for i, is_restored in enumerate(are_restored, first_index):
            if is_restored:
                hit.add(i * block_size, (i + 1) * block_size)
        if had_none and hit.spans:
            self._hits.append(hit)

    def _block_size(self, conn: Connection, engine: int, group: int) -> int:
        if engine not in self._block_sizes:
            self._block_sizes[engine] = group_block_sizes(conn, engine)
        return self._block_sizes[engine][group]
