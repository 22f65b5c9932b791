"""Which pages of a sliding window the engine had no more when it was time to copy them.

The log says how far a cursor went and what was copied, not what was skipped on the way. A page that was neither copied
nor in the engine's own tier was gone from the GPU, for every tier.
"""

from typing import Any

from sqlalchemy import Connection

from app.queries.traffic import Chains, TierShape, read_copied
from connector.shadow import Chain, GroupShape, ShadowTier

# After so many steps a copy is in the log, if there was one.
COPY_STEPS = 8


class WindowPages:
    """Follows what the engine's own tier holds of groups with a window. Of no cost where there are none."""

    def __init__(self, shape: TierShape, chains: Chains) -> None:
        self._shape = shape
        self._chains = chains
        self._groups = {g.number: g for g in shape.groups if g.needed is not None}
        self._held: set[bytes] = set()
        self._cursors: dict[str, dict[int, int]] = {}
        self._chain_of: dict[str, Chain] = {}

    def follow(self, conn: Connection, row: Any, tiers: list[ShadowTier]) -> None:
        """Take note of a row, and tell the tiers what was gone, before they act on the row."""
        if not self._groups:
            return
        kind = row.kind
        if kind in ("blocks_stored", "blocks_restored", "blocks_evicted"):
            group = self._groups.get(row.kv_group)
            if group is not None:
                self._hold(conn, row, group, is_there=kind != "blocks_evicted")
        elif kind == "lookup":
            self._chain_of[row.request_id] = self._chains.whole(conn, row)
        elif kind == "cursor_moved" and row.kv_group in self._groups:
            self._cursors.setdefault(row.request_id, {})[row.kv_group] = row.to_index
            self._tell(conn, row, self._groups[row.kv_group], row.from_index, row.to_index, tiers, row.step)
        elif kind == "request_preempted":
            self._cursors.pop(row.request_id, None)
        elif kind == "request_finished":
            cursors = self._cursors.pop(row.request_id, {})
            for number, group in self._groups.items():
                end = row.num_blocks // group.ratio
                self._tell(conn, row, group, cursors.get(number, 0), end, tiers, row.step + 1)
            self._chain_of.pop(row.request_id, None)
        elif kind == "cache_reset":
            self._held.clear()

    def _hold(self, conn: Connection, row: Any, group: GroupShape, *, is_there: bool) -> None:
        chain = self._chains.get(conn, row.tail_hash)
        end = min(row.first_index + row.num_blocks, len(chain) // group.ratio)
        keys = chain.line.keys[group.number][row.first_index : end]
        if is_there:
            self._held.update(keys)
        else:
            self._held.difference_update(keys)

    def _tell(
        self, conn: Connection, row: Any, group: GroupShape, first: int, end: int, tiers: list[ShadowTier], last: int
    ) -> None:
        if first >= end:
            return
        copied = read_copied(conn, self._shape.engine_id, row, group.number, last, last + COPY_STEPS)
        chain = self._chain_of.get(row.request_id)
        gone: list[int] = []
        for index in range(first, end):
            deepest = (index + 1) * group.ratio - 1
            if copied is None:
                # The log's end: of what was computed in one go, only the window is sure to be there.
                is_gone = row.kind == "request_finished" and index < end - (group.needed or 0) - 1
            elif chain is not None and deepest < len(chain):
                is_held = chain.line.keys[group.number][index] in self._held
                is_gone = index not in copied[0] and chain.line.hashes[deepest] not in copied[1] and not is_held
            else:
                is_gone = index not in copied[0]
            if is_gone:
                gone.append(index)
        for tier in tiers:
            tier.absent(row.request_id, group.number, gone)
