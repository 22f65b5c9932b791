"""Requests: one row a `request_started`, with what later rows say about it."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, exists, func, or_, select, text

from app.errors import NotFoundError
from app.models import RequestPage, RequestRow, RequestState
from app.queries.engines import live_engines
from app.queries.events import any_request, is_request
from app.settings import Settings
from connector import tables

_c = tables.events.c
_x = tables.events.alias("x")
_ROW = select(_c.seq, _c.engine_id, _c.wall_ns, _c.request_id, _c.session_id, _c.num_tokens, _c.num_blocks)
_BASE = _ROW.where(_c.kind == "request_started")
# The plus keeps SQLite off the index on `kind`, which would sort all requests: the newest are near the log's end.
_NEWEST = _ROW.where(text("+kind = 'request_started'"))
# What a row of the table is made from. Kinds that come by the thousand (`cursor_moved`, `blocks_stored`) are not in it.
# Again a plus: the way to them is the index on the request.
_IS_FACT = text("+kind IN ('lookup', 'request_preempted', 'request_finished', 'blocks_restored')")

_OF_LOOKUP = ("cause", "cause_detail", "lost_tokens", "behind_tokens", "since_ns", "by_request_id")


def read_page(
    conn: Connection,
    now_ns: int,
    settings: Settings,
    limit: int,
    before: int | None,
    state: RequestState | None,
    search: str | None,
) -> RequestPage:
    """Requests, newest first."""
    live = live_engines(conn, now_ns, settings)
    # Most have finished, so that these too are near the log's end.
    query = _BASE if search or state not in (None, "finished") else _NEWEST
    query = query.order_by(_c.seq.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(_c.seq < before)
    if search:
        query = query.where(or_(_contains(_c.request_id, search), _contains(_c.session_id, search)))
    if state is not None:
        query = query.where(*_has_state(state, list(live)))
    started = conn.execute(query).all()
    page = started[:limit]
    return RequestPage(
        requests=build_rows(conn, page, live), next_before=page[-1].seq if len(started) > limit else None
    )


def read_request(conn: Connection, now_ns: int, settings: Settings, given: str) -> RequestRow:
    """The request with this id, or the only one whose id starts with it. The newest, where an id was used again.

    Raises:
        NotFoundError: there is none, or there are several.
    """
    newest = _BASE.order_by(_c.seq.desc()).limit(1)
    started = conn.execute(newest.where(_c.request_id == given)).one_or_none()
    if started is None:
        similar = select(_c.request_id).where(_c.kind == "request_started", is_request(given)).distinct().limit(4)
        ids = list(conn.execute(similar).scalars())
        if not ids:
            raise NotFoundError(f"no request in this log has the id {given!r} or one that starts so")
        if len(ids) > 1:
            raise NotFoundError(f"several requests have ids that start with {given!r}, such as {', '.join(ids[:3])}")
        started = conn.execute(newest.where(_c.request_id == ids[0])).one()
    return build_rows(conn, [started], live_engines(conn, now_ns, settings))[0]


def _contains(column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
    # Not LIKE, where some characters mean something else and a NUL ends what is looked for.
    return func.instr(func.lower(column), func.lower(part)) > 0


def build_rows(conn: Connection, started: Sequence[Any], live: Iterable[int]) -> list[RequestRow]:
    """Add to `request_started` rows what the log says about each request since."""
    if not started:
        return []
    facts: dict[tuple[int, str], list[Any]] = {(r.engine_id, r.request_id): [] for r in started}
    query = select(
        _c.seq, _c.engine_id, _c.request_id, _c.kind, _c.wall_ns, _c.gpu_hit_tokens, _c.cpu_hit_tokens, _c.num_tokens,
        _c.cut_index, _c.missing_hash, _c.is_resumed, _c.num_preemptions, _c.num_blocks, _c.status,
        _c.num_output_tokens, _c.ttft_ns, _c.restored_hit_tokens, _c.cause, _c.cause_detail, _c.lost_tokens,
        _c.behind_tokens, _c.since_ns, _c.by_request_id,
    )  # fmt: skip
    wanted = any_request(list(facts)) if len(facts) == 1 else _c.request_id.in_([i for _, i in facts])
    for row in conn.execute(query.where(wanted, _IS_FACT).order_by(_c.seq)):
        if (key := (row.engine_id, row.request_id)) in facts:
            facts[key].append(row)
    live = set(live)
    return [
        _build(r, [f for f in facts[r.engine_id, r.request_id] if f.seq > r.seq], r.engine_id in live) for r in started
    ]


def _build(started: Any, facts: list[Any], is_live: bool) -> RequestRow:
    first = next((f for f in facts if f.kind == "lookup" and not f.is_resumed), None)
    finished = next((f for f in facts if f.kind == "request_finished"), None)
    moves = [f.kind for f in facts if f.kind in ("lookup", "request_preempted")]
    state: RequestState
    if finished is not None:
        state = "finished"
    elif not is_live:
        state = "lost"
    elif not moves:
        state = "waiting"
    else:
        state = "running" if moves[-1] == "lookup" else "preempted"
    return RequestRow(
        seq=started.seq,
        request_id=started.request_id,
        engine_id=started.engine_id,
        session_id=started.session_id,
        started_wall_ns=started.wall_ns,
        finished_wall_ns=finished.wall_ns if finished else None,
        state=state,
        status=finished.status if finished else None,
        prompt_tokens=started.num_tokens,
        output_tokens=finished.num_output_tokens if finished else None,
        gpu_hit_tokens=first.gpu_hit_tokens if first else None,
        cpu_hit_tokens=first.cpu_hit_tokens if first else None,
        computed_tokens=first.num_tokens - first.gpu_hit_tokens - first.cpu_hit_tokens if first else None,
        cut_index=first.cut_index if first else None,
        missing_hash=first.missing_hash.hex() if first and first.missing_hash else None,
        num_blocks=started.num_blocks,
        num_preemptions=sum(f.kind == "request_preempted" for f in facts),
        restored_blocks=sum(f.num_blocks for f in facts if f.kind == "blocks_restored"),
        ttft_ns=finished.ttft_ns if finished else None,
        restored_hit_tokens=(first.restored_hit_tokens or 0) if first else None,
        **{name: getattr(first, name) if first else None for name in _OF_LOOKUP},
    )


def _has_state(state: RequestState, live: list[int]) -> list[ColumnElement[bool]]:
    """The same states as `_build`, as conditions on a `request_started` row."""
    later = (_x.c.request_id == _c.request_id) & (_x.c.engine_id == _c.engine_id) & (_x.c.seq > _c.seq)
    is_finished = exists().where(later, _x.c.kind == "request_finished")
    if state == "finished":
        return [is_finished]
    if state == "lost":
        return [~is_finished, _c.engine_id.not_in(live)]
    move = (
        select(_x.c.kind)
        .where(later, _x.c.kind.in_(("lookup", "request_preempted")))
        .order_by(_x.c.seq.desc())
        .limit(1)
        .scalar_subquery()
    )
    last = func.coalesce(move, "")
    wanted = {"waiting": "", "running": "lookup", "preempted": "request_preempted"}[state]
    return [~is_finished, _c.engine_id.in_(live), last == wanted]
