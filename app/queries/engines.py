"""Engines: one row a start of one. Which of them live, and when a recorded log ends."""

import json
from typing import Any

from sqlalchemy import Connection, func, select

from app.errors import NotFoundError
from app.models import Engine
from app.settings import Settings
from connector import tables

_c = tables.engines.c
_events = tables.events.c


def read_engines(conn: Connection, now_ns: int, settings: Settings) -> list[Engine]:
    """Every start of an engine, newest first."""
    live = live_engines(conn, now_ns, settings)
    rows = conn.execute(select(tables.engines).order_by(_c.id.desc())).mappings()
    columns = [n for n in Engine.model_fields if n not in ("kv_groups", "is_live")]
    return [
        Engine(**{n: row[n] for n in columns}, kv_groups=json.loads(row["kv_groups"]), is_live=row["id"] in live)
        for row in rows
    ]


def engine_row(conn: Connection, engine_id: int | None) -> Any:
    """The row of an engine, of the newest if none is named.

    Raises:
        NotFoundError: no such engine.
    """
    query = select(tables.engines).order_by(_c.id.desc()).limit(1)
    row = conn.execute(query if engine_id is None else query.where(_c.id == engine_id)).one_or_none()
    if row is None:
        raise NotFoundError("this log has no engine" if engine_id is None else f"this log has no engine {engine_id}")
    return row


def live_engines(conn: Connection, now_ns: int, settings: Settings) -> dict[int, int]:
    """The engines that run now: id to data-parallel index. A killed one is live until its last heartbeat is old. One
    whose server was killed lives on, in stock vLLM as here, and says so. A heartbeat that is still to come is one of
    before the clock was set back: an engine that lives has said so since, by the clock as it is now."""
    query = select(_c.id, _c.dp_index).where(
        _c.stopped_wall_ns.is_(None),
        _c.heartbeat_wall_ns > now_ns - settings.live_after_ns,
        _c.heartbeat_wall_ns < now_ns + settings.live_after_ns,
    )
    return {row.id: row.dp_index for row in conn.execute(query.order_by(_c.id))}


def log_end(conn: Connection, now_ns: int, settings: Settings) -> int:
    """Up to when a view looks if it was not told: now, or the last moment of a recorded log that nobody writes."""
    if not settings.is_recorded or live_engines(conn, now_ns, settings):
        return now_ns
    last_event = select(_events.wall_ns).order_by(_events.seq.desc()).limit(1)
    ends = (
        conn.execute(select(func.max(_c.heartbeat_wall_ns))).scalar_one(),
        conn.execute(select(func.max(_c.stopped_wall_ns))).scalar_one(),
        conn.execute(last_event).scalar_one_or_none(),
    )
    # The end of a range is not part of it; the last moment is.
    return max((e + 1 for e in ends if e is not None), default=now_ns)


def up_spans(conn: Connection, now_ns: int, settings: Settings) -> dict[int, tuple[int, int]]:
    """When each engine was up, (from, to) in wall nanoseconds. One that was killed was up until its last heartbeat."""
    live = live_engines(conn, now_ns, settings)
    query = select(_c.id, _c.started_wall_ns, _c.heartbeat_wall_ns, _c.stopped_wall_ns)
    return {
        r.id: (r.started_wall_ns, r.stopped_wall_ns or (now_ns if r.id in live else r.heartbeat_wall_ns))
        for r in conn.execute(query)
    }


def group_block_sizes(conn: Connection, engine_id: int) -> list[int]:
    """Tokens a block of each KV-cache group covers, by group."""
    text = conn.execute(select(_c.kv_groups).where(_c.id == engine_id)).scalar_one_or_none()
    groups: list[dict[str, Any]] = json.loads(text) if text else []
    return [int(g["block_size"]) for g in groups]
