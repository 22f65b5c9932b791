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
    Float,
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
    Column(
        "kv_groups",
        Text,
        nullable=False,
        comment="JSON: [{block_size, kind, is_prefix_cacheable, window, drops_last_block, num_draft_tokens}], by group",
    ),
    Column("restore_support", Text, nullable=False, comment="'yes', or why this engine cannot re-store"),
    Column("started_wall_ns", BigInteger, nullable=False),
    Column("started_monotonic_ns", BigInteger, nullable=False),
    Column("heartbeat_wall_ns", BigInteger, nullable=False, comment="Written about once a second while it lives"),
    Column("stopped_wall_ns", BigInteger, comment="NULL while it runs, or after it was killed"),
    Column("directory_capacity", Integer, comment="Hashes that the engine remembers to have seen; NULL before it did"),
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
    Column("retention", Text, nullable=False, server_default="lru", comment="Whose order blocks of the tier go in"),
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
    Column("previous_tokens", Integer),
    Column("previous_running", Integer),
    Column("num_forgotten", Integer),
    Column("previous_ns", BigInteger, comment="Since the step before began; NULL after idleness"),
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
    Column("restored_hit_tokens", Integer, comment="NULL in rows from before it was counted"),
    Column("cause", Text),
    Column("cause_detail", Text),
    Column("lost_tokens", Integer),
    Column("behind_tokens", Integer),
    Column("sibling_hash", LargeBinary),
    Column("evicted_step", Integer),
    Column("since_ns", BigInteger),
    Column("was_owned", Boolean),
    Column("num_loaded", Integer),
    Column("num_restored", Integer),
    Column("is_by_restore", Boolean),
    Column("copy_ns", BigInteger, comment="NULL where the worker does not measure"),
    Column("retention", Text),
    Column("victim_worth", Float, comment="0 to 1; NULL where blocks go by last use"),
    Column("incoming_worth", Float, comment="0 to 1; NULL where blocks go by last use"),
    Column("is_restore", Boolean),
    Column("from_rule", Text),
    Column("to_rule", Text),
    Column("lru_hit_blocks", Float),
    Column("worth_hit_blocks", Float),
    Column("asked_blocks", Float),
    Column("num_reuses", Integer),
    Index("events_by_kind", "kind", "wall_ns"),
    Index("events_by_request", "request_id", "seq"),
    Index("events_by_head", "head_hash", sqlite_where=text("head_hash IS NOT NULL")),
    Index("events_applied", "engine_id", "seq", sqlite_where=text("kind = 'policy_applied'")),
    Index("events_finished", "wall_ns", "ttft_ns", sqlite_where=text("kind = 'request_finished'")),
    sqlite_autoincrement=True,
)

retention_states = Table(
    "retention_states",
    metadata,
    Column("engine_id", Integer, ForeignKey("engines.id"), primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("monotonic_ns", BigInteger, nullable=False),
    Column("wall_ns", BigInteger, nullable=False),
    Column("rule", Text, nullable=False),
    Column("is_guard_on", Boolean, nullable=False),
    Column("lru_hit_blocks", Float, nullable=False, comment="Of the shadow by last use; fades with each request"),
    Column("worth_hit_blocks", Float, nullable=False, comment="Of the shadow by worth"),
    Column("asked_blocks", Float, nullable=False),
    Column("guard_lead", Float, nullable=False, comment="The lead in hit rate at which the guard is on"),
    Column("num_reuses", Integer, nullable=False),
    Column("num_to_learn", Integer, nullable=False),
    Column("horizon_s", Float, nullable=False),
    Column("edges_s", Text, nullable=False, comment="JSON: where each bucket of idle time starts"),
    Column("worth", Text, nullable=False, comment="JSON: by class of chains and bucket, from 0 to 1"),
    Column("returns", Text, nullable=False, comment="JSON: by class of chains, fading"),
    sqlite_with_rowid=False,
)

BIN_EDGES_NS = tuple(round(10 ** (8 + i / 2)) for i in range(10))
"""Where the bins of both histograms end: 0.1 s, 0.32 s, 1 s, … 3162 s. Bin `i` ends before edge `i`, the last never."""
NUM_BINS = len(BIN_EDGES_NS) + 1

SUMS = (
    # Lookups, without those after a preemption.
    "num_lookups", "prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "restored_hit_tokens", "lost_tokens",
    "behind_tokens",
    "num_started", "num_finished",
    # `measured`: blocks of copies whose `copy_ns` is known.
    "stored_blocks", "stored_bytes", "stored_copy_ns", "stored_measured_blocks",
    "restored_blocks", "restored_bytes", "restored_copy_ns", "restored_measured_blocks",
    "loaded_blocks", "loaded_bytes", "loaded_copy_ns", "loaded_measured_blocks", "loaded_restored_blocks",
    # `judged`: evicted blocks of which is known how many were hit; `unhit`: never since they were stored.
    "evicted_blocks", "evicted_judged_blocks", "evicted_unhit_blocks", "evicted_by_restore_blocks",
    "dropped_blocks",
    # By `adaptive`: blocks that went for their worth, chains that it began to refuse.
    "evicted_by_worth_blocks", "num_refusals",
    "missed_blocks", "missed_owned_blocks", "missed_by_restore_blocks",
    *(f"evicted_age_{i}" for i in range(NUM_BINS)),
    *(f"missed_since_{i}" for i in range(NUM_BINS)),
    "prefill_steps",
)  # fmt: skip
"""Whole numbers that `rollups` adds up."""
LATER_SUMS = ("evicted_by_worth_blocks", "num_refusals")
"""Those that older rows were written without."""
PREFILL_SUMS = ("prefill_x", "prefill_y", "prefill_xx", "prefill_xy", "prefill_yy")
"""Over steps that did prefill: x tokens, y seconds. With `prefill_steps`, what a least-squares line needs."""

rollups = Table(
    "rollups",
    metadata,
    Column("second", Integer, primary_key=True, comment="wall_ns / 1,000,000,000 of what is summed up"),
    Column("engine_id", Integer, ForeignKey("engines.id"), primary_key=True),
    Column("policy_version", Integer, primary_key=True, comment="That the engine obeyed; -1 before it said so"),
    *(Column(name, BigInteger, nullable=False) for name in SUMS if name not in LATER_SUMS),
    *(Column(name, Float, nullable=False) for name in PREFILL_SUMS),
    Column("last_step", Integer, comment="The last one with a row in this second; NULL where there is none"),
    Column("cpu_blocks_cached", Integer, comment="After that step"),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in LATER_SUMS),
    sqlite_with_rowid=False,
)

CAUSE_SUMS = ("num_lookups", "prompt_tokens", "lost_tokens", "behind_tokens")

rollup_causes = Table(
    "rollup_causes",
    metadata,
    Column("second", Integer, primary_key=True),
    Column("engine_id", Integer, ForeignKey("engines.id"), primary_key=True),
    Column("policy_version", Integer, primary_key=True),
    Column("cause", Text, primary_key=True, comment="'' where nothing was left to find, or it was not recorded"),
    Column("cause_detail", Text, primary_key=True, comment="'' where there is none"),
    *(Column(name, BigInteger, nullable=False) for name in CAUSE_SUMS),
    sqlite_with_rowid=False,
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
