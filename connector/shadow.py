"""A CPU tier without bytes: what a tier of another size, or under another policy, would have held and given.

Pure: standard library and the pure modules that the connector itself decides with. It is told what requests did, in the
words of the log, and follows vLLM's rules: the least recently used block goes first, a completed copy and a load that
is over put their blocks at the back, a copy is made only of what is neither there nor on its way.

What it cannot know: that other hits would have changed the timing, and with it what comes next.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import lcm
from typing import Literal, get_args

from connector.admission import Admission
from connector.owners import OwnedBlock, OwnerIndex
from connector.shadow_queue import ShadowBlock, ShadowQueue

ShadowPolicy = Literal["off", "tracked", "unlimited"]
POLICIES: tuple[str, ...] = get_args(ShadowPolicy)
MAX_COPY_STEPS = 8
FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A KV-cache group that a hit must satisfy. `ratio`: hash blocks in one of its blocks. `needed`: how many of its
    last blocks a hit needs; None for all of them (full attention)."""

    number: int
    ratio: int
    needed: int | None


@dataclass(slots=True)
class _Running:
    """A request that the tier follows. `stored` and `ready` count blocks of each group."""

    chain: Sequence[bytes]
    stored: list[int]
    ready: list[int]


@dataclass(slots=True)
class _Copies:
    """Copies that were ordered in a step, and the blocks that they go to."""

    step: int
    blocks: list[tuple[ShadowBlock, bytes]] = field(default_factory=list[tuple[ShadowBlock, bytes]])


