"""One request's page: its chain of blocks, where each came from at the lookup, and why one was missing."""

from collections.abc import Sequence

from sqlalchemy import Connection, select

from app.models import ChainBlock, RequestDetail, RequestRow
from app.queries.branches import read_chain
from app.queries.engines import group_block_sizes
from app.queries.events import any_request, newest_seq, to_row
from app.queries.history import History
from app.queries.requests import read_request
from app.settings import Settings
from connector import tables

MAX_EVENTS = 2_000

_c = tables.events.c
_e = tables.engines.c


def read_detail(conn: Connection, now_ns: int, settings: Settings, text: str) -> RequestDetail:
    """The request with this id.

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
    blocks, first_seq = _blocks(conn, request, chain, block_size, is_complete)
    return RequestDetail(
        request=request,
        hash_block_size=block_size,
        chain=blocks,
        history_first_seq=first_seq,
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


def _lookup_seq(conn: Connection, request: RequestRow) -> int | None:
    query = select(_c.seq).where(
        any_request([(request.engine_id, request.request_id)]),
        _c.kind == "lookup",
        ~_c.is_resumed,
        _c.seq > request.seq,
    )
    return conn.execute(query.order_by(_c.seq).limit(1)).scalar_one_or_none()


def _blocks(
    conn: Connection, request: RequestRow, chain: Sequence[tuple[bytes, int]], block_size: int, is_complete: bool
) -> tuple[list[ChainBlock], int | None]:
    """The chain's blocks, and the row from which on their history has no gap; None if it has none at all."""
    if not chain:
        return [], None
    ratios = [max(1, size // block_size) for size in group_block_sizes(conn, request.engine_id)] or [1]
    history = History(conn, request.engine_id, request.request_id, chain, ratios)
    lookup = _lookup_seq(conn, request)
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
            why = _why_missing(history, index, lookup, is_complete)
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
    return blocks, history.first_seq


def _why_missing(history: History, index: int, lookup_seq: int, is_complete: bool) -> str:
    """From what the log says before the lookup. The newest moment decides."""
    last = history.last_before(index, lookup_seq)
    if last is None:
        if not is_complete:
            return "not known: the log lost a part of this chain"
        return "never stored" if history.was_asked_before(index, lookup_seq) else "never seen before this request"
    if last.kind == "blocks_evicted":
        by = f" by the store of {last.by_request_id}" if last.by_request_id else ""
        return f"evicted at step {last.step}{by}"
    if last.kind == "cache_reset":
        return f"lost at step {last.step}, when the CPU tier was emptied"
    return f"in the CPU tier since step {last.step}, but the lookup could not use it"
