"""Why lookups ended where they did, and what it cost: by cause and detail, over time, with the worst of each."""

from typing import Any

from sqlalchemy import Connection, func, select

from app.models import CauseExample, CauseRow, Causes, CausesPoint, Directory
from app.queries.ranges import read_buckets
from app.queries.rollups import in_range, read_groups, read_totals, slot_of
from app.settings import Settings
from connector import tables

EXAMPLES = 5
"""Of a cause and its detail."""
TOKENS = ("num_lookups", "prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "lost_tokens", "behind_tokens")

_c = tables.events.c
_k = tables.rollup_causes.c
_s = tables.steps.c
_e = tables.engines.c


def read_causes(
    conn: Connection,
    since: int | None,
    until: int | None,
    bucket_seconds: float | None,
    now_ns: int,
    settings: Settings,
) -> Causes:
    """The causes of a range, rounded outwards to whole buckets.

    Raises:
        BadQueryError: an empty range, or more than 2,000 points.
    """
    start, end, bucket = read_buckets(conn, since, until, bucket_seconds, now_ns, settings)
    sums = read_totals(conn, TOKENS, start, end)
    return Causes(
        since_wall_ns=start,
        until_wall_ns=end,
        bucket_ns=bucket,
        **sums,
        causes=_rows(conn, start, end, sums["prompt_tokens"]),
        points=_points(conn, start, end, bucket),
        examples=_examples(conn, start, end),
        directory=_directory(conn, end),
    )


def _rows(conn: Connection, start: int, end: int, prompt_tokens: int) -> list[CauseRow]:
    keys = [_k.cause, _k.cause_detail]
    rows = read_groups(conn, tables.rollup_causes, keys, tables.CAUSE_SUMS, start, end)
    found = [
        CauseRow(
            cause=r.cause or None,
            detail=r.cause_detail or None,
            num_lookups=r.num_lookups,
            prompt_tokens=r.prompt_tokens,
            lost_tokens=r.lost_tokens,
            behind_tokens=r.behind_tokens,
            lost_share=r.lost_tokens / prompt_tokens if prompt_tokens else None,
        )
        for r in rows
    ]
    return sorted(found, key=lambda r: (-r.lost_tokens, -r.num_lookups, r.cause or "", r.detail or ""))


def _points(conn: Connection, start: int, end: int, bucket: int) -> list[CausesPoint]:
    slot = slot_of(start, bucket)
    sums = ("prompt_tokens", "lost_tokens")
    prompt: dict[int, int] = {}
    lost: dict[int, dict[str, int]] = {}
    for r in read_groups(conn, tables.rollup_causes, [slot, _k.cause], sums, start, end):
        prompt[r.slot] = prompt.get(r.slot, 0) + r.prompt_tokens
        if r.lost_tokens:
            lost.setdefault(r.slot, {})[r.cause or "none"] = r.lost_tokens
    return [
        CausesPoint(wall_ns=start + i * bucket, prompt_tokens=prompt.get(i), lost_tokens=lost.get(i, {}))
        for i in range((end - start) // bucket)
    ]


def _examples(conn: Connection, start: int, end: int) -> list[CauseExample]:
    """The worst lookups of the seconds that lost the most for a cause and its detail: the sums say where to look, so
    that a long range need not be read."""
    seconds: dict[tuple[str, str], list[int]] = {}
    query = (
        select(_k.cause, _k.cause_detail, _k.second, func.sum(_k.lost_tokens).label("lost"))
        .where(in_range(tables.rollup_causes, start, end), _k.lost_tokens > 0)
        .group_by(_k.cause, _k.cause_detail, _k.second)
        .order_by(_k.cause, _k.cause_detail, func.sum(_k.lost_tokens).desc(), _k.second)
    )
    for r in conn.execute(query):
        of_cause = seconds.setdefault((r.cause, r.cause_detail), [])
        if len(of_cause) < EXAMPLES:
            of_cause.append(r.second)
    found: list[CauseExample] = []
    for (cause, detail), some in seconds.items():
        rows: list[Any] = []
        for second in some:
            first = second * 1_000_000_000
            rows += conn.execute(
                select(tables.events).where(
                    _c.kind == "lookup", _c.wall_ns.between(first, first + 999_999_999), ~_c.is_resumed,
                    _c.cause == cause, func.coalesce(_c.cause_detail, "") == detail, _c.lost_tokens > 0,
                )
            ).all()  # fmt: skip
        rows.sort(key=lambda r: (-r.lost_tokens, -r.seq))
        found += [_example(r) for r in rows[:EXAMPLES]]
    return sorted(found, key=lambda e: (-e.lost_tokens, -e.seq))


def _example(r: Any) -> CauseExample:
    return CauseExample(
        seq=r.seq,
        request_id=r.request_id,
        engine_id=r.engine_id,
        wall_ns=r.wall_ns,
        cause=r.cause,
        detail=r.cause_detail,
        prompt_tokens=r.num_tokens,
        lost_tokens=r.lost_tokens,
        behind_tokens=r.behind_tokens,
        cut_index=r.cut_index,
        missing_hash=r.missing_hash.hex() if r.missing_hash else None,
        since_ns=r.since_ns,
        by_request_id=r.by_request_id,
    )


def _directory(conn: Connection, end: int) -> Directory | None:
    engine = conn.execute(
        select(_e.id, _e.directory_capacity).where(_e.started_wall_ns < end).order_by(_e.id.desc()).limit(1)
    ).one_or_none()
    if engine is None:
        return None
    forgotten = select(_s.num_forgotten).where(_s.engine_id == engine.id).order_by(_s.step.desc()).limit(1)
    return Directory(
        engine_id=engine.id,
        capacity=engine.directory_capacity,
        num_forgotten=conn.execute(forgotten).scalar_one_or_none(),
    )
