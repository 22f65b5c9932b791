"""Conversations as the API shows them: the list, the hit rate by turn, one of them turn by turn."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from app.errors import NotFoundError
from app.models import ConversationDetail, ConversationPage, ConversationRow, Turn, TurnRate
from app.queries.conversation_index import ConversationIndex, Node
from app.queries.engines import live_engines
from app.queries.requests import build_rows, read_request
from app.settings import Settings
from connector import tables

MAX_TURNS = 64
"""Turns beyond this number are not in the hit rate by turn."""
_SUMS = ("prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "restored_hit_tokens", "lost_tokens")

_c = tables.events.c
_e = tables.engines.c


def read_page(conn: Connection, index: ConversationIndex, limit: int, before: int | None) -> ConversationPage:
    """The most recently active conversations, or those before a row."""
    del conn  # all is in the index
    found = index.conversations()
    older = [turns for turns in found if before is None or turns[-1].seq < before]
    page = older[:limit]
    return ConversationPage(
        conversations=[_row(turns) for turns in page],
        next_before=page[-1][-1].seq if len(older) > limit else None,
        num_conversations=len(found),
        by_turn=_by_turn(node for turns in found for node in turns),
        first_seq=index.first_seq,
    )


def read_conversation(
    conn: Connection, index: ConversationIndex, now_ns: int, settings: Settings, text: str
) -> ConversationDetail:
    """The conversation of the request with this id.

    Raises:
        NotFoundError: there is no such request, the start of an id fits several, or it is too old to be in the index.
    """
    request = read_request(conn, now_ns, settings, text)
    turns = index.turns_of(request.engine_id, request.request_id)
    if turns is None:
        raise NotFoundError(
            f"the request {request.request_id!r} is not among the newest ones that are grouped into conversations"
        )
    started = conn.execute(
        select(_c.seq, _c.engine_id, _c.wall_ns, _c.request_id, _c.session_id, _c.num_tokens, _c.num_blocks)
        .where(_c.seq.in_([node.seq for node in turns]))
        .order_by(_c.seq)
    ).all()
    rows = {r.seq: r for r in build_rows(conn, started, live_engines(conn, now_ns, settings))}
    size: int = conn.execute(select(_e.hash_block_size).where(_e.id == request.engine_id)).scalar_one()
    return ConversationDetail(
        conversation=_row(turns),
        hash_block_size=size,
        turns=[
            Turn(
                turn=node.turn,
                request=rows[node.seq],
                previous_request_id=node.previous.request_id if node.previous else None,
                by_session=node.by_session,
                shared_blocks=node.shared_blocks,
                lost_from_index=node.lost_from_index,
            )
            for node in turns
            if node.seq in rows
        ],
    )


def _row(turns: Sequence[Node]) -> ConversationRow:
    first, last = turns[0], turns[-1]
    sums = _sums(turns)
    return ConversationRow(
        id=first.request_id,
        engine_id=first.engine_id,
        session_id=next((node.session_id for node in turns if node.session_id is not None), None),
        num_turns=len(turns),
        first_wall_ns=first.wall_ns,
        last_wall_ns=last.wall_ns,
        last_seq=last.seq,
        **sums,
        num_lost_prefixes=sum(node.lost_from_index is not None for node in turns),
    )


def _by_turn(nodes: Iterable[Node]) -> list[TurnRate]:
    by_turn: defaultdict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.has_lookup and node.turn <= MAX_TURNS:
            by_turn[node.turn].append(node)
    return [TurnRate(turn=turn, num_turns=len(found), **_sums(found)) for turn, found in sorted(by_turn.items())]


def _sums(nodes: Sequence[Node]) -> dict[str, Any]:
    sums: dict[str, Any] = {name: sum(getattr(node, name) for node in nodes) for name in _SUMS}
    prompt = sums["prompt_tokens"]
    sums["hit_rate"] = (sums["gpu_hit_tokens"] + sums["cpu_hit_tokens"]) / prompt if prompt else None
    return sums
