"""Why `adaptive` did what it did: the scores of what it chose and refused, its changes of rule, what it has learned."""

import sqlalchemy as sa
from alembic import op

revision = "20261130e"
down_revision = "20261130d"

EVICTED = (
    "request_id, by_request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, cpu_block_ids, num_owned, "
    "age_ns, num_loaded, num_restored, is_by_restore"
)
NEW_VIEWS = {
    "stores_refused": "request_id, kv_group, first_index, num_blocks, tail_hash, head_hash, reason, is_restore, "
    "victim_worth, incoming_worth",
    "rule_switched": "from_rule, to_rule, reason, lru_hit_blocks, worth_hit_blocks, asked_blocks, num_reuses",
}
SUMS = ("evicted_by_worth_blocks", "num_refusals")
BY_LAST_USE = "0 to 1; NULL where blocks go by last use"
HEADER = "seq, engine_id, step, monotonic_ns, wall_ns"


def upgrade() -> None:
    columns = (
        sa.Column("victim_worth", sa.Float(), comment=BY_LAST_USE),
        sa.Column("incoming_worth", sa.Float(), comment=BY_LAST_USE),
        sa.Column("is_restore", sa.Boolean()),
        sa.Column("from_rule", sa.Text()),
        sa.Column("to_rule", sa.Text()),
        sa.Column("lru_hit_blocks", sa.Float()),
        sa.Column("worth_hit_blocks", sa.Float()),
        sa.Column("asked_blocks", sa.Float()),
        sa.Column("num_reuses", sa.Integer()),
    )
    op.execute("DROP VIEW blocks_evicted")
    for column in columns:
        op.add_column("events", column)
    _view("blocks_evicted", f"{EVICTED}, victim_worth, incoming_worth")
    for kind, names in NEW_VIEWS.items():
        _view(kind, names)
    for name in SUMS:
        op.add_column("rollups", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "retention_states",
        sa.Column("engine_id", sa.Integer(), sa.ForeignKey("engines.id"), primary_key=True),
        sa.Column("step", sa.Integer(), primary_key=True),
        sa.Column("monotonic_ns", sa.BigInteger(), nullable=False),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("is_guard_on", sa.Boolean(), nullable=False),
        sa.Column(
            "lru_hit_blocks",
            sa.Float(),
            nullable=False,
            comment="Of the shadow by last use; fades with each request",
        ),
        sa.Column("worth_hit_blocks", sa.Float(), nullable=False, comment="Of the shadow by worth"),
        sa.Column("asked_blocks", sa.Float(), nullable=False),
        sa.Column("guard_lead", sa.Float(), nullable=False, comment="The lead in hit rate at which the guard is on"),
        sa.Column("num_reuses", sa.Integer(), nullable=False),
        sa.Column("num_to_learn", sa.Integer(), nullable=False),
        sa.Column("horizon_s", sa.Float(), nullable=False),
        sa.Column("edges_s", sa.Text(), nullable=False, comment="JSON: where each bucket of idle time starts"),
        sa.Column("worth", sa.Text(), nullable=False, comment="JSON: by class of chains and bucket, from 0 to 1"),
        sa.Column("returns", sa.Text(), nullable=False, comment="JSON: by class of chains, fading"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("retention_states")
    for name in SUMS:
        op.drop_column("rollups", name)
    for kind in (*NEW_VIEWS, "blocks_evicted"):
        op.execute(f"DROP VIEW {kind}")
    op.execute("DELETE FROM events WHERE kind IN ('stores_refused', 'rule_switched')")
    for name in (
        "victim_worth", "incoming_worth", "is_restore", "from_rule", "to_rule", "lru_hit_blocks", "worth_hit_blocks",
        "asked_blocks", "num_reuses",
    ):  # fmt: skip
        op.drop_column("events", name)
    _view("blocks_evicted", EVICTED)


def _view(kind: str, names: str) -> None:
    op.execute(f"CREATE VIEW {kind} AS SELECT {HEADER}, {names} FROM events WHERE kind = '{kind}'")
