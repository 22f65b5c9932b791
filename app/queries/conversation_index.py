"""Which request goes on from which: one pass over the log's requests, which remembers where it stopped.

Hashes do not say who is talking, so a rule has to. B goes on from A if the deepest full block of A's prompt and output
lies on the chain of B's prompt, and A generated a part of that block; of several such A the deepest, then the newest.
A block with generated tokens in it is hardly ever shared by chance, while a prompt's last block often is: a thousand
questions behind one system prompt are a thousand conversations. Where an output filled no block the next turn is linked
to the turn before it, or begins anew. Where that finds nothing, requests of one `session_id` follow each other.

`context` keeps one of these; `conversations`, `chain` and `tier` read it.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from app.queries.branches import driver_of

MAX_REQUESTS = 20_000
"""That are kept. At twice as many the older ones are forgotten."""
MEMO = 50_000
NO_LOSS = ("cache_skipped", "last_token_rule", "never_computed", "computing")
"""Causes, and their details, of a cut inside the turn before that lost nothing: what was missing there had not been
computed, as the block that a turn's last token completes, or was not asked for."""
SHORT_WAY = 50_000
"""Rows of the log that are rather read one by one than found by the index on their kind."""

_KINDS = "IN ('request_started', 'lookup', 'request_finished')"
_READ = """
SELECT seq, engine_id, wall_ns, kind, request_id, session_id, num_tokens, num_blocks, tail_hash,
       gpu_hit_tokens, cpu_hit_tokens, restored_hit_tokens, lost_tokens, cut_index, cause, cause_detail, is_resumed
FROM events WHERE seq > ? AND {kinds} ORDER BY seq
"""
_FIRST = "SELECT seq FROM events WHERE kind = 'request_started' ORDER BY wall_ns DESC, seq DESC LIMIT 1 OFFSET ?"
_PARENT = "SELECT parent_hash FROM block_hashes WHERE engine_id = ? AND hash = ?"


@dataclass(slots=True)
class Node:
    """One request. `seq`: of its request_started row. Counts of tokens are of its first lookup, 0 before it."""

    seq: int
    engine_id: int
    request_id: str
    session_id: str | None
    wall_ns: int
    num_blocks: int
    previous: "Node | None"
    by_session: bool
    shared_blocks: int
    turn: int
    root: "Node"
    prompt_tokens: int = 0
    gpu_hit_tokens: int = 0
    cpu_hit_tokens: int = 0
    restored_hit_tokens: int = 0
    lost_tokens: int = 0
    cut_index: int | None = None
    is_loss: bool = False
    has_lookup: bool = False
    end_blocks: int = 0

    @property
    def lost_from_index(self) -> int | None:
        """Where the lookup was cut inside what the turn before had computed; None where it was not."""
        cut = self.cut_index
        return cut if cut is not None and cut < self.shared_blocks and self.is_loss else None


