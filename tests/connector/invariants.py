"""What must hold after every step, whatever was done to the engine: I1 references, I2 truth, I3 cursors, I6 log.

Test support. I4 (rest) and I5 (equality) compare runs; they are tests of their own.
"""

import json
from collections import Counter
from collections.abc import Collection
from typing import Any

from harness import Engine
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.v1.core.kv_cache_utils import (
    get_block_hash,
    get_group_id,
    make_block_hash_with_group_id,
    maybe_convert_block_hash,
)

from connector.events import (
    BlocksEvicted,
    BlocksRestored,
    BlocksStored,
    CacheReset,
    ChainExtended,
    EventsDropped,
    RetentionState,
)


def check_references(engine: Engine) -> None:
    """I1: every reference on either pool is held by something that is in flight or by a request's block table."""
    engine_gpu: Counter[int] = Counter()
    for child in engine.children:
        manager = child.scheduler_manager
        cpu: Counter[int] = Counter()
        gpu: Counter[int] = Counter()
        for blocks, _, _ in manager._pending_cpu_hits.values():
            cpu.update(b.block_id for group in blocks for b in group if not b.is_null)
        transfers = [s.transfer_meta for s in manager._reqs_to_load.values()]
        transfers += [s.transfer_meta for s in manager._abandoned_reqs_to_load.values()]
        transfers += manager._pending_finished_stores
        transfers += manager._store_event_to_blocks.values()
        transfers += manager._abandoned_store_event_to_blocks.values()
        for transfer in transfers:
            cpu.update(transfer.cpu_block_ids)
            gpu.update(transfer.gpu_block_ids)
        _compare("CPU", manager.cpu_block_pool, cpu)
        engine_gpu += gpu
    for manager in engine.scheduler.kv_cache_manager.coordinator.single_type_managers:
        for blocks in manager.req_to_blocks.values():
            engine_gpu.update(b.block_id for b in blocks if not b.is_null)
    for _, blocks in engine.scheduler.deferred_frees:
        engine_gpu.update(b.block_id for b in blocks if not b.is_null)
    _compare("GPU", engine.scheduler.kv_cache_manager.block_pool, engine_gpu)


def _compare(name: str, pool: Any, held: Counter[int]) -> None:
    taken = {b.block_id: b.ref_cnt for b in pool.blocks if b.ref_cnt and not b.is_null}
    assert taken == dict(held), f"{name} references {taken} are not those held: {dict(held)}"
    assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1 - len(taken)


def check_truth(engine: Engine, excused: Collection[int] = ()) -> None:
    """I2: a hash can be found only if that CPU block holds, on every rank, the bytes of that hash.

    `excused`: CPU blocks that vLLM's own choice may have filled too early (see `Watch`).
    """
    for pool, memory in ((engine.manager.cpu_block_pool, cpu) for cpu in engine.cpus):
        secondary = pool.cached_block_hashes_by_block
        for block in pool.blocks:
            if block.block_hash is not None and block.block_id not in excused:
                held = memory.read(block.block_id)
                assert held in {block.block_hash, *secondary.get(block.block_id, ())}, (
                    f"CPU block {block.block_id} answers for a hash whose bytes it does not hold"
                )


def check_owners(engine: Engine) -> None:
    """The index of owned blocks names blocks below cursors, of requests that have them, and counts what is lost."""
    manager = engine.manager
    owners = manager._owners
    for request_id, keys in owners._keys_of.items():
        if request_id in engine.scheduler.reset_preempted_req_ids:
            continue  # the connector is told with the next step's output
        state = manager._reqs_to_store[request_id]
        assert not state.finished
        for key in keys:
            block = owners.get(key)
            if block is None or request_id not in owners.owners_of(block):
                continue  # given up: the page left the request's window
            assert block.index < state.num_stored_blocks[block.group], f"{request_id} owns a block beyond its cursor"
            assert owners.starts_of(request_id).get(block.group, 0) <= block.index, f"{request_id} owns what it gave up"
    assert owners.num_lost == sum(1 for block in owners._blocks.values() if block.lost_ticket)


def check_displaced(engine: Engine) -> None:
    """I4: each stored block that a running request holds is in the tier, on its way there, or waits for its repair."""
    manager = engine.manager
    on_its_way_or_told = manager._tier.keys_in_flight.keys() | {key for _, key in manager._tier._observer._evicted}
    for key in held_blocks(engine, is_stored=True):
        if manager.cpu_block_pool.cached_block_hash_to_block.get_one_block(key) or key in on_its_way_or_told:
            continue
        block = manager._owners.get(key)
        assert block is not None, f"nobody owns {key.hex()}, which a running request holds and the tier has lost"
        assert block.lost_ticket, f"{key.hex()} is lost, and nobody waits for its repair"


