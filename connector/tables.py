"""The log's tables as SQLAlchemy Core metadata: the one source that migrations, the writer and the reader share.

Log ring: SQLAlchemy and the pure ring only. Order is `events.seq`, never a clock. A kind of event has a view of its
own, named as the kind, with just the columns that the kind has.
"""

from dataclasses import fields

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from connector.events import EVENT_TYPES, Event

metadata = MetaData()

engines = Table(
    "engines",
    metadata,
    Column("id", Integer, primary_key=True, comment="One row a start of an engine, not an engine's name"),
    Column("engine_uid", Text, nullable=False, comment="vLLM's kv_transfer_config.engine_id"),
    Column("dp_index", Integer, nullable=False, comment="parallel_config.data_parallel_index"),
    Column("pid", Integer, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("model", Text, nullable=False),
    Column("vllm_version", Text, nullable=False),
    Column("restore_version", Text, nullable=False),
    Column("sqlite_version", Text, nullable=False),
    Column("hash_block_size", Integer, nullable=False, comment="Tokens a block hash covers"),
    Column("num_gpu_blocks", Integer, nullable=False),
    Column("num_cpu_blocks", Integer, nullable=False, comment="Usable ones: vLLM's null block is not counted"),
    Column("block_bytes", BigInteger, nullable=False, comment="Bytes of one block, all layers of one rank"),
    Column("kv_groups", Text, nullable=False, comment="JSON: [{block_size, kind, is_prefix_cacheable}], by group"),
    Column("restore_support", Text, nullable=False, comment="'yes', or why this engine cannot re-store"),
    Column("started_wall_ns", BigInteger, nullable=False),
    Column("started_monotonic_ns", BigInteger, nullable=False),
    Column("heartbeat_wall_ns", BigInteger, nullable=False, comment="Written about once a second while it lives"),
    Column("stopped_wall_ns", BigInteger, comment="NULL while it runs, or after it was killed"),
)

policies = Table(
    "policies",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("created_wall_ns", BigInteger, nullable=False),
    Column("author", Text, nullable=False, comment="Who asked: an address, a program, or 'default'"),
    Column("enabled", Boolean, nullable=False),
    Column("mode", Text, nullable=False),
    Column("max_restore_blocks_per_step", Integer, nullable=False),
    CheckConstraint("max_restore_blocks_per_step >= 0", name="policy_budget"),
    sqlite_autoincrement=True,
)

block_hashes = Table(
    "block_hashes",
    metadata,
    Column("engine_id", Integer, ForeignKey("engines.id"), primary_key=True),
    Column("hash", LargeBinary, primary_key=True),
    Column("parent_hash", LargeBinary, comment="NULL at the head of a chain"),
    Column("depth", Integer, nullable=False, comment="Blocks of hash_block_size before this one"),
    sqlite_with_rowid=False,
)

steps = Table(
    "steps",
    metadata,
    Column("engine_id", Integer, ForeignKey("engines.id"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("monotonic_ns", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("num_running", Integer, nullable=False),
    Column("num_scheduled_tokens", Integer, nullable=False),
    Column("num_stored", Integer, nullable=False),
    Column("num_restored", Integer, nullable=False),
    Column("num_loaded", Integer, nullable=False),
    Column("num_evicted", Integer, nullable=False),
    Column("num_restorable", Integer, nullable=False),
    Column("cpu_blocks_free", Integer, nullable=False),
    Column("cpu_blocks_cached", Integer, nullable=False),
    Column("cpu_blocks_in_flight", Integer, nullable=False),
    Column("gpu_blocks_free", Integer, nullable=False),
    Column("hook_ns", BigInteger, nullable=False),
    Index("steps_by_wall", "wall_ns"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("seq", Integer, primary_key=True),
    Column("engine_id", Integer, ForeignKey("engines.id"), nullable=False),
    Column("step", Integer, nullable=False),
    Column("monotonic_ns", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("request_id", Text),
    Column("by_request_id", Text),
    Column("session_id", Text),
    Column("kv_group", Integer),
    Column("first_index", Integer),
    Column("num_blocks", Integer),
    Column("tail_hash", LargeBinary),
    Column("head_hash", LargeBinary, comment="Of a run of blocks: finds the runs that touch a chain"),
    Column("cpu_block_ids", Text, comment="JSON array, in chain order"),
    Column("num_bytes", BigInteger),
    Column("scheduled_step", Integer),
    Column("num_owned", Integer),
    Column("age_ns", BigInteger),
    Column("num_tokens", Integer),
    Column("gpu_hit_tokens", Integer),
    Column("cpu_hit_tokens", Integer),
    Column("cut_index", Integer),
    Column("missing_hash", LargeBinary),
    Column("num_attempts", Integer),
    Column("is_resumed", Boolean),
    Column("is_skipped", Boolean),
    Column("from_index", Integer),
    Column("to_index", Integer),
    Column("num_preemptions", Integer),
    Column("status", Text),
    Column("num_output_tokens", Integer),
    Column("ttft_ns", BigInteger),
    Column("duration_ns", BigInteger),
    Column("policy_version", Integer),
    Column("enabled", Boolean),
    Column("mode", Text),
    Column("max_restore_blocks_per_step", Integer),
    Column("is_idle", Boolean),
    Column("reason", Text),
    Column("num_events", Integer),
    Column("origin", Text),
    Column("message", Text),
    Column("num_faults", Integer),
    Index("events_by_kind", "kind", "wall_ns"),
    Index("events_by_request", "request_id", "seq"),
    Index("events_by_head", "head_hash", sqlite_where=text("head_hash IS NOT NULL")),
    sqlite_autoincrement=True,
)

EVENT_HEADER = ("seq", "engine_id", "step", "monotonic_ns", "wall_ns")


def event_columns(event_type: type[Event]) -> tuple[str, ...]:
    """The columns of `events` that one kind of event fills, in the order of its fields."""
    return tuple(f.name for f in fields(event_type))


def view_statements() -> list[str]:
    """One `CREATE VIEW` a kind of event."""
    return [
        f"CREATE VIEW {t.kind} AS SELECT {', '.join(EVENT_HEADER + event_columns(t))} "
        f"FROM events WHERE kind = '{t.kind}'"
        for t in EVENT_TYPES
    ]