class ShadowTier:
    """One tier.

    Args:
        policy: `off` is stock vLLM; `tracked` re-stores; `unlimited` never evicts.
        num_blocks: its size; without meaning for `unlimited`.
        groups: the engine's, full attention first.
        budget: re-stores a step; 0 is no limit.

    Attributes:
        num_stored, num_restored, num_evicted: blocks so far.
    """

    def __init__(
        self, policy: ShadowPolicy, num_blocks: int, groups: Sequence[GroupShape], *, budget: int = 64
    ) -> None:
        self.policy = policy
        self.num_blocks = num_blocks
        self.budget = budget
        self.num_stored = self.num_restored = self.num_evicted = 0
        self._groups = list(groups)
        self._alignment = lcm(*(g.ratio for g in groups)) if groups else 1
        self._resident: dict[bytes, ShadowBlock] = {}
        self._in_flight: set[bytes] = set()
        self._copies: deque[_Copies] = deque()
        self._loads: dict[str, tuple[int, list[ShadowBlock]]] = {}
        self._pins: dict[ShadowBlock, int] = {}
        self._running: dict[str, _Running] = {}
        # Preempted before the log had named the last of their blocks.
        self._late: dict[str, _Running] = {}
        self._owners = OwnerIndex()
        self._step = 0
        self._budget_left = budget
        self._start(num_blocks)

    def _start(self, num_blocks: int) -> None:
        self._queue = ShadowQueue(ShadowBlock() for _ in range(0 if self.policy == "unlimited" else num_blocks))
        self._admission = Admission(self._queue, self._owners, self._is_live)

    def obey(self, policy: ShadowPolicy, budget: int) -> None:
        """Go on under another policy, as an engine does when it is toggled. Not to or from `unlimited`."""
        self.policy, self.budget = policy, budget

    # --- what requests do -------------------------------------------------------------------------------------------

    def waits(self, request_id: str, chain: Sequence[bytes], usable: int, num_on_gpu: int) -> None:
        """A request was looked up and cannot be admitted yet: what was found of it is pinned."""
        self.loaded(request_id)
        self._hold(request_id, self._find(chain, min(usable, len(chain)), num_on_gpu)[1], since=FOREVER)

    def lookup(self, request_id: str, chain: Sequence[bytes], usable: int, num_on_gpu: int) -> int:
        """A request is admitted. All counts are of hash blocks: those that it may use at most, those that the GPU gave;
        returned are those that this tier gives behind them."""
        self.loaded(request_id)  # what it had pinned while it waited
        groups = range(max((g.number for g in self._groups), default=0) + 1)
        self._late.pop(request_id, None)
        self._running[request_id] = _Running(chain, [0 for _ in groups], [0 for _ in groups])
        self._owners.admit(request_id)
        num_found, blocks = self._find(chain, min(usable, len(chain)), num_on_gpu)
        self._hold(request_id, blocks)
        return num_found

    def _find(self, chain: Sequence[bytes], usable: int, num_on_gpu: int) -> tuple[int, list[ShadowBlock]]:
        """How many hash blocks follow those on the GPU, and the blocks that hold them."""
        if num_on_gpu % self._alignment:
            return 0, []
        end = self._longest_hit(chain, num_on_gpu, usable)
        found: list[ShadowBlock] = []
        for group in self._groups:
            first = num_on_gpu // group.ratio
            last = -(-end // group.ratio)
            if group.needed is not None:
                first = max(first, last - group.needed)
            for index in range(first, last):
                block = self._resident.get(self._key(chain, group, index))
                if block is not None:
                    found.append(block)
        return end - num_on_gpu, found

    def _hold(self, request_id: str, blocks: list[ShadowBlock], since: int | None = None) -> None:
        if blocks and self.policy != "unlimited":
            for block in blocks:
                self._pin(block)
            self._loads[request_id] = (self._step if since is None else since, blocks)

    def loaded(self, request_id: str) -> None:
        """The copy of a request's hit to the GPU is over."""
        load = self._loads.pop(request_id, None)
        if load is not None:
            self._unpin(load[1])

    def extend(self, request_id: str, chain: Sequence[bytes], step: int) -> None:
        """The request's chain is known further, since what its cursor passed in an earlier `step` was named now."""
        running = self._running.get(request_id) or self._late.get(request_id)
        if running is not None and len(chain) > len(running.chain):
            running.chain = chain
            self._store(request_id, running, step=step, is_owner=request_id in self._running)

    def cursor_moved(self, request_id: str, group: int, to_index: int) -> None:
        """Blocks of the group are computed up to here."""
        running = self._running.get(request_id)
        if running is not None:
            running.ready[group] = max(running.ready[group], to_index)
            self._store(request_id, running)

    def preempted(self, request_id: str) -> None:
        """The request gave its blocks on the GPU back; it comes again as a lookup."""
        running = self._running.pop(request_id, None)
        if running is not None:
            self._late[request_id] = running
        self._owners.disown(request_id)
        self._admission.tier_changed()

    def finished(self, request_id: str, chain: Sequence[bytes], num_computed: int) -> None:
        """The request is over, with so many tokens' hash blocks computed: what is not stored yet is stored now."""
        running = self._running.pop(request_id, None)
        self._late.pop(request_id, None)
        self.loaded(request_id)
        if running is not None:
            running.chain = chain
            if self.policy == "tracked":
                self._restore(self._owners.lost_of(request_id))
            for group in self._groups:
                running.ready[group.number] = max(running.ready[group.number], num_computed // group.ratio)
            self._store(request_id, running, is_owner=False, is_last=True)
        self._owners.forget(request_id)
        self._admission.tier_changed()

    def reset(self) -> None:
        """The tier is emptied. What runs is stored again from its start where re-store is on, and not where it is
        off."""
        self._resident.clear()
        self._in_flight.clear()
        self._copies.clear()
        self._loads.clear()
        self._pins.clear()
        self._late.clear()
        self._owners.clear()
        for running in self._running.values():
            running.stored = [0] * len(running.stored) if self.policy == "tracked" else list(running.ready)
        self._start(self.num_blocks)

    # --- what the engine does ---------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """The engine begins this step, if it is a new one."""
        if number <= self._step:
            return
        self._step = number
        self.copies_over(number - MAX_COPY_STEPS)
        for request_id in [r for r, (begun, _) in self._loads.items() if number - begun > MAX_COPY_STEPS]:
            self.loaded(request_id)
        self._admission.begin_step()
        self._budget_left = self.budget
        if self.policy == "tracked" and self._owners.num_lost:
            self._restore(None)

    def copies_over(self, step: int) -> None:
        """Copies that were ordered up to this step can be found from now on."""
        while self._copies and self._copies[0].step <= step:
            freed: list[ShadowBlock] = []
            for block, key in self._copies.popleft().blocks:
                self._in_flight.discard(key)
                block.block_hash = key
                self._resident[key] = block
                self._owners.find(key)
                freed.append(block)
            self._queue.append_n(freed)
            self._admission.tier_changed()

    # --- how ---------------------------------------------------------------------------------------------------------

    def _key(self, chain: Sequence[bytes], group: GroupShape, index: int) -> bytes:
        # The last of the hashes in a block covers it whole.
        return chain[(index + 1) * group.ratio - 1] + group.number.to_bytes(4, "big")

    def _longest_hit(self, chain: Sequence[bytes], start: int, usable: int) -> int:
        """The hash block up to which every group agrees on a hit that begins at `start`."""
        end = usable // self._alignment * self._alignment
        while end > start:
            agreed = min(self._hit_of(chain, group, start, end) for group in self._groups)
            agreed = agreed // self._alignment * self._alignment
            if agreed == end:
                return end
            end = agreed
        return start

    def _hit_of(self, chain: Sequence[bytes], group: GroupShape, start: int, end: int) -> int:
        first, last = start // group.ratio, end // group.ratio
        if group.needed is None:
            index = first
            while index < last and self._key(chain, group, index) in self._resident:
                index += 1
            return index * group.ratio
        num_there = 0
        for index in range(last - 1, first - 1, -1):
            if self._key(chain, group, index) not in self._resident:
                num_there = 0
                continue
            num_there += 1
            if num_there >= group.needed:
                return (index + num_there) * group.ratio
        return (first + num_there) * group.ratio

    def _store(
        self,
        request_id: str,
        running: _Running,
        *,
        step: int | None = None,
        is_owner: bool = True,
        is_last: bool = False,
    ) -> None:
        """Copy what is ready and was not looked at yet, for as long as there is room."""
        chain = running.chain
        for group in self._groups:
            g = group.number
            ready = min(running.ready[g], len(chain) // group.ratio)
            index = running.stored[g]
            if is_last and group.needed is not None:
                index = max(index, ready - group.needed - 1)
            while index < ready:
                key = self._key(chain, group, index)
                if key not in self._resident and key not in self._in_flight:
                    if not self._may_store(index * group.ratio):
                        break
                    self._copy(key, step)
                    self.num_stored += 1
                if is_owner:
                    self._owners.own(request_id, g, index, index * group.ratio, key)
                index += 1
            running.stored[g] = index
            if group.needed is not None:
                for old in range(max(0, index - group.needed - 2), index - group.needed):
                    self._owners.give_up(request_id, self._key(chain, group, old))

    def _may_store(self, depth: int) -> bool:
        if self.policy == "unlimited":
            return True
        if not self._queue.num_free_blocks:
            return False
        if self.policy == "tracked" and self._is_tight():
            return self._admission.walk().admit(depth)
        return True

    def _is_tight(self) -> bool:
        return len(self._owners) + 1 > self._queue.num_free_blocks + len(self._in_flight)

    def _restore(self, only: list[OwnedBlock] | None) -> None:
        """Copy what running requests have lost: all of it, or of one that ends."""
        room = self._queue.num_free_blocks
        allowed = left = min(room, self._budget_left) if self.budget else room
        if self._is_tight():
            walk = self._admission.walk()
            for block in self._owners.lost_by_depth() if only is None else only:
                if left <= 0 or not walk.admit(block.depth):
                    break
                left -= self._restore_one(block)
        elif only is not None:
            for block in only[:left]:
                left -= self._restore_one(block)
        else:
            turn = 0
            with self._owners.scan() as scan:
                while left > 0 and (found := scan.peek()) is not None:
                    number, block = found
                    if number < turn:
                        scan.set_aside()  # it was lost to a re-store of this step, and has had its turn
                        continue
                    turn = number
                    left -= self._restore_one(block)
        self._budget_left -= allowed - left

    def _restore_one(self, block: OwnedBlock) -> int:
        self._owners.find(block.key)
        if block.key in self._in_flight or block.key in self._resident:
            return 0
        self._copy(block.key)
        self.num_restored += 1
        return 1

    def _copy(self, key: bytes, step: int | None = None) -> None:
        if self.policy == "unlimited":
            self._resident[key] = ShadowBlock()
            return
        block = self._queue.popleft()
        old, block.block_hash = block.block_hash, None
        if old is not None and self._resident.get(old) is block:
            del self._resident[old]
            self.num_evicted += 1
            self._owners.lose(old)
        self._in_flight.add(key)
        self._ordered_in(self._step if step is None else step).blocks.append((block, key))

    def _ordered_in(self, step: int) -> _Copies:
        at = len(self._copies)
        while at and self._copies[at - 1].step > step:
            at -= 1
        if not at or self._copies[at - 1].step != step:
            self._copies.insert(at, _Copies(step))
            return self._copies[at]
        return self._copies[at - 1]

    def _pin(self, block: ShadowBlock) -> None:
        count = self._pins.get(block, 0)
        if not count:
            self._queue.remove(block)
        self._pins[block] = count + 1

    def _unpin(self, blocks: list[ShadowBlock]) -> None:
        freed: list[ShadowBlock] = []
        for block in blocks:
            count = self._pins.get(block, 0)
            if count == 1:
                del self._pins[block]
                freed.append(block)
            elif count:
                self._pins[block] = count - 1
        self._queue.append_n(freed)
        self._admission.tier_changed()

    def _is_live(self, block: OwnedBlock) -> bool:
        return any(request_id in self._running for request_id in self._owners.owners_of(block))
