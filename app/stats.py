"""`vllm-restore db stats`: what is in a log, as plain text for a terminal."""

from datetime import UTC, datetime

from sqlalchemy import URL, func, select

from connector import log
from connector.tables import block_hashes, engines, events, policies, retention_states, steps


def describe(url: URL) -> str:
    """A log's size, span, engines and number of rows by kind of event.

    Raises:
        LogError: there is no log, or not one of this version's.
    """
    revision = log.check(url)
    path = log.path_of(url)
    size = sum(part.stat().st_size for part in (path, path.with_name(f"{path.name}-wal")) if part.exists())
    reader = log.open_reader(url)
    try:
        with reader.begin() as conn:
            first, last, num_events = conn.execute(
                select(func.min(events.c.wall_ns), func.max(events.c.wall_ns), func.count())
            ).one()
            kinds = conn.execute(
                select(events.c.kind, func.count()).group_by(events.c.kind).order_by(events.c.kind)
            ).all()
            counts = [
                (table.name, conn.execute(select(func.count()).select_from(table)).scalar_one())
                for table in (engines, steps, block_hashes, policies, retention_states)
            ]
            starts = conn.execute(
                select(engines.c.id, engines.c.model, engines.c.started_wall_ns, engines.c.stopped_wall_ns).order_by(
                    engines.c.id.desc()
                )
            ).all()
            policy = log.read_policy(conn)
    finally:
        reader.dispose()
    lines = [
        f"log        {path}",
        f"revision   {revision}",
        f"size       {size / 1e6:.1f} MB",
        f"span       {_moment(first)} to {_moment(last)}" if num_events else "span       no event yet",
        f"policy     {policy.policy.label}, version {policy.version}, "
        f"{policy.policy.max_restore_blocks_per_step or 'no limit of'} blocks a step",
        "",
        *(f"{name:<20}{number:>12,}" for name, number in counts),
        f"{'events':<20}{num_events:>12,}",
        *(f"  {kind:<18}{number:>12,}" for kind, number in kinds),
    ]
    if starts:
        lines += ["", "newest starts of an engine"]
        lines += [
            f"  {row.id:>4}  {_moment(row.started_wall_ns)}  {_end(row.stopped_wall_ns)}  {row.model}"
            for row in starts[:5]
        ]
    return "\n".join(lines) + "\n"


def _moment(wall_ns: int) -> str:
    return datetime.fromtimestamp(wall_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _end(stopped_wall_ns: int | None) -> str:
    return f"to {_moment(stopped_wall_ns)}" if stopped_wall_ns else "runs, or was killed    "
