"""Sums a second, filled for what the log has already, and two indexes for what no sum can tell."""

import sqlalchemy as sa
from alembic import op

revision = "20261130c"
down_revision = "20261130b"

BINS = range(11)
# 0.1 s and on by factors of √10, in nanoseconds.
EDGES = (
    100000000, 316227766, 1000000000, 3162277660, 10000000000,
    31622776602, 100000000000, 316227766017, 1000000000000, 3162277660168,
)  # fmt: skip
BLOCKS = "sum(CASE WHEN e.kind = 'blocks_{}' THEN e.num_blocks END)"
BYTES = "sum(CASE WHEN e.kind = 'blocks_{}' THEN e.num_bytes END)"
COPY = "sum(CASE WHEN e.kind = 'blocks_{}' THEN e.copy_ns END)"
MEASURED = "sum(CASE WHEN e.kind = 'blocks_{}' AND e.copy_ns IS NOT NULL THEN e.num_blocks END)"
LOOKUP = "sum(CASE WHEN e.kind = 'lookup' AND NOT e.is_resumed THEN {} END)"
OF_EVENTS = {
    "num_lookups": LOOKUP.format("1"),
    "prompt_tokens": LOOKUP.format("e.num_tokens"),
    "gpu_hit_tokens": LOOKUP.format("e.gpu_hit_tokens"),
    "cpu_hit_tokens": LOOKUP.format("e.cpu_hit_tokens"),
    "restored_hit_tokens": LOOKUP.format("e.restored_hit_tokens"),
    "lost_tokens": LOOKUP.format("e.lost_tokens"),
    "behind_tokens": LOOKUP.format("e.behind_tokens"),
    "num_started": "sum(e.kind = 'request_started')",
    "num_finished": "sum(e.kind = 'request_finished')",
    "stored_blocks": BLOCKS.format("stored"),
    "stored_bytes": BYTES.format("stored"),
    "stored_copy_ns": COPY.format("stored"),
    "stored_measured_blocks": MEASURED.format("stored"),
    "restored_blocks": BLOCKS.format("restored"),
    "restored_bytes": BYTES.format("restored"),
    "restored_copy_ns": COPY.format("restored"),
    "restored_measured_blocks": MEASURED.format("restored"),
    "loaded_blocks": BLOCKS.format("loaded"),
    "loaded_bytes": BYTES.format("loaded"),
    "loaded_copy_ns": COPY.format("loaded"),
    "loaded_measured_blocks": MEASURED.format("loaded"),
    "loaded_restored_blocks": "sum(CASE WHEN e.kind = 'blocks_loaded' THEN e.num_restored END)",
    "evicted_blocks": BLOCKS.format("evicted"),
    "evicted_judged_blocks": "sum(CASE WHEN e.kind = 'blocks_evicted' AND e.num_loaded IS NOT NULL "
    "THEN e.num_blocks END)",
    "evicted_unhit_blocks": "sum(CASE WHEN e.kind = 'blocks_evicted' THEN e.num_blocks - e.num_loaded END)",
    "evicted_by_restore_blocks": "sum(CASE WHEN e.kind = 'blocks_evicted' AND e.is_by_restore THEN e.num_blocks END)",
    "dropped_blocks": BLOCKS.format("dropped"),
    "missed_blocks": BLOCKS.format("missed"),
    "missed_owned_blocks": "sum(CASE WHEN e.kind = 'blocks_missed' THEN e.num_owned END)",
    "missed_by_restore_blocks": "sum(CASE WHEN e.kind = 'blocks_missed' AND e.is_by_restore THEN e.num_blocks END)",
}
PREFILL = {
    "prefill_steps": ("count(*)", sa.BigInteger()),
    "prefill_x": ("sum(1.0 * previous_tokens)", sa.Float()),
    "prefill_y": ("sum(previous_ns / 1e9)", sa.Float()),
    "prefill_xx": ("sum(1.0 * previous_tokens * previous_tokens)", sa.Float()),
    "prefill_xy": ("sum(previous_tokens * (previous_ns / 1e9))", sa.Float()),
    "prefill_yy": ("sum((previous_ns / 1e9) * (previous_ns / 1e9))", sa.Float()),
}
AGES = [f"evicted_age_{i}" for i in BINS]
SINCES = [f"missed_since_{i}" for i in BINS]
CAUSE_SUMS = ("num_lookups", "prompt_tokens", "lost_tokens", "behind_tokens")


def upgrade() -> None:
    op.create_index("events_applied", "events", ["engine_id", "seq"], sqlite_where=sa.text("kind = 'policy_applied'"))
    op.create_index(
        "events_finished", "events", ["wall_ns", "ttft_ns"], sqlite_where=sa.text("kind = 'request_finished'")
    )
    whole = [*OF_EVENTS, *AGES, *SINCES, "prefill_steps"]
    op.create_table(
        "rollups",
        sa.Column("second", sa.Integer(), nullable=False, comment="wall_ns / 1,000,000,000 of what is summed up"),
        sa.Column("engine_id", sa.Integer(), nullable=False),
        sa.Column(
            "policy_version", sa.Integer(), nullable=False, comment="That the engine obeyed; -1 before it said so"
        ),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in whole),
        *(sa.Column(name, sa.Float(), nullable=False) for name in PREFILL if name != "prefill_steps"),
        sa.Column(
            "last_step", sa.Integer(), comment="The last one with a row in this second; NULL where there is none"
        ),
        sa.Column("cpu_blocks_cached", sa.Integer(), comment="After that step"),
        sa.ForeignKeyConstraint(["engine_id"], ["engines.id"]),
        sa.PrimaryKeyConstraint("second", "engine_id", "policy_version"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "rollup_causes",
        sa.Column("second", sa.Integer(), nullable=False),
        sa.Column("engine_id", sa.Integer(), nullable=False),
        sa.Column("policy_version", sa.Integer(), nullable=False),
        sa.Column(
            "cause", sa.Text(), nullable=False, comment="'' where nothing was left to find, or it was not recorded"
        ),
        sa.Column("cause_detail", sa.Text(), nullable=False, comment="'' where there is none"),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in CAUSE_SUMS),
        sa.ForeignKeyConstraint(["engine_id"], ["engines.id"]),
        sa.PrimaryKeyConstraint("second", "engine_id", "policy_version", "cause", "cause_detail"),
        sqlite_with_rowid=False,
    )
    for statement in fill_statements():
        op.execute(statement)