def places(engine: Engine) -> int:
    """Places of the tier that copies can be written to, now or once those on their way are over: all but those that a
    load reads from, or that an abandoned copy is written to."""
    manager = engine.manager
    taken: set[int] = set()
    for blocks, _, _ in manager._pending_cpu_hits.values():
        taken.update(b.block_id for group in blocks for b in group if not b.is_null)
    for load in (*manager._reqs_to_load.values(), *manager._abandoned_reqs_to_load.values()):
        taken.update(load.transfer_meta.cpu_block_ids)
    for copy in manager._abandoned_store_event_to_blocks.values():
        taken.update(copy.cpu_block_ids)
    return manager.num_cpu_blocks - 1 - len(taken)


def held_blocks(engine: Engine, *, is_stored: bool) -> dict[bytes, int]:
    """The distinct blocks that running requests hold on the GPU, by key, with their depth in tokens; `is_stored`: only
    those before the requests' cursors, and none of a session's. From vLLM's block tables and hashes alone."""
    gpu = engine.scheduler.kv_cache_manager.block_pool
    managers = engine.scheduler.kv_cache_manager.coordinator.single_type_managers
    held: dict[bytes, int] = {}
    for state in engine.manager._reqs_to_store.values():
        if state.finished or (is_stored and state.request.resumable):
            continue
        for g in engine.stored_groups:
            blocks = managers[g].req_to_blocks.get(state.request.request_id, ())
            keys = engine.keys(state.request.request_id, g)
            end = state.num_stored_blocks[g] if is_stored else len(blocks)
            for i, (key, block) in enumerate(zip(keys, blocks[:end], strict=False)):
                if not block.is_null and gpu.blocks[block.block_id].block_hash == key:
                    held[key] = i * engine.block_size(g)
    return held


def spare_room(engine: Engine) -> int:
    """Places of the tier that are left over when each block that a running request holds has one; negative where the
    tier is too small for what runs."""
    return places(engine) - len(held_blocks(engine, is_stored=False))


def findable(engine: Engine) -> set[bytes]:
    """The keys of the blocks that the CPU pool can answer for. A block that also answers for finer boundaries within
    it (groups of different block sizes) counts by its deepest."""
    return {block.block_hash for block in engine.manager.cpu_block_pool.blocks if block.block_hash is not None}


def note_restores(engine: Engine) -> list[list[bytes]]:
    """A list that grows, with each step, by the keys that the step's metadata re-stores, in their order."""
    orders: list[list[bytes]] = []
    tier = engine.manager._tier
    inner = tier.copies_ordered

    def noted(meta: Any, step: int) -> Any:
        copies = inner(meta, step)
        orders.append([c.key for c in copies if c is not None and c.is_restore])
        return copies

    tier.copies_ordered = noted
    return orders


