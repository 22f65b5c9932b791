"""A CPU tier without bytes: what a tier of another size, or under another policy, would have held and given.

Pure: standard library and the pure modules that the connector itself decides with. It is told what requests did, in the
words of the log, and follows vLLM's rules: the least recently used block goes first, a completed copy and a load that
is over put their blocks at the back, a copy is made only of what is neither there nor on its way.

What it cannot know: that other hits would have changed the timing, and with it what comes next.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from connector.admission import Admission
from connector.owners import OwnerIndex
from connector.shadow_blocks import ShadowBlocks
from connector.shadow_groups import Groups, GroupShape, key_of
from connector.shadow_queue import ShadowBlock
from connector.shadow_rules import Endless, Rule, Stock, Tracked

__all__ = ["POLICIES", "GroupShape", "ShadowPolicy", "ShadowTier"]

ShadowPolicy = Literal["off", "tracked", "unlimited"]
POLICIES: tuple[str, ...] = get_args(ShadowPolicy)
# Where the engine copied nothing itself in a step, a shadow's copies of that step are over after so many more.
MAX_COPY_STEPS = 8
MAX_ENDED = 256
FOREVER = 2**62


@dataclass(slots=True)
class _Running:
    """A request that the tier follows. `on_gpu`: hash blocks that it shares with others on the GPU; `stored`, `ready`:
    blocks of each group that were looked at, and that are computed; `absent`: (group, index) of pages that the GPU had
    no more when it was time to copy them; `since`: the step that had been built when it was admitted."""

    chain: Sequence[bytes]
    on_gpu: int
    stored: list[int]
    ready: list[int]
    since: int = 0
    absent: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])


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
        self._groups = Groups(groups)
        self._loads: dict[str, tuple[int, list[ShadowBlock]]] = {}
        self._running: dict[str, _Running] = {}
        # Preempted or ended before the log had named the last of their blocks; the oldest are forgotten.
        self._ended: dict[str, _Running] = {}
        # Forgotten at a reset, as stock does; one whose load was on its way then comes back.
        self._forgotten: dict[str, _Running] = {}
        self._owners = OwnerIndex()
        self._step = 0
        self._start()

    def _start(self) -> None:
        self._tier = ShadowBlocks(
            None if self.policy == "unlimited" else self.num_blocks, on_gone=self._gone, on_found=self._owners.find
        )
        self._admission = Admission(self._tier.queue, self._owners)
        self._rule = self._rule_of()

    def _rule_of(self) -> Rule:
        if self.policy == "tracked":
            return Tracked(self._tier, self._owners, self._admission, self._order_again, self.budget)
        return Endless() if self.policy == "unlimited" else Stock()

    def obey(self, policy: ShadowPolicy, budget: int) -> None:
        """Go on under another policy, as an engine does when it is toggled. Not to or from `unlimited`."""
        self.policy, self.budget = policy, budget
        self._rule = self._rule_of()
        self._owners.clear()
        if policy != "tracked":
            return
        for request_id, running in self._running.items():
            for group in self._groups.in_order:
                for index in range(min(running.stored[group.number], len(running.chain) // group.ratio)):
                    self._own(request_id, running, group, index)
                    key = key_of(running.chain, group, index)
                    if key not in self._tier and key not in self._tier.in_flight:
                        self._owners.lose(key)

    def __contains__(self, key: bytes) -> bool:
        """Whether this can be found: a block hash with its group's number in four bytes."""
        return key in self._tier

    # --- what requests do -------------------------------------------------------------------------------------------

    def waits(self, request_id: str, chain: Sequence[bytes], usable: int, num_on_gpu: int) -> None:
        """A request was looked up and cannot be admitted yet: what was found of it is pinned."""
        self._find(request_id, chain, usable, num_on_gpu, since=FOREVER)

    def lookup(self, request_id: str, chain: Sequence[bytes], usable: int, num_on_gpu: int) -> int:
        """A request is admitted. All counts are of hash blocks: those that it may use at most, those that the GPU gave;
        returned are those that this tier gives behind them."""
        num_found = self._find(request_id, chain, usable, num_on_gpu, since=self._step)
        self._ended.pop(request_id, None)
        self._forgotten.pop(request_id, None)
        self._running[request_id] = _Running(
            chain, num_on_gpu, [0] * self._groups.width, [0] * self._groups.width, self._step
        )
        self._owners.admit(request_id)
        self._admission.tier_changed()
        return num_found

    def _find(self, request_id: str, chain: Sequence[bytes], usable: int, num_on_gpu: int, since: int) -> int:
        self.loaded(request_id)  # what it had pinned while it waited
        end = self._groups.longest_hit(chain, num_on_gpu, min(usable, len(chain)), self._tier)
        if end > num_on_gpu:
            self._loads[request_id] = (since, self._tier.pin(self._groups.keys_of_hit(chain, num_on_gpu, end)))
        return end - num_on_gpu

    def loaded(self, request_id: str) -> None:
        """The copy of a request's hit to the GPU is over."""
        load = self._loads.pop(request_id, None)
        if load is not None:
            self._tier.unpin(load[1])
            self._admission.tier_changed()

    def extend(self, request_id: str, chain: Sequence[bytes], step: int) -> None:
        """The request's chain is known further, since what its cursor passed in an earlier `step` was named now."""
        running = self._running.get(request_id) or self._ended.get(request_id)
        if running is not None and len(chain) > len(running.chain):
            running.chain = chain
            self._store(request_id, running, step=step)

    def computed(self, request_id: str, group: int, to_index: int, step: int) -> None:
        """It turns out that blocks of a request that has ended were computed up to here: the engine copied them."""
        ended = self._ended.get(request_id)
        if ended is not None and to_index > ended.ready[group]:
            ended.ready[group] = to_index
            self._store(request_id, ended, step=step)

    def absent(self, request_id: str, group: int, indices: Iterable[int]) -> None:
        """Pages of the group left their window, and the GPU, before they could be copied."""
        running = self._running.get(request_id)
        if running is not None:
            running.absent.update((group, index) for index in indices)

    def cursor_moved(self, request_id: str, group: int, to_index: int) -> None:
        """Blocks of the group are computed up to here."""
        running = self._running.get(request_id)
        if running is None and request_id in self._forgotten:
            running = self._running[request_id] = self._forgotten.pop(request_id)
        if running is not None:
            running.ready[group] = max(running.ready[group], to_index)
            self._store(request_id, running)

    def preempted(self, request_id: str) -> None:
        """The request gave its blocks on the GPU back; it comes again as a lookup. Told when the next step is built, so
        that it may have come again already."""
        running = self._running.get(request_id)
        if running is not None and running.since == self._step:
            return
        self._end(request_id)
        self._owners.disown(request_id)
        self._admission.tier_changed()

    def finished(self, request_id: str, chain: Sequence[bytes], num_computed: int | None) -> None:
        """The request is over, with so many hash blocks computed, None where nobody knows: what is not stored yet is
        stored now."""
        self._forgotten.pop(request_id, None)
        running = self._running.get(request_id)
        if running is not None:
            running.chain = max(chain, running.chain, key=len)
            self.num_restored += len(self._rule.at_finish(request_id))
            if num_computed is not None:
                for group in self._groups.in_order:
                    running.ready[group.number] = max(running.ready[group.number], num_computed // group.ratio)
            self._end(request_id)
            self._store(request_id, running)
        self.loaded(request_id)
        self._owners.forget(request_id)
        self._admission.tier_changed()

    def _end(self, request_id: str) -> None:
        running = self._running.pop(request_id, None)
        if running is not None:
            self._ended[request_id] = running
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def reset(self) -> None:
        """The tier is emptied. What runs is stored again from its start where re-store is on, and never again where it
        is off."""
        self._loads.clear()
        self._ended.clear()
        self._owners.clear()
        if self._rule.stores_after_reset:
            for running in self._running.values():
                running.stored = [0] * len(running.stored)
        else:
            self._forgotten = {
                request_id: _Running(r.chain, r.on_gpu, [0] * len(r.stored), [0] * len(r.ready))
                for request_id, r in self._running.items()
            }
            self._running.clear()
        self._start()

    # --- what the engine does ---------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """The engine builds this step, if it is a new one."""
        if number <= self._step:
            return
        # Steps in which nothing happened are not in the log, but a budget is a step's.
        first = max(self._step + 1, number - MAX_COPY_STEPS)
        for self._step in range(first, number + 1):
            self.copies_over(self._step - MAX_COPY_STEPS)
            self._admission.begin_step()
            self.num_restored += len(self._rule.begin_step())
        for request_id in [r for r, (begun, _) in self._loads.items() if number - begun > MAX_COPY_STEPS]:
            self.loaded(request_id)

    def copies_over(self, step: int) -> None:
        """Copies that were ordered up to this step can be found from now on."""
        if self._tier.copies_over(step):
            self._admission.tier_changed()

    # --- how ---------------------------------------------------------------------------------------------------------

    def _store(self, request_id: str, running: _Running, *, step: int | None = None) -> None:
        """Copy what is ready and was not looked at yet, for as long as there is room; as vLLM does, all of one request
        at once."""
        chain, is_running = running.chain, request_id in self._running
        # Only re-store asks who owns what.
        is_owner = is_running and self.policy == "tracked"
        wanted, ends = self._select(running)
        may_copy = self._rule.admit_first(len(wanted)) if wanted and is_running else None
        chosen: list[bytes] = []
        for group in self._groups.in_order:
            g = group.number
            index = running.stored[g]
            while index < ends[g]:
                key = key_of(chain, group, index)
                if (g, index) in wanted:
                    if may_copy is not None and not may_copy(index * group.ratio):
                        break
                    chosen.append(key)
                if is_owner:
                    self._own(request_id, running, group, index)
                index += 1
            if is_owner and group.needed is not None and index > running.stored[g]:
                for old in range(max(0, running.stored[g] - group.needed - 1), index - group.needed):
                    self._owners.give_up(request_id, key_of(chain, group, old))
            running.stored[g] = index
        if any(ends):
            self._admission.tier_changed()
        self._tier.copy(chosen, self._step if step is None else step)
        self.num_stored += len(chosen)

    def _own(self, request_id: str, running: _Running, group: GroupShape, index: int) -> None:
        if (group.number, index) not in running.absent:
            key = key_of(running.chain, group, index)
            self._owners.own(request_id, group.number, index, index * group.ratio, key)

    def _select(self, running: _Running) -> tuple[set[tuple[int, int]], list[int]]:
        """(group, index) of what vLLM would copy now, and how far the look at each group goes."""
        wanted: set[tuple[int, int]] = set()
        ends = list(running.stored)
        free = self._tier.num_free
        for group in self._groups.in_order:
            g = group.number
            ready = min(running.ready[g], len(running.chain) // group.ratio)
            index = running.stored[g]
            while index < ready:
                if self._is_wanted(running, group, index):
                    if len(wanted) >= free:
                        break
                    wanted.add((g, index))
                index += 1
            ends[g] = max(ends[g], index)
        return wanted, ends

    def _is_wanted(self, running: _Running, group: GroupShape, index: int) -> bool:
        key = key_of(running.chain, group, index)
        if key in self._tier or (group.number, index) in running.absent:
            return False
        if key not in self._tier.in_flight:
            return True
        # Stock knows what is on its way by its block on the GPU, which only a hit shares.
        return self._rule.copies_twins and (index + 1) * group.ratio > running.on_gpu

    def _order_again(self, keys: list[bytes]) -> None:
        self._tier.copy(keys, self._step)

    def _gone(self, key: bytes) -> None:
        self.num_evicted += 1
        self._owners.lose(key)
