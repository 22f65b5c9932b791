"""One request's page: its chain of blocks, where each came from at the lookup, and why one was missing."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from app.models import ChainBlock, Cut, MissedRun, RequestDetail, RequestRow
from app.queries.branches import read_chain
from app.queries.conversation_index import ConversationIndex
from app.queries.engines import group_block_sizes
from app.queries.events import any_request, newest_seq, to_row
from app.queries.history import History
from app.queries.lane import build_lane
from app.queries.prefill import engine_prefill, reliable_speed
from app.queries.requests import read_request
from app.settings import Settings
from connector import tables

MAX_EVENTS = 2_000

_OF_CUT = (
    "cause", "cause_detail", "lost_tokens", "behind_tokens", "by_request_id", "evicted_step", "since_ns", "age_ns",
    "was_owned",
)  # fmt: skip
_WORDS = {"never_seen": "never seen before this request", "never_stored": "never stored"}
_OF_MISSED = (
    "seq", "kv_group", "first_index", "num_blocks", "evicted_step", "since_ns", "by_request_id", "is_by_restore",
    "num_owned",
)  # fmt: skip

_c = tables.events.c
_e = tables.engines.c


def read_detail(
    conn: Connection, index: ConversationIndex, now_ns: int, settings: Settings, text: str
) -> RequestDetail:
    """The request with this id. `index` has caught up.

    Raises:
        NotFoundError: there is none, or the start of an id fits several.
    """
    request = read_request(conn, now_ns, settings, text)
    block_size: int = conn.execute(select(_e.hash_block_size).where(_e.id == request.engine_id)).scalar_one()
    tail = _deepest_hash(conn, request)
    chain = read_chain(conn, request.engine_id, tail) if tail else []
    mine = select(tables.events).where(any_request([(request.engine_id, request.request_id)]), _c.seq >= request.seq)
    events = conn.execute(mine.order_by(_c.seq).limit(MAX_EVENTS)).mappings()
    is_complete = tail is None or (bool(chain) and chain[0][1] == 0)
    lookup = _first_lookup(conn, request)
    ratios = [max(1, size // block_size) for size in group_block_sizes(conn, request.engine_id)] or [1]
    history = History(conn, request.engine_id, request.request_id, chain, ratios) if chain else None
    seq = lookup.seq if lookup is not None else None
    blocks = _blocks(request, history, chain, block_size, seq, is_complete) if history else []
    saved = None if lookup is None else lookup.gpu_hit_tokens + lookup.cpu_hit_tokens
    speed = reliable_speed(engine_prefill(conn, request.engine_id, now_ns)) if saved is not None else None
    turns = index.turns_of(request.engine_id, request.request_id)
    rows, is_lane_complete = build_lane(history, blocks, lookup) if history else ([], True)
    return RequestDetail(
        request=request,
        hash_block_size=block_size,
        cut=_cut(lookup) if lookup is not None else None,
        missed=_missed(conn, request),
        lane=rows,
        is_lane_complete=is_lane_complete and (history is None or history.first_seq is None),
        saved_tokens=saved,
        saved_prefill_s=None if saved is None or speed is None else saved * speed,
        conversation_id=turns[0].request_id if turns else None,
        chain=blocks,
        history_first_seq=history.first_seq if history else None,
        history_last_seq=newest_seq(conn),
        is_chain_complete=is_complete,
        events=[to_row(r) for r in events],
    )


def _deepest_hash(conn: Connection, request: RequestRow) -> bytes | None:
    query = select(_c.tail_hash).where(
        any_request([(request.engine_id, request.request_id)]),
        _c.kind.in_(("request_started", "lookup", "request_finished")),
        _c.tail_hash.is_not(None),
        _c.seq >= request.seq,
    )
    return conn.execute(query.order_by(_c.seq.desc()).limit(1)).scalar_one_or_none()


def _first_lookup(conn: Connection, request: RequestRow) -> Any:
    query = select(tables.events).where(
        any_request([(request.engine_id, request.request_id)]),
        _c.kind == "lookup",
        ~_c.is_resumed,
        _c.seq > request.seq,
    )
    return conn.execute(query.order_by(_c.seq).limit(1)).one_or_none()


def _cut(lookup: Any) -> Cut:
    return Cut(
        index=lookup.cut_index,
        missing_hash=lookup.missing_hash.hex() if lookup.missing_hash else None,
        sibling_hash=lookup.sibling_hash.hex() if lookup.sibling_hash else None,
        **{name: getattr(lookup, name) for name in _OF_CUT},
    )


def _missed(conn: Connection, request: RequestRow) -> list[MissedRun]:
    """The runs of evicted blocks that this request wanted."""
    query = select(tables.events).where(
        any_request([(request.engine_id, request.request_id)]), _c.kind == "blocks_missed", _c.seq > request.seq
    )
    return [
        MissedRun(
            head_hash=r.head_hash.hex(), tail_hash=r.tail_hash.hex(), **{name: getattr(r, name) for name in _OF_MISSED}
        )
        for r in conn.execute(query.order_by(_c.seq).limit(MAX_EVENTS))
    ]


def _blocks(
    request: RequestRow,
    history: History,
    chain: Sequence[tuple[bytes, int]],
    block_size: int,
    lookup: int | None,
    is_complete: bool,
) -> list[ChainBlock]:
    """The chain's blocks. `lookup`: the first lookup's row."""
    gpu_end = request.gpu_hit_tokens or 0
    cpu_end = gpu_end + (request.cpu_hit_tokens or 0)
    blocks: list[ChainBlock] = []
    for block_hash, index in chain:
        end = (index + 1) * block_size
        why = None
        if lookup is None:
            source = "pending"
        elif end <= gpu_end:
            source = "gpu"
        elif end <= cpu_end:
            source = "cpu"
        elif index == request.cut_index:
            source = "missing"
            why = _why_missing(history, index, lookup, request.cause, is_complete)
        else:
            source = "computed"
        blocks.append(
            ChainBlock(
                index=index,
                hash=block_hash.hex(),
                source=source,
                why_missing=why,
                is_in_cpu_tier=history.is_held(index),
                num_moments=history.num_moments(index),
                history=history.moments(index),
            )
        )
    return blocks


def _why_missing(history: History, index: int, lookup_seq: int, cause: str | None, is_complete: bool) -> str:
    """From what the log says before the lookup. The newest moment decides; where there is none, the engine's own word,
    or in an older log a look at every lookup before."""
    last = history.last_before(index, lookup_seq)
    if last is None:
        if cause in _WORDS:
            return _WORDS[cause]
        if not is_complete:
            return "not known: the log lost a part of this chain"
        return "never stored" if history.was_asked_before(index, lookup_seq) else "never seen before this request"
    if last.kind == "blocks_evicted":
        by = f" by the store of {last.by_request_id}" if last.by_request_id else ""
        return f"evicted at step {last.step}{by}"
    if last.kind == "cache_reset":
        return f"lost at step {last.step}, when the CPU tier was emptied"
    return f"in the CPU tier since step {last.step}, but the lookup could not use it"
