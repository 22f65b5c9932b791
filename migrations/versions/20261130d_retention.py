"""Which block goes for a new one becomes a toggle of the policy."""

import sqlalchemy as sa
from alembic import op

revision = "20261130d"
down_revision = "20261130c"

HEADER = "seq, engine_id, step, monotonic_ns, wall_ns"
COLUMNS = "policy_version, enabled, mode, max_restore_blocks_per_step, is_idle, reason"


def upgrade() -> None:
    op.execute("DROP VIEW policy_applied")
    op.add_column(
        "policies",
        sa.Column(
            "retention",
            sa.Text(),
            nullable=False,
            server_default="lru",
            comment="Whose order blocks of the tier go in",
        ),
    )
    op.add_column("events", sa.Column("retention", sa.Text()))
    op.execute("UPDATE events SET retention = 'lru' WHERE kind = 'policy_applied'")
    _make(f"{COLUMNS}, retention")


def downgrade() -> None:
    op.execute("DROP VIEW policy_applied")
    op.drop_column("events", "retention")
    op.drop_column("policies", "retention")
    _make(COLUMNS)


def _make(columns: str) -> None:
    op.execute(f"CREATE VIEW policy_applied AS SELECT {HEADER}, {columns} FROM events WHERE kind = 'policy_applied'")
