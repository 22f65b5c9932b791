"""The first log: engines, policies, block hashes, steps, events, and a view a kind of event."""

import sqlalchemy as sa
from alembic import op

revision = "20261130a"
down_revision = None

VIEWS = {
    "request_started": "request_id, num_tokens, num_blocks, tail_hash, session_id",
    "lookup": "request_id, num_tokens, gpu_hit_tokens, cpu_hit_tokens, num_blocks, tail_hash, cut_index, missing_hash, num_attempts, is_resumed, is_skipped",
    "blocks_stored": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step",
    "blocks_restored": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step",
    "blocks_evicted": "request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_owned, age_ns",
    "blocks_loaded": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step",
    "blocks_dropped": "request_id, kv_group, first_index, num_blocks, reason",
    "cursor_moved": "request_id, kv_group, from_index, to_index",
    "request_preempted": "request_id, num_preemptions",
    "request_finished": "request_id, status, num_tokens, num_output_tokens, num_blocks, tail_hash, ttft_ns, duration_ns",
    "policy_applied": "policy_version, enabled, mode, max_restore_blocks_per_step, is_idle, reason",
    "events_dropped": "num_events",
    "fault": "origin, message, num_faults",
    "cache_reset": "num_blocks",
}
HEADER = "seq, engine_id, step, monotonic_ns, wall_ns"


