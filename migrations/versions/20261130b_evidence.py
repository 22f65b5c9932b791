"""Why a lookup ended, what it lost, what copies took: columns for the evidence, and the views that show them."""

import sqlalchemy as sa
from alembic import op

revision = "20261130b"
down_revision = "20261130a"

VIEWS = {
    "request_started": "request_id, num_tokens, num_blocks, tail_hash, session_id",
    "lookup": "request_id, num_tokens, gpu_hit_tokens, cpu_hit_tokens, restored_hit_tokens, num_blocks, tail_hash, cut_index, missing_hash, num_attempts, is_resumed, is_skipped, cause, cause_detail, lost_tokens, behind_tokens, sibling_hash, by_request_id, evicted_step, since_ns, age_ns, was_owned",
    "lookup_waits": "request_id, num_tokens, gpu_hit_tokens, cpu_hit_tokens, num_blocks, tail_hash, num_attempts",
    "blocks_stored": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step, copy_ns",
    "blocks_restored": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step, copy_ns",
    "blocks_evicted": "request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_owned, age_ns, num_loaded, num_restored, is_by_restore",
    "blocks_loaded": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_bytes, scheduled_step, copy_ns, num_restored",
    "blocks_missed": "request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, evicted_step, since_ns, num_owned, is_by_restore",
    "blocks_dropped": "request_id, kv_group, first_index, num_blocks, reason, tail_hash, head_hash",
    "cursor_moved": "request_id, kv_group, from_index, to_index",
    "request_preempted": "request_id, num_preemptions",
    "request_finished": "request_id, status, num_tokens, num_output_tokens, num_blocks, tail_hash, ttft_ns, duration_ns",
    "policy_applied": "policy_version, enabled, mode, max_restore_blocks_per_step, is_idle, reason",
    "events_dropped": "num_events",
    "fault": "origin, message, num_faults",
    "cache_reset": "num_blocks",
}
OLD_VIEWS = {
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
    for kind in OLD_VIEWS:
        op.execute(f"DROP VIEW {kind}")
    op.add_column(
        "engines",
        sa.Column(
            "directory_capacity",
            sa.Integer(),
            comment="Hashes that the engine remembers to have seen; NULL before it did",
        ),
    )
    for name in ("previous_tokens", "previous_running", "num_forgotten"):
        op.add_column("steps", sa.Column(name, sa.Integer()))
    op.add_column(
        "steps", sa.Column("previous_ns", sa.BigInteger(), comment="Since the step before began; NULL after idleness")
    )
    for column in (
        sa.Column("restored_hit_tokens", sa.Integer(), comment="NULL in rows from before it was counted"),
        sa.Column("cause", sa.Text()),
        sa.Column("cause_detail", sa.Text()),
        sa.Column("lost_tokens", sa.Integer()),
        sa.Column("behind_tokens", sa.Integer()),
        sa.Column("sibling_hash", sa.LargeBinary()),
        sa.Column("evicted_step", sa.Integer()),
        sa.Column("since_ns", sa.BigInteger()),
        sa.Column("was_owned", sa.Boolean()),
        sa.Column("num_loaded", sa.Integer()),
        sa.Column("num_restored", sa.Integer()),
        sa.Column("is_by_restore", sa.Boolean()),
        sa.Column("copy_ns", sa.BigInteger(), comment="NULL where the worker does not measure"),
    ):
        op.add_column("events", column)
    _make(VIEWS)


def downgrade() -> None:
    for kind in VIEWS:
        op.execute(f"DROP VIEW {kind}")
    for name in (
        "restored_hit_tokens",
        "cause",
        "cause_detail",
        "lost_tokens",
        "behind_tokens",
        "sibling_hash",
        "evicted_step",
        "since_ns",
        "was_owned",
        "num_loaded",
        "num_restored",
        "is_by_restore",
        "copy_ns",
    ):
        op.drop_column("events", name)
    for name in ("previous_ns", "previous_tokens", "previous_running", "num_forgotten"):
        op.drop_column("steps", name)
    op.drop_column("engines", "directory_capacity")
    _make(OLD_VIEWS)


def _make(views: dict[str, str]) -> None:
    for kind, columns in views.items():
        op.execute(f"CREATE VIEW {kind} AS SELECT {HEADER}, {columns} FROM events WHERE kind = '{kind}'")
