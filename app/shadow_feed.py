"""Feeds shadows of the CPU tier with what an engine's log says, and adds up what each would have given.

No thread and no clock of its own: `shadows` follows a live log with it, `whatif` plays a recorded one.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from app.queries.traffic import Chains, TierShape, read_computed, read_rows
from app.shadow_pages import WindowPages
from app.shadow_series import SECOND_NS, Series
from connector.shadow import Asked, ShadowPolicy, ShadowTier

ACTIVE = "active"
BEFORE_STEP = ("lookup_waits", "request_preempted", "policy_applied")


class ShadowFeed:
    """The shadows of one engine's tier.

    Args:
        shape: of the engine; it must be supported.
        shadows: by name. The one that is named `active` follows what the engine obeyed.

    Attributes:
        truth: what the engine gave.
    """

    def __init__(self, shape: TierShape, shadows: Mapping[str, ShadowTier]) -> None:
        assert shape.unsupported is None, shape.unsupported
        self.shape = shape
        self.shadows = dict(shadows)
        self.last_seq = 0
        self.num_lookups = 0
        self.truth = Series()
        self.series = {name: Series() for name in shadows}
        self._chains = Chains(shape.engine_id, shape.groups)
        self._step = 0
        self._pages = WindowPages(shape, self._chains)

    def take(self, conn: Connection, limit: int) -> int:
        """Read up to `limit` rows and follow them. Returns how many there were."""
        rows = read_rows(conn, self.shape.engine_id, self.last_seq, limit)
        tiers = list(self.shadows.values())
        for row in rows:
            self._follow(conn, row, tiers)
            self.last_seq = row.seq
        return len(rows)

    def _follow(self, conn: Connection, row: Any, tiers: list[ShadowTier]) -> None:
        kind = row.kind
        now = row.monotonic_ns / SECOND_NS
        for tier in tiers:
            tier.now = now
        self._pages.follow(conn, row, tiers)
        # A lookup is made after the step of its row was built, and these before it was.
        is_before = kind in BEFORE_STEP
        step: int = row.step - is_before
        if step > self._step:
            self._step = step
            for tier in tiers:
                tier.step(step)
        if kind == "lookup":
            self._lookup(conn, row)
            return
        if is_before:
            self._before_step(conn, row)
            return
        if kind == "request_started":
            chain = self._chains.get(conn, row.tail_hash)
            for tier in tiers:
                tier.arrived(row.request_id, chain, row.session_id)
        elif kind == "stores_refused":
            self._refused(conn, row)
        elif kind == "cursor_moved":
            for tier in tiers:
                tier.cursor_moved(row.request_id, row.kv_group, row.to_index)
        elif kind in ("blocks_stored", "blocks_restored"):
            self._copied(conn, row)
        elif kind == "blocks_loaded":
            for tier in tiers:
                tier.loaded(row.request_id)
        elif kind == "request_finished":
            chain = self._chains.get(conn, row.tail_hash)
            computed = self._computed(conn, row)
            for tier in tiers:
                tier.finished(row.request_id, chain, None if computed is None else min(computed, len(chain)))
        elif kind == "cache_reset":
            for tier in tiers:
                tier.reset()

    def _computed(self, conn: Connection, row: Any) -> int | None:
        """Hash blocks that a request had computed when it ended; None where nobody knows."""
        if not row.num_output_tokens:
            # How far the prompt got is not said: what was copied of it shows it.
            group = self.shape.groups[0]
            found = read_computed(conn, self.shape.engine_id, row, group.number)
            return None if found is None else found * group.ratio
        # The last token that was sampled is never computed, and a block that drafts of the last step fill is cached
        # only if there is one more: the engine's copy shows it.
        sure = row.num_tokens + row.num_output_tokens - 1 - self.shape.num_draft_tokens
        return max(0, sure) // self.shape.hash_block_size

    def _before_step(self, conn: Connection, row: Any) -> None:
        """What a step found when it began to be built."""
        kind, tiers = row.kind, self.shadows.values()
        if kind == "lookup_waits":
            asked = self._asked(conn, row)
            for tier in tiers:
                tier.waits(row.request_id, asked)
        elif kind == "request_preempted":
            for tier in tiers:
                tier.preempted(row.request_id)
        elif kind == "policy_applied" and ACTIVE in self.shadows:
            policy: ShadowPolicy = "tracked" if row.enabled else "off"
            if row.retention == "adaptive":
                policy = "adaptive" if row.enabled else "adaptive-off"
            self.shadows[ACTIVE].obey(policy, row.max_restore_blocks_per_step)

    def _refused(self, conn: Connection, row: Any) -> None:
        """First copies that wait for a place in the engine's own tier: computed all the same."""
        if row.is_restore:
            return
        chain = self._chains.get(conn, row.tail_hash)
        for tier in self.shadows.values():
            tier.refused(row.request_id, row.kv_group, row.first_index + row.num_blocks, chain)

    def _copied(self, conn: Connection, row: Any) -> None:
        # Its tail is the deepest block of its request that the log has named so far.
        request_id: str | None = row.request_id
        chain = self._chains.get(conn, row.tail_hash)
        for tier in self.shadows.values():
            if request_id is not None:
                tier.extend(request_id, chain, row.scheduled_step)
                tier.computed(request_id, row.kv_group, row.first_index + row.num_blocks, row.scheduled_step)
            tier.copies_over(row.scheduled_step)

    def _asked(self, conn: Connection, row: Any) -> Asked:
        size = self.shape.hash_block_size
        on_gpu = row.gpu_hit_tokens // size
        usable = 0 if row.is_skipped else (row.num_tokens - 1) // size
        return Asked(self._chains.whole(conn, row), max(usable, on_gpu), row.num_blocks, on_gpu)

    def _lookup(self, conn: Connection, row: Any) -> None:
        size = self.shape.hash_block_size
        asked = self._asked(conn, row)
        counts = not row.is_resumed
        if counts:
            self.num_lookups += 1
            self.truth.add(row.wall_ns, row.num_tokens, row.gpu_hit_tokens, row.cpu_hit_tokens)
        for name, tier in self.shadows.items():
            found = tier.lookup(row.request_id, asked)
            if counts:
                self.series[name].add(row.wall_ns, row.num_tokens, row.gpu_hit_tokens, found * size)
