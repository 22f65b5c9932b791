"""One chain of block hashes and the branches that leave it: where does the path to some other hash meet this chain?

A row of the log names a run of blocks by its last hash only. That hash may lie in the chain, or in a branch: the store
of a sibling conversation begins in the common prefix and ends in the sibling's own blocks.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

_PARENT = "SELECT parent_hash FROM block_hashes WHERE engine_id = ? AND hash = ?"

# Walks from the deepest block to the head; every hash is stored once, with its parent.
_CHAIN = """
WITH RECURSIVE chain (hash, parent_hash, depth) AS (
    SELECT hash, parent_hash, depth FROM block_hashes WHERE engine_id = ?1 AND hash = ?2
    UNION ALL
    SELECT b.hash, b.parent_hash, b.depth
    FROM chain JOIN block_hashes b ON b.engine_id = ?1 AND b.hash = chain.parent_hash
)
SELECT hash, depth FROM chain ORDER BY depth
"""


def read_chain(conn: Connection, engine_id: int, tail: bytes) -> list[tuple[bytes, int]]:
    """(hash, depth) of every block from the head to `tail`; it starts later, or is empty, where the log lost a part."""
    return [(h, d) for h, d in conn.exec_driver_sql(_CHAIN, (engine_id, tail))]


def driver_of(conn: Connection) -> Any:
    """The driver's own connection, for what runs once a hash: SQLAlchemy's result objects cost ten times the read."""
    return conn.connection.driver_connection


class Branches:
    """Finds meetings and remembers every hash that it came by, so that many tails of one tree cost little."""

    def __init__(self, conn: Connection, engine_id: int, chain: Sequence[tuple[bytes, int]]) -> None:
        self._execute = driver_of(conn).execute
        self._engine_id = engine_id
        self._meetings: dict[bytes, int | None] = dict(chain)

    def meeting(self, tail: bytes) -> int | None:
        """The depth of the deepest block of the chain on the path from the head to `tail`; None if there is none."""
        path: list[bytes] = []
        at: bytes | None = tail
        while at is not None and at not in self._meetings:
            path.append(at)
            row = self._execute(_PARENT, (self._engine_id, at)).fetchone()
            at = row[0] if row else None
        depth = None if at is None else self._meetings[at]
        self._meetings.update(dict.fromkeys(path, depth))
        return depth