class ConversationIndex:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._last_seq: int = -1
        self._first_seq: int | None = None
        self._nodes: list[Node] = []
        self._newest: dict[tuple[int, str], Node] = {}
        self._tails: dict[tuple[int, bytes], Node] = {}
        self._sessions: dict[tuple[int, str], Node] = {}
        self._turns: defaultdict[int, list[Node]] = defaultdict(list)
        self._no_tail: set[tuple[int, bytes]] = set()

    def catch_up(self, connect: Callable[[], Connection]) -> None:
        """Read what is new, in one read transaction."""
        with self._lock, connect() as conn, conn.begin():
            self._read(conn)
            if len(self._nodes) >= 2 * MAX_REQUESTS:
                self._forget()
                self._read(conn)

    def conversations(self) -> list[list[Node]]:
        """The turns of each conversation in the order in which they began, the most recently active first."""
        with self._lock:
            found = [list(turns) for turns in self._turns.values()]
        found.sort(key=lambda turns: turns[-1].seq, reverse=True)
        return found

    def turns_of(self, engine_id: int, request_id: str) -> list[Node] | None:
        """All turns of the conversation that a request belongs to; None where the request is not known."""
        with self._lock:
            node = self._newest.get((engine_id, request_id))
            return None if node is None else list(self._turns[node.root.seq])

    def conversation_ids(self, engine_id: int) -> dict[str, str]:
        """The conversation of each request of an engine, by id."""
        with self._lock:
            return {r: node.root.request_id for (e, r), node in self._newest.items() if e == engine_id}

    @property
    def first_seq(self) -> int | None:
        """The row before which nothing was read; None if all was."""
        return self._first_seq

    def _read(self, conn: Connection) -> None:
        newest: int = conn.exec_driver_sql("SELECT coalesce(max(seq), 0) FROM events").scalar_one()
        if newest < self._last_seq:
            self._forget()  # another file lies there now
        if newest == self._last_seq:
            return
        if self._last_seq < 0:
            skipped = conn.exec_driver_sql(_FIRST, (MAX_REQUESTS,)).fetchone()
            if skipped is not None:
                self._first_seq = skipped[0] + 1
                self._last_seq = skipped[0]
        # The plus keeps SQLite off the index, which would look at every request of the log for the few new rows.
        kinds = f"+kind {_KINDS}" if newest - self._last_seq < SHORT_WAY else f"kind {_KINDS}"
        execute = driver_of(conn).execute
        for row in execute(_READ.format(kinds=kinds), (self._last_seq,)).fetchall():
            self._take(execute, row)
        self._last_seq = newest

    def _take(self, execute: Any, row: Sequence[Any]) -> None:
        seq, engine, wall_ns, kind, request, session, tokens, num_blocks, tail, *found = row
        if kind == "request_started":
            self._start(execute, seq, engine, wall_ns, request, session, num_blocks, tail)
            return
        node = self._newest.get((engine, request))
        if node is None:
            return
        if kind == "request_finished":
            node.end_blocks = num_blocks
            if tail is not None and num_blocks > node.num_blocks:
                self._tails[engine, tail] = node
        elif not node.has_lookup and not found[-1]:
            gpu, cpu, restored, lost, node.cut_index, cause, detail, _ = found
            # A directory that is full calls lost blocks new: what it is not sure of counts as lost.
            node.is_loss = bool(lost) or not (cause in NO_LOSS or detail in NO_LOSS)
            node.has_lookup = True
            node.prompt_tokens = tokens
            node.gpu_hit_tokens, node.cpu_hit_tokens = gpu, cpu
            node.restored_hit_tokens, node.lost_tokens = restored or 0, lost or 0

    def _start(
        self, execute: Any, seq: int, engine: int, wall_ns: int, request: str, session: str | None, num_blocks: int,
        tail: bytes | None,
    ) -> None:  # fmt: skip
        previous = self._last_turn(execute, engine, tail)
        shared = previous.end_blocks if previous else 0
        by_session = previous is None and session is not None and (engine, session) in self._sessions
        if by_session and session is not None:
            previous = self._sessions[engine, session]
        node = Node(
            seq=seq, engine_id=engine, request_id=request, session_id=session, wall_ns=wall_ns, num_blocks=num_blocks,
            previous=previous, by_session=by_session, shared_blocks=shared,
            turn=previous.turn + 1 if previous else 1, root=None,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
        node.root = previous.root if previous else node
        self._nodes.append(node)
        self._newest[engine, request] = node
        self._turns[node.root.seq].append(node)
        if session is not None:
            self._sessions[engine, session] = node

    def _last_turn(self, execute: Any, engine: int, tail: bytes | None) -> Node | None:
        """The request whose end lies deepest on the chain of this hash."""
        path: list[tuple[int, bytes]] = []
        at = tail
        while at is not None:
            key = (engine, at)
            if (node := self._tails.get(key)) is not None:
                return node
            if key in self._no_tail:
                break
            path.append(key)
            row = execute(_PARENT, key).fetchone()
            at = row[0] if row else None
        # What a prompt begins with is walked once. An end that comes to lie on it later is not seen from below it,
        # which takes two requests that computed the same output at once.
        if len(self._no_tail) + len(path) > MEMO:
            self._no_tail.clear()
        self._no_tail.update(path)
        return None
