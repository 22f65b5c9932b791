"""Which lost blocks are copied again, and which first stores wait: the re-store itself.

Engine ring. Two ways to find what was lost: `rescan` walks every block below every cursor, `tracked` knows what was
evicted and who owns it. Where the tier has room for what runs, they choose the same blocks in the same order. Where
it has not, `rescan` copies for as long as its budget lets it, while `tracked` admits a block only for a victim that
is worth less.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler, StoreRequestState, TransferMeta

from connector.admission import Admission
from connector.journal import Copy, Journal, hash_of
from connector.layout import Layout
from connector.owners import OwnedBlock, OwnerIndex, ScanPass
from connector.policy import Policy
from connector.tier import Tier

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request

    from connector.keeper import Keeper

Selection = tuple[list[int], list[int], list[dict[Any, Any]] | None]
"""What stock's `_select_eager_blocks_to_store` returns: GPU block ids, how far each group's cursor goes on, event
metadata."""


class Candidate(NamedTuple):
    """A block that may be copied. `index` counts blocks of its group."""

    request_id: str
    group: int
    index: int
    key: bytes
    gpu_block_id: int


def may_own(request: "Request") -> bool:
    """Whether a request's blocks are copied again when they are lost.

    Not those of a session of streamed inputs, where a position names no block, nor where the client said
    `kv_transfer_params: {"restore": false}`: of a prompt, say, that nobody will ask again. Whatever else stands there
    is vLLM's or a mistake, and is passed over.
    """
    asked = request.kv_transfer_params
    return not request.resumable and not (isinstance(asked, dict) and asked.get("restore") is False)


class Restorer:
    """Chooses, within a budget of blocks a step. The scheduler half says when.

    Attributes:
        policy: what is obeyed.
        step: the step that is being built.
    """

    def __init__(
        self,
        manager: SimpleCPUOffloadScheduler,
        layout: Layout,
        owners: OwnerIndex,
        tier: Tier,
        journal: Journal,
        policy: Policy,
    ) -> None:
        self._m = manager
        self._layout = layout
        self._owners = owners
        self._tier = tier
        self._journal = journal
        self.admission = Admission(manager.cpu_block_pool.free_block_queue, owners)
        self.step = 0
        self.moves: list[tuple[str, int, int, int]] = []
        self.last_chooser: str | None = None
        # Whether a first store was ever refused: until then no request can be waiting for a place.
        self._is_waiting = False
        self._tables: list[Mapping[str, Sequence[Any]]] = []
        # Groups whose pages leave a window, and whether those that left were looked for since the step began.
        windows = {g.number for g in layout.hit_groups if g.needed is not None}
        self._window_groups = sorted(windows.intersection(layout.groups))
        self._has_looked = False
        self.keeper: Keeper | None = None
        self.obey(policy)

    def bind_block_tables(self, tables: "list[Mapping[str, Sequence[Any]]]") -> None:
        """vLLM's own block tables, by group and request: who holds which block now."""
        self._tables = tables

    def obey(self, policy: Policy) -> None:
        self.policy = policy
        self.refill()

    def begin_step(self, step: int) -> None:
        """The step is scheduled, and pages may have left their windows with it."""
        self.step = step
        self._has_looked = False
        self.admission.begin_step()
        if self.keeper is not None:
            self.keeper.begin_step()

    def tier_changed(self) -> None:
        """A block was freed, pinned, given up by its owner or stored."""
        self.admission.tier_changed()
        if self.keeper is not None:
            self.keeper.references_changed()

    def refill(self) -> None:
        """Give the budget of the next step."""
        self._budget_left = self.policy.max_restore_blocks_per_step or None

    # --- re-store ---------------------------------------------------------------------------------------------------

    def restore(self, preempted: Iterable[str]) -> None:
        """Order copies of blocks that the CPU tier has lost of running requests; those preempted in this step have
        none."""
        if self.keeper is not None:
            self._restore_kept(self.keeper)
        elif self.policy.mode == "rescan":
            self._restore_by_scan(preempted)
        elif self._owners.num_lost:
            if self._is_tight():
                self._restore_by_depth()
            else:
                self._restore_in_scan_order()

    def _restore_by_scan(self, preempted: Iterable[str]) -> None:
        """Walk every block below every cursor. The reference: what is found missing was evicted."""
        for request_id, state in self._m._reqs_to_store.items():
            if state.finished or request_id in preempted or not may_own(state.request):
                continue
            room = self._room()
            if room <= 0:
                break
            self._order(self._first(room, self._scan(state)))

    def _restore_in_scan_order(self) -> None:
        """Take what was observed to be lost, in the order in which a scan would have met it, request by request."""
        with self._owners.scan() as scan:
            turn = 0
            while self._room() > 0:
                turn, chosen = self._take_turn(scan, after=turn)
                if not chosen:
                    break
                self._order(chosen)  # what is lost to this is met by the turns that follow, as a scan would meet it

    def _take_turn(self, scan: ScanPass, after: int) -> tuple[int, list[Candidate]]:
        """The admission number and the lost blocks of the next request, behind `after`, that can supply any."""
        turn, chosen, room = 0, list[Candidate](), self._room()
        while len(chosen) < room and (found := scan.peek()) is not None:
            number, block = found
            if chosen and number > turn:
                break
            candidate = self._locate(block, after=after)
            if candidate is None:
                # Either its only suppliers had their turn in this step, or nobody can supply it any more.
                if not after or self._locate(block) is None:
                    self._owners.find(block.key)
                scan.set_aside()
                continue
            supplier = self._owners.admit(candidate.request_id)
            if supplier > number:
                scan.defer(supplier)
                continue
            turn = number
            chosen.append(candidate)
            self._owners.find(block.key)
        return turn, chosen

    def _restore_by_depth(self) -> None:
        """The tier is too small for what runs: repair the hole nearest a head first, and stop where nothing is
        gained."""
        walk = self.admission.walk()
        chosen: list[Candidate] = []
        for block in self._owners.lost_by_depth():
            if len(chosen) >= self._room():
                break
            candidate = self._locate(block)
            if candidate is not None:
                if not walk.admit(block.depth):
                    break
                chosen.append(candidate)
            self._owners.find(block.key)
        self._order(chosen)

    def _restore_kept(self, keeper: "Keeper") -> None:
        """What the retention admits, the hole nearest a head first."""
        chosen: list[Candidate] = []
        for block in self._owners.lost_by_depth() if self._owners.num_lost else ():
            if len(chosen) >= self._room() or not keeper.may_restore:
                break
            candidate = self._locate(block)
            if candidate is None or self._is_kept_back(keeper, candidate):
                if candidate is None or keeper.gave_up(candidate.request_id, candidate.group, candidate.index):
                    self._owners.find(block.key)
                continue
            chosen.append(candidate)
            self._owners.find(block.key)
        self._order(chosen)

    def _is_kept_back(self, keeper: "Keeper", c: Candidate) -> bool:
        request = self._m._reqs_to_store[c.request_id].request
        return not keeper.admit(request, c.group, c.index, c.key, is_restore=True)

    def restore_at_finish(self, state: StoreRequestState) -> None:
        """The last moment at which the request's lost blocks are still on the GPU."""
        if not may_own(state.request):
            return
        keeper = self.keeper
        if keeper is None and self.policy.mode == "rescan":
            self._order(self._first(self._room(), self._scan(state)))
            return
        walk = self.admission.walk() if keeper is None and self._is_tight() else None
        chosen: list[Candidate] = []
        for block in self._owners.lost_of(state.request.request_id):
            if len(chosen) >= self._room():
                break
            candidate = self._locate(block, only=state.request.request_id)
            if candidate is None:
                if self._locate(block) is None:  # nor has another owner
                    self._owners.find(block.key)
                continue
            if walk is not None and not walk.admit(block.depth):
                break
            if keeper is not None and self._is_kept_back(keeper, candidate):
                break
            chosen.append(candidate)
            self._owners.find(block.key)
        self._order(chosen)

    def why_not_restored(self) -> str:
        """What kept a block from being copied, seen from the state of the tier now."""
        if self._m.cpu_block_pool.get_num_free_blocks() == 0:
            return "cpu_full"
        if self._budget_left == 0:
            return "budget"
        return "not_tried" if self.admission.is_exhausted else "no_gain"

    def _room(self) -> int:
        """Blocks that may be re-stored now: what is free in the tier, and what is left of the step's budget."""
        free = self._m.cpu_block_pool.get_num_free_blocks()
        return free if self._budget_left is None else min(free, self._budget_left)

    def _is_tight(self, num_new: int = 0) -> bool:
        """Whether running requests own more blocks than the tier can hold for them, with `num_new` more.

        Blocks that are pinned for a waiting request's load count as room that is taken, and so do those of copies that
        a reset has abandoned, until the worker is done with them; other copies on their way, ordered or only chosen,
        are the running requests' own.
        """
        tier = self._tier
        num_on_their_way = tier.num_in_flight - tier.num_abandoned + tier.num_chosen
        room = self._m.cpu_block_pool.get_num_free_blocks() + num_on_their_way
        if len(self._owners) + num_new > room and not self._has_looked:
            # Once a step, and only where it may matter: a page leaves its window without any cursor moving.
            self._has_looked = True
            self._give_up_all_left_pages()
        return len(self._owners) + num_new > room

    def _scan(self, state: StoreRequestState) -> Iterator[Candidate]:
        """Blocks below the request's cursors that are on the GPU under the right hash and not in the CPU tier."""
        request_id = state.request.request_id
        for g in self._layout.groups:
            group_block_ids = state.block_ids[g]
            hashes = self._layout.hashes(state.request, g)
            for i in range(min(state.num_stored_blocks[g], len(group_block_ids), len(hashes))):
                key = self._layout.key(hashes, g, i)
                if self._is_missing(group_block_ids[i], key) and self._holds(request_id, g, i, group_block_ids[i]):
                    yield Candidate(request_id, g, i, key, group_block_ids[i])

    @staticmethod
    def _first(room: int, candidates: Iterator[Candidate]) -> list[Candidate]:
        """The first `room` candidates, each content once: two blocks of a request may hold the same."""
        chosen: dict[bytes, Candidate] = {}
        if room > 0:
            for candidate in candidates:
                chosen.setdefault(candidate.key, candidate)
                if len(chosen) >= room:
                    break
        return list(chosen.values())

    def _locate(self, block: OwnedBlock, *, only: str | None = None, after: int = 0) -> Candidate | None:
        """The block on the GPU, through the first running request that has it there, or None. `only`: through this
        one; `after`: through one that was admitted later."""
        for request_id in (only,) if only is not None else self._owners.owners_of(block):
            state = self._m._reqs_to_store.get(request_id)
            if state is None or state.finished or (after and self._owners.admit(request_id) <= after):
                continue
            group, index, key, group_block_ids = block.group, block.index, block.key, state.block_ids[block.group]
            if index >= len(group_block_ids):
                continue
            gpu_block_id = group_block_ids[index]
            if self._is_missing(gpu_block_id, key) and self._holds(request_id, group, index, gpu_block_id):
                return Candidate(request_id, group, index, key, gpu_block_id)
        return None

    def _holds(self, request_id: str, group: int, index: int, gpu_block_id: int) -> bool:
        """Whether the block is still the request's own, at this position.

        A block that left a sliding window may be someone else's by now, who will see to it, even under the same hash:
        vLLM hashes a block when it is allocated, before it is computed.
        """
        blocks = self._tables[group].get(request_id, ())
        return index < len(blocks) and blocks[index].block_id == gpu_block_id

    def _is_missing(self, gpu_block_id: int, key: bytes) -> bool:
        """Whether this block of the GPU has this content, and the tier has it not, nor is a copy on its way."""
        m = self._m
        assert m._gpu_block_pool is not None
        block = m._gpu_block_pool.blocks[gpu_block_id]
        return (
            block.block_hash == key
            and not block.is_null
            and gpu_block_id not in m._in_flight_store_gpu_blocks
            and key not in self._tier.keys_in_flight
            and not self._tier.has(key)
        )

    def _order(self, chosen: list[Candidate]) -> None:
        """Allocate the CPU blocks in one batch and queue the copy: it leaves with the step that is being built, or
        the next.

        The queue is stock's own, for copies of finished requests; from there on a re-store is a store like any other.
        """
        if not chosen:
            return
        m = self._m
        gpu_pool = m._gpu_block_pool
        assert gpu_pool is not None
        copies = [(c.gpu_block_id, self._copy_again(c)) for c in chosen]
        block_meta = None
        if m.enable_kv_cache_events:
            requests = [m._reqs_to_store[c.request_id].request for c in chosen]
            block_meta = [
                self._layout.event_meta(r, c.group, c.index, c.key) for r, c in zip(requests, chosen, strict=True)
            ]
        gpu_block_ids = [c.gpu_block_id for c in chosen]
        # From here to the end nothing may fail: the references are given back when the copy is over.
        cpu_blocks = m.cpu_block_pool.get_new_blocks(len(chosen))
        m._pending_finished_stores.append(TransferMeta(gpu_block_ids, [b.block_id for b in cpu_blocks], block_meta))
        m._in_flight_store_gpu_blocks.update(gpu_block_ids)
        gpu_pool.touch([gpu_pool.blocks[bid] for bid in gpu_block_ids])
        self._tier.choose(copies)
        if self._budget_left is not None:
            self._budget_left -= len(chosen)
        self._tier.drain_evictions(chosen[0].request_id, is_by_restore=True)
        if self.keeper is not None:
            self.keeper.begin_batch()

    # --- first stores -----------------------------------------------------------------------------------------------

    def must_wait(self, state: StoreRequestState) -> bool:
        """Whether the request's next blocks would all be refused, so that nobody need look at them.

        Without this, stock would walk from the waiting cursor over all that lies behind it, in every step.
        """
        if self.keeper is not None:
            return self.keeper.must_wait(state.request.request_id)
        if not self._is_waiting or self.policy.mode != "tracked" or not self.policy.enabled:
            return False
        layout, cursors = self._layout, state.num_stored_blocks
        return self._is_tight(1) and all(self.admission.must_wait(layout.depth(g, cursors[g])) for g in layout.groups)

    def review(
        self, state: StoreRequestState, block_ids_by_group: tuple[list[int], ...], selection: Selection
    ) -> Selection:
        """Look at what vLLM chose to store for one request, and at how far its cursors go.

        The cursor of a group goes to the absolute position up to which its blocks were looked at; re-stores walk old
        ground and never move it. Off, what vLLM chose stands. With re-store on, three things are changed: content that
        is on its way already is not copied a second time; a page that left its sliding window and has another hash by
        now is not copied for its old owner (vLLM hashes a block before it is computed); and while the tier is too
        small for what runs, `tracked` stores nothing that would cost a running request a block nearer its head: the
        cursor stays before it.
        """
        gpu_block_ids, advanced, block_meta = selection
        request_id = state.request.request_id
        self._journal.tell_chain(state.request)
        order = {block_id: n for n, block_id in enumerate(gpu_block_ids)}
        keeper = self.keeper
        if keeper is not None:
            keeper.begin_batch()  # vLLM allocates request by request
        is_ours = self.policy.enabled or keeper is not None
        is_owner = may_own(state.request)
        is_strict = is_ours and keeper is None and self.policy.mode == "tracked" and self._is_tight(len(order))
        walk = self.admission.walk() if is_strict else None
        kept: list[int] = []
        reviewed = list(advanced)
        for g in self._groups_to_review(advanced):
            count = advanced[g]
            start = state.num_stored_blocks[g]
            end = start + count
            hashes = self._layout.hashes(state.request, g)
            for i in range(start, end):
                found = self._gpu_block_at(block_ids_by_group[g][i], hashes, g, i)
                if found is None:
                    continue
                gpu_block_id, key = found
                depth = self._layout.depth(g, i)
                is_new = gpu_block_id in order and not (is_ours and key in self._tier.keys_in_flight)
                if keeper is not None and not is_new:
                    keeper.lies_there(state.request, g, i, key)
                if is_new:
                    if keeper is not None and not keeper.admit(state.request, g, i, key, num_ready=end - i):
                        end = i
                        break
                    if walk is not None and not walk.admit(depth):
                        self._is_waiting = True
                        end = i
                        break
                    parent = hashes[i - 1] if i else None
                    copy = Copy(request_id, key, g, i, parent, is_restore=False, scheduled_step=self.step)
                    self._tier.choose(((gpu_block_id, copy),))
                    kept.append(gpu_block_id)
                if is_owner:
                    self._owners.own(request_id, g, i, depth, key)
            reviewed[g] = end - start
            if g in self._window_groups:
                self._give_up_left_pages(request_id, g, end, hashes)
            if end > start:
                self.moves.append((request_id, g, start, end))
        if any(reviewed):
            self.admission.tier_changed()  # as a cursor goes on, pages leave the window
        if kept:
            self.last_chooser = request_id
        if not is_ours or len(kept) == len(gpu_block_ids):
            return selection
        kept_meta = None if block_meta is None else [block_meta[order[block_id]] for block_id in kept]
        return kept, reviewed, kept_meta

    def _groups_to_review(self, advanced: Sequence[int]) -> list[int]:
        """Those whose cursor goes on. What the other groups hold goes with the blocks of full attention: these are
        first."""
        groups = [g for g, count in enumerate(advanced) if count]
        return groups if self.keeper is None else sorted(groups, key=lambda g: g != self._m.fa_gidx)

    def _give_up_left_pages(self, request_id: str, group: int, end: int, hashes: "BlockHashList") -> None:
        """Pages before the request's window are its own no longer: nobody can copy them from it, and they are no
        reason to call the tier too small for what runs."""
        blocks = self._tables[group].get(request_id, ())
        starts = self._owners.starts_of(request_id)
        start = starts.get(group, 0)
        while start < end and (start >= len(blocks) or blocks[start].is_null):
            self._owners.give_up(request_id, self._layout.key(hashes, group, start))
            start += 1
        starts[group] = start

    def _give_up_all_left_pages(self) -> None:
        num_owned = len(self._owners)
        for request_id, state in self._m._reqs_to_store.items() if self._window_groups else ():
            for g in self._window_groups:
                if not self._tables[g].get(request_id):
                    continue  # over, or preempted: its cursors are about to start again
                hashes = self._layout.hashes(state.request, g)
                self._give_up_left_pages(request_id, g, min(state.num_stored_blocks[g], len(hashes)), hashes)
        if len(self._owners) != num_owned:
            self.admission.tier_changed()  # their places are nobody's now

    def report_dropped(self, state: StoreRequestState, block_ids: tuple[list[int], ...]) -> None:
        """Say what a finished request leaves on the GPU without a copy, and why."""
        request = state.request
        reason = self.why_not_restored()
        confirmed = request.num_computed_tokens - request.num_output_placeholders
        for g in self._layout.groups:
            hashes = self._layout.hashes(request, g)
            cacheable = self._m.cpu_coordinator.get_num_cacheable_tokens(confirmed, g)
            ready = min(len(block_ids[g]), cacheable // self._layout.block_sizes[g], len(hashes))
            left: list[tuple[int, int, bytes]] = []
            for i in range(state.num_stored_blocks[g], ready):
                found = self._gpu_block_at(block_ids[g][i], hashes, g, i)
                if found is not None and self._is_missing(*found):
                    left.append((g, i, found[1]))
            self._drop(request.request_id, left, reason)
        if self.policy.enabled:
            lost = (b for b in self._owners.lost_of(request.request_id) if isinstance(b.owners, str))
            self._drop(request.request_id, [(b.group, b.index, b.key) for b in lost], reason)

    def _drop(self, request_id: str, blocks: list[tuple[int, int, bytes]], reason: str) -> None:
        """Tell of blocks (group, index, key), in order, as runs of neighbours."""
        start = 0
        for n in range(1, len(blocks) + 1):
            if n == len(blocks) or blocks[n][:2] != (blocks[n - 1][0], blocks[n - 1][1] + 1):
                group, index, _ = blocks[start]
                self._journal.dropped(request_id, group, index, [key for _, _, key in blocks[start:n]], reason)
                start = n

    def own_again(self) -> None:
        """Build the owners' index anew from the cursors, and look at each block once."""
        self._owners.clear()
        for request_id, state in self._m._reqs_to_store.items():
            if state.finished or not may_own(state.request):
                continue
            for g in self._layout.groups:
                hashes = self._layout.hashes(state.request, g)
                for i in range(min(state.num_stored_blocks[g], len(state.block_ids[g]), len(hashes))):
                    key = self._layout.key(hashes, g, i)
                    self._owners.own(request_id, g, i, self._layout.depth(g, i), key)
                    if not self._tier.has(key):
                        self._owners.lose(key)
                self._give_up_left_pages(request_id, g, min(state.num_stored_blocks[g], len(hashes)), hashes)

    def _gpu_block_at(
        self, gpu_block_id: int, hashes: "BlockHashList", group: int, index: int
    ) -> tuple[int, bytes] | None:
        """(GPU block id, key) of a request's block at one position; None where it can never be hit."""
        m = self._m
        assert m._gpu_block_pool is not None
        if index >= len(hashes):
            return None
        block = m._gpu_block_pool.blocks[gpu_block_id]
        if block.is_null:
            # It left the window before it was stored. Stock takes it from the free queue while its hash is still there.
            recovered = m._cached_gpu_block(hashes, index, group)
            return None if recovered is None else (recovered.block_id, self._layout.key(hashes, group, index))
        key = block.block_hash
        if key is None or hash_of(key) != hashes[index]:
            return None
        return gpu_block_id, key

    # --- what a copy is ---------------------------------------------------------------------------------------------

    def _copy_again(self, c: Candidate) -> Copy:
        hashes = self._layout.hashes(self._m._reqs_to_store[c.request_id].request, c.group)
        parent = hashes[c.index - 1] if c.index else None
        return Copy(c.request_id, c.key, c.group, c.index, parent, is_restore=True, scheduled_step=self.step)
