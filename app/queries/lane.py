"""A request's chain as a lane over time: one row a moment that changed something, and how all blocks stood then."""

from collections.abc import Sequence
from heapq import merge
from itertools import groupby
from typing import Any

from app.models import ChainBlock, LaneRow, LaneSpan, LaneState
from app.queries.history import History
from app.queries.runs import Run

MAX_ROWS = 500
MAX_ROWS_BEFORE = 150
"""Of these, before the lookup; more where there are not enough after it."""
_OF_SOURCE: dict[str, LaneState] = {
    "gpu": "gpu_hit", "cpu": "cpu_hit", "missing": "missing", "computed": "computed", "pending": "computed",
}  # fmt: skip


def build_lane(history: History, blocks: Sequence[ChainBlock], lookup: Any) -> tuple[list[LaneRow], bool]:
    """The rows around the lookup, or the newest before there was one, in the log's order; and whether these are all.

    Args:
        blocks: the chain, head first.
        lookup: the row of the first lookup; None before it.
    """
    first = blocks[0].index
    # For each block, the groups that have a copy of it, and which of these copies are re-stores.
    copies: list[dict[int, bool]] = [{} for _ in blocks]
    rows: list[LaneRow] = []
    lookups: list[Any] = [] if lookup is None else [lookup]
    num_before: int | None = None
    parts: list[Sequence[Any]] = [history.runs, history.resets, lookups]
    for row in merge(*parts, key=lambda row: row.seq):
        if isinstance(row, Run):
            touched = history.covered(row)
            if not touched:
                continue
            for index in touched:
                if row.kind == "blocks_evicted":
                    copies[index - first].pop(row.kv_group, None)
                elif row.kind in ("blocks_stored", "blocks_restored"):
                    copies[index - first][row.kv_group] = row.kind == "blocks_restored"
            rows.append(_row(row, touched.start, len(touched), _states(copies), row.kv_group))
        elif row is not lookup:
            if any(copies):
                copies = [{} for _ in blocks]
                rows.append(_row(row, first, len(blocks), _states(copies), None))
        else:
            num_before = len(rows)
            rows.append(_row(row, first, len(blocks), _at_lookup(blocks, copies), None))
    # A head that all prompts share goes on changing for ever: the newest rows say nothing about an older request.
    newest = max(0, len(rows) - MAX_ROWS)
    start = newest if num_before is None else min(newest, max(0, num_before - MAX_ROWS_BEFORE))
    return rows[start : start + MAX_ROWS], len(rows) <= MAX_ROWS


def _states(copies: Sequence[dict[int, bool]]) -> list[LaneState]:
    """A block is in the tier where any group has a copy of it: groups with a window let go of what left it."""
    return ["absent" if not held else "restored" if any(held.values()) else "cached" for held in copies]


def _at_lookup(blocks: Sequence[ChainBlock], copies: Sequence[dict[int, bool]]) -> list[LaneState]:
    """What the lookup found, and what lay in the CPU tier behind its cut."""
    states: list[LaneState] = []
    is_behind = False
    for block, state in zip(blocks, _states(copies), strict=True):
        if is_behind and block.source == "computed" and state != "absent":
            states.append("behind")
        elif block.source == "cpu" and state == "restored":
            states.append("restored_hit")
        else:
            states.append(_OF_SOURCE[block.source])
        is_behind = is_behind or block.source == "missing"
    return states


def _row(row: Any, first_index: int, num_blocks: int, states: Sequence[LaneState], kv_group: int | None) -> LaneRow:
    return LaneRow(
        seq=row.seq,
        step=row.step,
        wall_ns=row.wall_ns,
        kind=row.kind,
        request_id=row.request_id,
        by_request_id=row.by_request_id if row.kind == "blocks_evicted" else None,
        kv_group=kv_group,
        first_index=first_index,
        num_blocks=num_blocks,
        spans=[LaneSpan(state=state, num_blocks=len(list(run))) for state, run in groupby(states)],
    )