class Announcements:
    """What a reader of vLLM's KV-cache events believes to be in the CPU tier, from the engine's start on.

    vLLM announces each copy, and each copy's end: twins (two CPU blocks with one hash) are announced twice and end
    twice. So a reader has to count, and a hash can be found as long as one copy is left.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._copies: Counter[tuple[int | None, object]] = Counter()
        self._inner = engine.connector.take_events
        engine.connector.take_events = self._take_events

    def check(self) -> None:
        """Replayed from nothing, the events yield what the CPU pool can answer for; those not yet taken included."""
        pool = self._engine.manager.cpu_block_pool
        copies = self._copies.copy()
        for event in pool.kv_event_queue:
            _replay(event, copies)
        real = {
            (get_group_id(key), maybe_convert_block_hash(get_block_hash(key)))
            for key in pool.cached_block_hash_to_block._cache
        }
        assert min(copies.values(), default=0) >= 0, "a hash was announced as removed more often than as stored"
        told = {key for key, count in copies.items() if count}
        assert told == real, f"KV-cache events tell of {len(told - real)} hashes too many and lack {len(real - told)}"

    def _take_events(self) -> list[Any]:
        events = list(self._inner())
        for event in events:
            assert isinstance(event, AllBlocksCleared) or event.medium == "CPU"
            _replay(event, self._copies)
        return events


def _replay(event: Any, copies: Counter[tuple[int | None, object]]) -> None:
    match event:
        case BlockStored():
            copies.update((event.group_idx, h) for h in event.block_hashes)
        case BlockRemoved():
            copies.subtract((event.group_idx, h) for h in event.block_hashes)
        case AllBlocksCleared():
            copies.clear()
        case _:
            raise AssertionError(f"an event of another kind: {event}")


class Exchanges:
    """Follows who gets whose place while the tier is too small for what runs: `tracked` gives away no stored block of a
    running request for one that lies as deep or deeper, neither for a re-store nor for a first store.

    What vLLM copies on ways of its own is not asked: Mamba boundaries, a prompt's partial last block, sessions.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.num_seen = 0
        """Exchanges in which a running request's block was given away."""
        restorer = engine.manager._restorer
        self._pool = engine.manager.cpu_block_pool
        self._inner_order, self._inner_review = restorer._order, restorer.review
        self._inner_new_blocks = self._pool.get_new_blocks
        restorer._order, restorer.review = self._order, self._review
        self._pool.get_new_blocks = self._get_new_blocks
        self._newcomers: list[int] = []
        """Depths of those that the next allocation of the pool is for."""

    def _order(self, chosen: list[Any]) -> None:
        if self._is_tight(0):
            self._newcomers = [c.index * self._engine.block_size(c.group) for c in chosen]
        self._inner_order(chosen)

    def _review(self, state: Any, block_ids: Any, selection: Any) -> Any:
        is_tight = self._is_tight(len(selection[0]))
        reviewed = self._inner_review(state, block_ids, selection)
        if is_tight:
            copies = [self._engine.manager._tier._chosen[block_id] for block_id in reviewed[0]]
            self._newcomers = [c.index * self._engine.block_size(c.group) for c in copies]
        return reviewed

    def _is_tight(self, num_new: int) -> bool:
        restorer = self._engine.manager._restorer
        if not restorer.policy.enabled or restorer.policy.mode != "tracked" or restorer.keeper is not None:
            return False  # `adaptive` goes by who came first (see `chain_invariants`)
        return len(held_blocks(self._engine, is_stored=True)) + num_new > places(self._engine)

    def _get_new_blocks(self, count: int) -> Any:
        newcomers, self._newcomers = sorted(self._newcomers), []
        if not newcomers:
            return self._inner_new_blocks(count)
        before = [block.block_hash for block in self._pool.blocks]
        new_blocks = self._inner_new_blocks(count)
        held = held_blocks(self._engine, is_stored=True)
        cached = self._pool.cached_block_hash_to_block
        victims = [before[b.block_id] for b in new_blocks]
        given = sorted(held[key] for key in victims if key in held and cached.get_one_block(key) is None)
        self.num_seen += bool(given)
        # One more than was chosen: the prompt's last block, for which any place may be taken.
        given = given[count - len(newcomers) :]
        assert all(old > new for old, new in zip(given, newcomers, strict=False)), (
            f"running requests gave blocks at depths {given} for blocks at depths {newcomers}"
        )
        return new_blocks