def upgrade() -> None:
    op.create_table(
        "engines",
        sa.Column("id", sa.Integer(), nullable=False, comment="One row a start of an engine, not an engine's name"),
        sa.Column("engine_uid", sa.Text(), nullable=False, comment="vLLM's kv_transfer_config.engine_id"),
        sa.Column("dp_index", sa.Integer(), nullable=False, comment="parallel_config.data_parallel_index"),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("vllm_version", sa.Text(), nullable=False),
        sa.Column("restore_version", sa.Text(), nullable=False),
        sa.Column("sqlite_version", sa.Text(), nullable=False),
        sa.Column("hash_block_size", sa.Integer(), nullable=False, comment="Tokens a block hash covers"),
        sa.Column("num_gpu_blocks", sa.Integer(), nullable=False),
        sa.Column(
            "num_cpu_blocks", sa.Integer(), nullable=False, comment="Usable ones: vLLM's null block is not counted"
        ),
        sa.Column("block_bytes", sa.BigInteger(), nullable=False, comment="Bytes of one block, all layers of one rank"),
        sa.Column(
            "kv_groups", sa.Text(), nullable=False, comment="JSON: [{block_size, kind, is_prefix_cacheable}], by group"
        ),
        sa.Column("restore_support", sa.Text(), nullable=False, comment="'yes', or why this engine cannot re-store"),
        sa.Column("started_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_monotonic_ns", sa.BigInteger(), nullable=False),
        sa.Column(
            "heartbeat_wall_ns", sa.BigInteger(), nullable=False, comment="Written about once a second while it lives"
        ),
        sa.Column(
            "stopped_wall_ns", sa.BigInteger(), nullable=True, comment="NULL while it runs, or after it was killed"
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "policies",
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False, comment="Who asked: an address, a program, or 'default'"),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("max_restore_blocks_per_step", sa.Integer(), nullable=False),
        sa.CheckConstraint("max_restore_blocks_per_step >= 0", name="policy_budget"),
        sa.PrimaryKeyConstraint("version"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "block_hashes",
        sa.Column("engine_id", sa.Integer(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("parent_hash", sa.LargeBinary(), nullable=True, comment="NULL at the head of a chain"),
        sa.Column("depth", sa.Integer(), nullable=False, comment="Blocks of hash_block_size before this one"),
        sa.ForeignKeyConstraint(
            ["engine_id"],
            ["engines.id"],
        ),
        sa.PrimaryKeyConstraint("engine_id", "hash"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "events",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("engine_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("monotonic_ns", sa.BigInteger(), nullable=False),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("by_request_id", sa.Text(), nullable=True),
        sa.Column("session_id", sa.Text(), nullable=True),
        sa.Column("kv_group", sa.Integer(), nullable=True),
        sa.Column("first_index", sa.Integer(), nullable=True),
        sa.Column("num_blocks", sa.Integer(), nullable=True),
        sa.Column("tail_hash", sa.LargeBinary(), nullable=True),
        sa.Column(
            "head_hash",
            sa.LargeBinary(),
            nullable=True,
            comment="Of a run of blocks: finds the runs that touch a chain",
        ),
        sa.Column("cpu_block_ids", sa.Text(), nullable=True, comment="JSON array, in chain order"),
        sa.Column("num_bytes", sa.BigInteger(), nullable=True),
        sa.Column("scheduled_step", sa.Integer(), nullable=True),
        sa.Column("num_owned", sa.Integer(), nullable=True),
        sa.Column("age_ns", sa.BigInteger(), nullable=True),
        sa.Column("num_tokens", sa.Integer(), nullable=True),
        sa.Column("gpu_hit_tokens", sa.Integer(), nullable=True),
        sa.Column("cpu_hit_tokens", sa.Integer(), nullable=True),
        sa.Column("cut_index", sa.Integer(), nullable=True),
        sa.Column("missing_hash", sa.LargeBinary(), nullable=True),
        sa.Column("num_attempts", sa.Integer(), nullable=True),
        sa.Column("is_resumed", sa.Boolean(), nullable=True),
        sa.Column("is_skipped", sa.Boolean(), nullable=True),
        sa.Column("from_index", sa.Integer(), nullable=True),
        sa.Column("to_index", sa.Integer(), nullable=True),
        sa.Column("num_preemptions", sa.Integer(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("num_output_tokens", sa.Integer(), nullable=True),
        sa.Column("ttft_ns", sa.BigInteger(), nullable=True),
        sa.Column("duration_ns", sa.BigInteger(), nullable=True),
        sa.Column("policy_version", sa.Integer(), nullable=True),
        sa.Column("enabled", sa.Boolean(), nullable=True),
        sa.Column("mode", sa.Text(), nullable=True),
        sa.Column("max_restore_blocks_per_step", sa.Integer(), nullable=True),
        sa.Column("is_idle", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("num_events", sa.Integer(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=True),
        sa.Column("num_faults", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["engine_id"],
            ["engines.id"],
        ),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "events_by_head", "events", ["head_hash"], unique=False, sqlite_where=sa.text("head_hash IS NOT NULL")
    )
    op.create_index("events_by_kind", "events", ["kind", "wall_ns"], unique=False)
    op.create_index("events_by_request", "events", ["request_id", "seq"], unique=False)
    op.create_table(
        "steps",
        sa.Column("engine_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("monotonic_ns", sa.BigInteger(), nullable=False),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("num_running", sa.Integer(), nullable=False),
        sa.Column("num_scheduled_tokens", sa.Integer(), nullable=False),
        sa.Column("num_stored", sa.Integer(), nullable=False),
        sa.Column("num_restored", sa.Integer(), nullable=False),
        sa.Column("num_loaded", sa.Integer(), nullable=False),
        sa.Column("num_evicted", sa.Integer(), nullable=False),
        sa.Column("num_restorable", sa.Integer(), nullable=False),
        sa.Column("cpu_blocks_free", sa.Integer(), nullable=False),
        sa.Column("cpu_blocks_cached", sa.Integer(), nullable=False),
        sa.Column("cpu_blocks_in_flight", sa.Integer(), nullable=False),
        sa.Column("gpu_blocks_free", sa.Integer(), nullable=False),
        sa.Column("hook_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["engine_id"],
            ["engines.id"],
        ),
        sa.PrimaryKeyConstraint("engine_id", "step"),
        sqlite_with_rowid=False,
    )
    op.create_index("steps_by_wall", "steps", ["wall_ns"], unique=False)
    for kind, columns in VIEWS.items():
        op.execute(f"CREATE VIEW {kind} AS SELECT {HEADER}, {columns} FROM events WHERE kind = '{kind}'")


def downgrade() -> None:
    for kind in VIEWS:
        op.execute(f"DROP VIEW {kind}")
    for table in ("events", "steps", "block_hashes", "policies", "engines"):
        op.drop_table(table)