def fill_statements() -> list[str]:
    """Make both tables from the rows. They must be empty."""
    return [_fill_rollups(), _fill_causes()]


def _fill_rollups() -> str:
    """Events and steps are summed apart and then put together."""
    ages = {name: _bin("blocks_evicted", "age_ns", i) for i, name in enumerate(AGES)}
    sinces = {name: _bin("blocks_missed", "since_ns", i) for i, name in enumerate(SINCES)}
    of_events = {**OF_EVENTS, **ages, **sinces}
    names = [*of_events, *PREFILL]
    # Sums of the other half are 0, and the last step is the steps' alone.
    events = [f"coalesce({of_events[n]}, 0)" if n in of_events else "0" for n in names]
    prefill = "CASE WHEN previous_ns IS NOT NULL AND previous_tokens > previous_running THEN {} END"
    steps = ["0" if n in of_events else f"coalesce({_only(PREFILL[n][0], prefill)}, 0)" for n in names]
    sums = ", ".join(f"sum({n}) AS {n}" for n in names)
    return f"""
INSERT INTO rollups (second, engine_id, policy_version, {", ".join(names)}, last_step, cpu_blocks_cached)
WITH parts AS (
    SELECT e.wall_ns / 1000000000 AS second, e.engine_id AS engine_id, {_policy_of_event()} AS policy_version,
           {", ".join(f"{sql} AS {n}" for n, sql in zip(names, events, strict=True))},
           NULL AS last_step, NULL AS cached
    FROM events AS e
    WHERE e.kind IN ('request_started', 'request_finished', 'blocks_stored', 'blocks_restored', 'blocks_loaded',
                     'blocks_evicted', 'blocks_missed', 'blocks_dropped') OR (e.kind = 'lookup' AND NOT e.is_resumed)
    GROUP BY 1, 2, 3
    UNION ALL
    SELECT s.wall_ns / 1000000000, s.engine_id, {_policy_of_step()} AS version,
           {", ".join(steps)}, max(s.step), s.cpu_blocks_cached
    FROM steps AS s
    GROUP BY 1, 2, version
)
SELECT second, engine_id, policy_version, {sums}, max(last_step), max(cached) FROM parts GROUP BY 1, 2, 3
"""


def _only(aggregate: str, condition: str) -> str:
    """An aggregate over just the steps that did prefill."""
    inner = "1" if aggregate == "count(*)" else aggregate.removeprefix("sum(").removesuffix(")")
    return f"sum({condition.format(inner)})"


def _fill_causes() -> str:
    cause = "coalesce(e.cause, CASE WHEN e.cut_index IS NULL THEN '' ELSE 'not_recorded' END)"
    return f"""
INSERT INTO rollup_causes (second, engine_id, policy_version, cause, cause_detail, {", ".join(CAUSE_SUMS)})
SELECT e.wall_ns / 1000000000, e.engine_id, {_policy_of_event()} AS version, {cause} AS why,
       coalesce(e.cause_detail, '') AS detail,
       count(*), sum(e.num_tokens), coalesce(sum(e.lost_tokens), 0), coalesce(sum(e.behind_tokens), 0)
FROM events AS e WHERE e.kind = 'lookup' AND NOT e.is_resumed GROUP BY 1, 2, version, why, detail
"""


def _bin(kind: str, column: str, i: int) -> str:
    least = f" AND e.{column} >= {EDGES[i - 1]}" if i else ""
    most = f" AND e.{column} < {EDGES[i]}" if i < len(EDGES) else ""
    return f"sum(CASE WHEN e.kind = '{kind}' AND e.{column} IS NOT NULL{least}{most} THEN e.num_blocks END)"


def _policy_of_event() -> str:
    """What the engine had said by then, in the log's order."""
    return """coalesce((
        SELECT a.policy_version FROM events AS a
        WHERE a.kind = 'policy_applied' AND a.engine_id = e.engine_id AND a.seq < e.seq ORDER BY a.seq DESC LIMIT 1
    ), -1)"""


def _policy_of_step() -> str:
    """A step's row has no `seq`: it comes after what the engine said at its begin, and before what an idle engine says
    later with the same number."""
    return """coalesce((
        SELECT a.policy_version FROM events AS a
        WHERE a.kind = 'policy_applied' AND a.engine_id = s.engine_id
          AND (a.step < s.step OR (a.step = s.step AND NOT a.is_idle))
        ORDER BY a.seq DESC LIMIT 1
    ), -1)"""


def downgrade() -> None:
    op.drop_table("rollup_causes")
    op.drop_table("rollups")
    op.drop_index("events_finished", "events")
    op.drop_index("events_applied", "events")