class Watch:
    """Follows one engine from its start: cursors (I3), the log's events (I6), who gives way to whom (I4), and vLLM's
    KV-cache events where they are enabled.

    The events are taken where the recorder gets them; `check_log` reads them back from the database.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cursors: dict[str, tuple[tuple[int, int], list[int]]] = {}
        self._parents: dict[bytes, bytes | None] = {}
        self.content: set[bytes] = set()
        self._num_events = 0
        self._snapshots: list[tuple[int, frozenset[bytes]]] = []
        self._inner = engine.connector._recorder.record
        engine.connector._recorder.record = self._record
        # Stock may copy a page that has left its request's window and was given to another request, whose hash it has
        # before that request has computed it; or, with EAGLE, a partial tail whose last tokens are computed again. That
        # is vLLM's choice, and it stands.
        self._excused: set[int] = set()
        engine.conditions.is_excused = self._excused.__contains__
        self._announcements = Announcements(engine) if engine.manager.enable_kv_cache_events else None
        self._inner_ordered = engine.manager._tier.copies_ordered
        engine.manager._tier.copies_ordered = self._copies_ordered
        self.exchanges = Exchanges(engine)

    def check(self) -> None:
        check_references(self._engine)
        check_truth(self._engine, self._excused)
        check_owners(self._engine)
        check_displaced(self._engine)
        self.check_cursors()
        self.check_content()
        if self._announcements is not None:
            self._announcements.check()

    def _copies_ordered(self, meta: Any, step: int) -> Any:
        copies = self._inner_ordered(meta, step)
        for cpu_block_id, copy in zip(meta.store_cpu_blocks, copies, strict=False):
            # A copy that nobody of ours has placed.
            is_unplaced = copy is None or copy.request_id is None
            (self._excused.add if is_unplaced else self._excused.discard)(cpu_block_id)
        return copies

    def check_cursors(self) -> None:
        """I3: a cursor lies between 0 and the ready blocks, and moves back only at preemption and reset."""
        engine = self._engine
        seen: dict[str, tuple[tuple[int, int], list[int]]] = {}
        for request_id, state in engine.manager._reqs_to_store.items():
            request = state.request
            confirmed = request.num_computed_tokens - request.num_output_placeholders
            if request_id in engine.scheduler.reset_preempted_req_ids:
                continue  # the connector is told with the next step's output
            if not request.is_finished():
                for g, cursor in enumerate(state.num_stored_blocks):
                    ready = min(len(state.block_ids[g]), max(confirmed, 0) // engine.block_size(g))
                    assert 0 <= cursor <= max(ready, 0), f"cursor {cursor} of {request_id} passes {ready} ready blocks"
            era = (request.num_preemptions, engine.num_resets)
            seen[request_id] = (era, list(state.num_stored_blocks))
            before = self._cursors.get(request_id)
            if before is not None and before[0] == era:
                assert all(a <= b for a, b in zip(before[1], state.num_stored_blocks, strict=True)), (
                    f"the cursor of {request_id} moved back from {before[1]} to {state.num_stored_blocks}"
                )
        self._cursors = seen

    def check_content(self) -> None:
        """I6: the events so far, replayed from nothing, yield what the CPU pool can answer for."""
        # Evictions since the last hook are told with the next one.
        pending = {key for _, key in self._engine.manager._tier._observer._evicted}
        real = findable(self._engine)
        assert self.content - pending == real - pending, (
            f"the log's model has {len(self.content - real)} hashes too many and lacks {len(real - self.content)}"
        )
        if not pending:
            self._snapshots.append((self._num_events, frozenset(real)))

    def check_log(self) -> None:
        """I6 from the database: each state that was seen comes back at its place in the log. Closes the engine."""
        engine = self._engine
        engine.close()
        parents = dict(engine.sql("SELECT hash, parent_hash FROM block_hashes"))
        ((groups,),) = engine.sql("SELECT kv_groups FROM engines")
        scales = [group["block_size"] // engine.hash_block_size for group in json.loads(groups)]
        rows = engine.sql("SELECT kind, kv_group, num_blocks, tail_hash FROM events ORDER BY seq")
        rows = [row for row in rows if row[0] != "policy_applied"]
        content: set[bytes] = set()
        snapshots = list(self._snapshots)
        for count, row in enumerate([None, *rows]):
            if row is not None:
                kind, group, num_blocks, tail = row
                if kind in ("blocks_stored", "blocks_restored"):
                    content |= _run(parents, tail, num_blocks, group, scales[group])
                elif kind == "blocks_evicted":
                    content -= _run(parents, tail, num_blocks, group, scales[group])
                elif kind == "cache_reset":
                    content.clear()
            while snapshots and snapshots[0][0] == count:
                assert content == snapshots.pop(0)[1], f"the log yields another content after its event {count}"
        assert not snapshots, "the log has fewer events than were recorded"

    def _record(self, event: Any) -> bool:
        if isinstance(event, ChainExtended):
            parent = event.parent_hash
            for h in event.hashes:
                self._parents[h] = parent
                parent = h
            return self._inner(event)
        if isinstance(event, RetentionState):
            return self._inner(event)  # a row of a table of its own
        if event.kind != "policy_applied":
            self._num_events += 1
        assert not isinstance(event, EventsDropped)
        if isinstance(event, BlocksStored | BlocksRestored):
            self.content |= self._keys(event)
        elif isinstance(event, BlocksEvicted):
            self.content -= self._keys(event)
        elif isinstance(event, CacheReset):
            self.content.clear()
        return self._inner(event)

    def _keys(self, event: Any) -> set[bytes]:
        engine = self._engine
        scale = engine.block_size(event.kv_group) // engine.hash_block_size
        return _run(self._parents, event.tail_hash, event.num_blocks, event.kv_group, scale)


def _run(parents: dict[bytes, bytes | None], tail: bytes, num_blocks: int, group: int, scale: int) -> set[bytes]:
    """The keys of a run, spelled out from its tail by walking parents."""
    keys = set()
    h: bytes | None = tail
    for _ in range(num_blocks):
        assert h is not None, "a run reaches beyond the head of its chain"
        keys.add(bytes(make_block_hash_with_group_id(h, group)))
        for _ in range(scale):
            h = parents.get(h) if h is not None else None
    return keys
