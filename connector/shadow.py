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
from connector.keeping import Keeping
from connector.owners import OwnedBlock, OwnerIndex
from connector.shadow_blocks import ShadowBlocks
from connector.shadow_groups import Chain, Groups, GroupShape
from connector.shadow_queue import ShadowBlock
from connector.shadow_rules import Adaptive, Endless, Rule, Stock, Tracked, always
from connector.shadow_turns import Turns

__all__ = ["POLICIES", "Asked", "Chain", "GroupShape", "ShadowPolicy", "ShadowTier"]

ShadowPolicy = Literal["off", "tracked", "adaptive", "adaptive-off", "unlimited"]
POLICIES: tuple[str, ...] = get_args(ShadowPolicy)
# Where the engine copied nothing itself in a step, a shadow's copies of that step are over after so many more.
MAX_COPY_STEPS = 8
MAX_ENDED = 256
FOREVER = 2**62


@dataclass(frozen=True, slots=True)
class Asked:
    """What a lookup asks for, in hash blocks. `usable`: how far a hit may go; `known`: hashes that the request had
    then, while its `chain` may name what it computes later too."""

    chain: Chain
    usable: int
    known: int
    num_on_gpu: int


@dataclass(slots=True)
class _Running:
    """A request that the tier follows. `on_gpu`: hash blocks that it shares with others on the GPU; `stored`, `ready`:
    blocks of each group that were looked at, and that are computed; `absent`: (group, index) of pages that the GPU had
    no more when it was time to copy them; `since`: the step that had been built when it was admitted; `number`: which
    admission it was; `known`: hashes that it had then."""

    chain: Chain
    on_gpu: int
    stored: list[int]
    ready: list[int]
    since: int = 0
    number: int = 0
    absent: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    known: int = 0


class ShadowTier:
    """One tier.

    Args:
        policy: `off` is stock vLLM; `tracked` re-stores; `adaptive` re-stores and keeps what `retention` keeps,
            `adaptive-off` does only the latter; `unlimited` never evicts.
        num_blocks: its size; without meaning for `unlimited`.
        groups: the engine's, full attention first.
        budget: re-stores a step; 0 is no limit.

    Attributes:
        num_stored, num_restored: blocks so far.
        now: seconds, by any clock that only goes on; who feeds the tier says it. Only `adaptive` goes by it.
    """

    def __init__(
        self, policy: ShadowPolicy, num_blocks: int, groups: Sequence[GroupShape], *, budget: int = 64
    ) -> None:
        self.policy = policy
        self.num_blocks = num_blocks
        self.budget = budget
        self.num_stored = self.num_restored = 0
        self.now = 0.0
        self._num_evicted = 0  # before the last reset
        self._groups = Groups(groups)
        # The group that `adaptive` counts chains in: the first with full attention, as the engine's does.
        self._full = next((g for g in self._groups.in_order if g.needed is None), None)
        self._turns = Turns()
        self._keeper: Keeping | None = None
        self._loads: dict[str, tuple[int, list[ShadowBlock]]] = {}
        self._running: dict[str, _Running] = {}
        # Preempted or ended before the log had named the last of their blocks; the oldest are forgotten.
        self._ended: dict[str, _Running] = {}
        # Forgotten at a reset, as stock does; one whose load was on its way then comes back.
        self._forgotten: dict[str, _Running] = {}
        self._owners = OwnerIndex()
        self._step = self._num_admitted = 0
        self._is_between = False
        self._start()

    def _start(self) -> None:
        self._tier = ShadowBlocks(None if self.policy == "unlimited" else self.num_blocks)
        self._admission = Admission(self._tier.queue, self._owners)
        self._keep(self._keeper)
        self._rule = self._rule_of()

    def _keep(self, before: Keeping | None) -> None:
        """Begin to keep the tier by chains, where the policy says so. What was learned `before` goes on."""
        self._keeper = None
        if self.policy in ("adaptive", "adaptive-off"):
            assert self._full is not None, "adaptive needs a group with full attention"
            sizes = {g.number: g.ratio for g in self._groups.in_order}
            curve = None if before is None else before.retention.curve
            self._keeper = Keeping(self._tier, sizes, self._full.number, self.num_blocks, lambda: self.now, curve)
        self._tier.observer = self._keeper

    def _rule_of(self) -> Rule:
        # Only re-store asks who owns what, and what of it was lost.
        self._is_tracked = self.policy in ("tracked", "adaptive")
        if self._is_tracked:
            self._tier.listen(self._gone, self._found)
        else:
            self._tier.listen(None, None)
        if self._keeper is not None:
            return Adaptive(
                self._tier,
                self._owners,
                self._keeper,
                self._may_restore,
                self._order_again,
                self.budget,
                is_restoring=self._is_tracked,
            )
        if self._is_tracked:
            return Tracked(self._tier, self._owners, self._admission, self._order_again, self.budget)
        return Endless() if self.policy == "unlimited" else Stock()

    def obey(self, policy: ShadowPolicy, budget: int) -> None:
        """Go on under another policy, as an engine does when it is toggled. Not to or from `unlimited`."""
        self._ask_the_rest()
        self.policy, self.budget = policy, budget
        if (self._keeper is not None) != (policy in ("adaptive", "adaptive-off")):
            self._keep(None)
        self._rule = self._rule_of()
        self._owners.clear()
        if not self._is_tracked:
            return
        for request_id, running in self._running.items():
            for group in self._groups.in_order:
                g = group.number
                self._own(request_id, running, group, 0, running.stored[g])
                for key in running.chain.line.keys[g][: min(running.stored[g], len(running.chain) // group.ratio)]:
                    if key not in self._tier.resident and key not in self._tier.in_flight:
                        self._owners.lose(key)

    @property
    def num_evicted(self) -> int:
        """Blocks whose content was gone, so far."""
        return self._num_evicted + self._tier.num_evicted

    def __contains__(self, key: bytes) -> bool:
        """Whether this can be found: a block hash with its group's number in four bytes."""
        return key in self._tier

    # --- what requests do -------------------------------------------------------------------------------------------

    def arrived(self, request_id: str, chain: Chain, session_id: str | None = None) -> None:
        """A request was taken in, with the chain of its prompt, and the session's id where the client gave one."""
        self._ask_the_rest()
        if self._keeper is not None and self._full is not None:
            g = self._full
            self._keeper.follow(request_id, chain.line.keys[g.number][: len(chain) // g.ratio], session_id)

    def waits(self, request_id: str, asked: Asked) -> None:
        """A request was looked up and cannot be admitted yet: what was found of it is pinned."""
        self._ask_the_rest()
        self._find(request_id, asked, since=FOREVER)

    def lookup(self, request_id: str, asked: Asked) -> int:
        """A request is admitted. Returns the hash blocks that this tier gives behind those of the GPU."""
        self._ask_the_rest()
        num_found = self._find(request_id, asked, since=self._step)
        is_resumed = self._ended.pop(request_id, None) is not None or request_id in self._running
        self._forgotten.pop(request_id, None)
        self._num_admitted += 1
        width = self._groups.width
        self._running[request_id] = _Running(
            asked.chain,
            asked.num_on_gpu,
            [0] * width,
            [0] * width,
            self._step,
            self._num_admitted,
            known=asked.known,
        )
        self._turns.admitted(request_id, self._num_admitted, is_resumed=is_resumed, has_load=num_found > 0)
        self._owners.admit(request_id)
        self._changed()
        if self._keeper is not None:
            self._keeper.began(request_id)
        return num_found

    def _find(self, request_id: str, asked: Asked, since: int) -> int:
        self._unpin(request_id)  # what it had pinned while it waited
        chain, start = asked.chain, asked.num_on_gpu
        usable = min(asked.usable, len(chain))
        end = self._groups.longest_hit(chain, start, usable, asked.known, self._tier.resident)
        if end > start:
            self._loads[request_id] = (since, self._tier.pin(self._groups.keys_of_hit(chain, start, end)))
        return end - start

    def loaded(self, request_id: str) -> None:
        """The copy of a request's hit to the GPU is over."""
        self._ask_the_rest()
        self._unpin(request_id)

    def _unpin(self, request_id: str) -> None:
        load = self._loads.pop(request_id, None)
        if load is not None:
            self._tier.unpin(load[1])
            self._changed()

    def extend(self, request_id: str, chain: Chain, step: int) -> None:
        """The request's chain is known further, since what its cursor passed in an earlier `step` was named now."""
        self._ask_the_rest()
        running = self._running.get(request_id) or self._ended.get(request_id)
        if running is not None and len(chain) > len(running.chain):
            running.chain = chain
            self._store(request_id, running, step=step)

    def computed(self, request_id: str, group: int, to_index: int, step: int) -> None:
        """It turns out that blocks of a request that has ended were computed up to here: the engine copied them."""
        self._ask_the_rest()
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
        if running is None:
            return
        running.ready[group] = max(running.ready[group], to_index)
        if self._keeper is not None:
            for other in self._turns.until(request_id):
                self._ask(other)
        self._store(request_id, running)

    def refused(self, request_id: str, group: int, to_index: int, chain: Chain) -> None:
        """The engine's own tier has no place for blocks of the group, which are computed up to here. Told before the
        cursors of the step."""
        if self._keeper is None:
            self.cursor_moved(request_id, group, to_index)
            return
        running = self._running.get(request_id)
        if running is not None:
            running.chain = max(running.chain, chain, key=len)
            running.ready[group] = max(running.ready[group], to_index)
            self._turns.is_due(request_id)

    def preempted(self, request_id: str) -> None:
        """The request gave its blocks on the GPU back; it comes again as a lookup. Told when the next step is built, so
        that it may have come again already."""
        self._ask_the_rest()
        running = self._running.get(request_id)
        if running is None or running.since != self._step:
            self._end(request_id)
        self._owners.disown(request_id)
        self._changed()

    def finished(self, request_id: str, chain: Chain, num_computed: int | None) -> None:
        """The request is over, with so many hash blocks computed, None where nobody knows: what is not stored yet is
        stored now."""
        self._ask_the_rest()
        self._forgotten.pop(request_id, None)
        running = self._running.get(request_id)
        if running is not None:
            self._is_between = True  # what is chosen now leaves with the next step
            running.chain = max(chain, running.chain, key=len)
            if self._keeper is not None:
                self._keeper.begin_batch()
                self._keeper.ask_again(request_id)
            self.num_restored += len(self._rule.at_finish(request_id))
            if num_computed is not None:
                for group in self._groups.in_order:
                    running.ready[group.number] = max(running.ready[group.number], num_computed // group.ratio)
            self._end(request_id)
            self._store(request_id, running)
            self._is_between = False
        self._unpin(request_id)
        self._owners.forget(request_id)
        self._changed()
        if self._keeper is not None and self._full is not None:
            full = self._full
            num_full = 0 if running is None else min(running.ready[full.number], len(running.chain) // full.ratio)
            self._keeper.end(request_id, [] if running is None else running.chain.line.keys[full.number], num_full)

    def _end(self, request_id: str) -> None:
        self._turns.stops(request_id)
        running = self._running.pop(request_id, None)
        if running is not None:
            self._ended[request_id] = running
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def reset(self) -> None:
        """The tier is emptied. What runs is stored again from its start where re-store is on, and never again where it
        is off."""
        self._ask_the_rest()
        self._loads.clear()
        self._ended.clear()
        self._owners.clear()
        if self._rule.stores_after_reset:
            for running in self._running.values():
                running.stored = [0] * len(running.stored)
        else:
            self._forgotten = {
                request_id: _Running(r.chain, r.on_gpu, [0] * len(r.stored), [0] * len(r.ready), number=r.number)
                for request_id, r in self._running.items()
            }
            self._running.clear()
        self._num_evicted += self._tier.num_evicted
        self._start()

    # --- what the engine does ---------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """The engine builds this step, if it is a new one."""
        if number <= self._step:
            return
        self._ask_the_rest()
        # Steps in which nothing happened are not in the log, but a budget is a step's.
        first = max(self._step + 1, number - MAX_COPY_STEPS)
        if not self._owners.num_lost:
            first = number  # nothing to copy again in any of them
        for self._step in range(first, number + 1):
            self.copies_over(self._step - MAX_COPY_STEPS)
            self._admission.begin_step()
            if self._keeper is not None:
                self._keeper.begin_step()
            self.num_restored += len(self._rule.begin_step())
        if self._loads:
            for request_id in [r for r, (begun, _) in self._loads.items() if number - begun > MAX_COPY_STEPS]:
                self.loaded(request_id)
        if self._keeper is not None:
            self._turns.begin_step()

    def copies_over(self, step: int) -> None:
        """Copies that were ordered up to this step can be found from now on."""
        self._ask_the_rest()
        if self._tier.copies_over(step):
            self._changed()

    # --- how ---------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        """Blocks were pinned, freed or given up: who was refused may be admitted now."""
        self._admission.tier_changed()
        if self._keeper is not None:
            self._keeper.references_changed()

    def _ask_the_rest(self) -> None:
        """All that the step stores has been chosen once something else is told of."""
        if self._keeper is not None:
            for request_id in self._turns.rest():
                self._ask(request_id)

    def _ask(self, request_id: str) -> None:
        running = self._running.get(request_id)
        if running is not None:
            self._store(request_id, running)

    def _may_restore(self, request_id: str, block: OwnedBlock) -> bool:
        running, keeper = self._running.get(request_id), self._keeper
        if running is None or keeper is None:
            return False
        keys = self._full_keys(request_id, running, keeper)
        return keeper.ask(request_id, keys, block.group, block.index, block.key, is_restore=True) is None

    def _full_keys(self, request_id: str, running: _Running, keeper: Keeping) -> Sequence[bytes] | None:
        """The keys by which the keeper follows a request; None where it cannot, since the request is over."""
        assert self._full is not None
        number, keys = self._full.number, running.chain.line.keys[self._full.number]
        if keeper.follows(request_id):
            return keys
        if request_id not in self._running:
            return None
        # Where the log is known further, the chain names what the request computes later too.
        return keys[: max(running.known // self._full.ratio, running.ready[number])]

    def _store_kept(self, request_id: str, running: _Running, keeper: Keeping, *, step: int) -> None:
        """Copy what is ready and was not looked at yet and has a place, the first hole first and never past one."""
        if not keeper.must_wait(request_id):
            wanted, ends = self._select(running)
            if ends != running.stored:
                keeper.begin_batch()
                self._take_in(request_id, running, keeper, wanted, ends, step)
        if request_id in self._running:
            full = len(running.chain)
            waits = any(
                running.stored[g.number] < min(running.ready[g.number], full // g.ratio) for g in self._groups.in_order
            )
            self._turns.waits(request_id, is_waiting=waits)

    def _take_in(
        self,
        request_id: str,
        running: _Running,
        keeper: Keeping,
        wanted: list[list[int]],
        ends: list[int],
        step: int,
    ) -> None:
        path_keys = self._full_keys(request_id, running, keeper)
        owns = self._is_tracked and request_id in self._running
        chosen: list[bytes] = []
        indices: list[int] = []
        # What the other groups hold goes with the blocks of full attention: these are first.
        groups = sorted(zip(self._groups.in_order, wanted, strict=True), key=lambda g: g[0] is not self._full)
        for group, new in groups:
            g = group.number
            keys, begin, end = running.chain.line.keys[g], running.stored[g], ends[g]
            if end == begin:
                continue
            is_new = set(new)
            standing: int | None = None
            for index in range(begin, end):
                if (g, index) in running.absent:
                    continue
                if index not in is_new:
                    if group is self._full:
                        standing = index  # with it, or with who asks behind it, goes all before it
                    else:
                        keeper.stands(request_id, path_keys, g, index, keys[index])
                    continue
                standing = None
                if keeper.ask(request_id, path_keys, g, index, keys[index]) is None:
                    chosen.append(keys[index])
                    indices.append(index)
                else:
                    end = index
                    break
            if standing is not None:
                keeper.stands(request_id, path_keys, g, standing, keys[standing])
            if owns:
                self._own(request_id, running, group, begin, end)
                self._give_up_left(request_id, group, keys, begin, end)
            running.stored[g] = end
        if chosen:
            self._tier.copy(chosen, indices, step)
            self.num_stored += len(chosen)
            keeper.begin_batch()

    def _give_up_left(self, request_id: str, group: GroupShape, keys: Sequence[bytes], begin: int, end: int) -> None:
        """Pages before the window are the request's no longer."""
        if group.needed is not None and end > begin:
            for key in keys[max(0, begin - group.needed - 1) : max(0, end - group.needed)]:
                self._owners.give_up(request_id, key)

    def _store(self, request_id: str, running: _Running, *, step: int | None = None) -> None:
        """Copy what is ready and was not looked at yet, for as long as there is room; as vLLM does, all of one request
        at once."""
        if self._keeper is not None:
            self._store_kept(request_id, running, self._keeper, step=self._now_leaving if step is None else step)
            return
        is_running = request_id in self._running
        wanted, ends = self._select(running)
        num_wanted = sum(map(len, wanted))
        may_copy = self._rule.admit_first(num_wanted) if num_wanted and is_running else always
        chosen: list[bytes] = []
        places: list[int] = []
        whose: list[int] = []
        for group, indices in zip(self._groups.in_order, wanted, strict=True):
            g = group.number
            keys, begin, end = running.chain.line.keys[g], running.stored[g], ends[g]
            if end == begin:
                continue
            owned = begin
            if may_copy is always:
                chosen += [keys[index] for index in indices]
                places += indices
            else:
                for index in indices:
                    if is_running and self._is_tracked:
                        # Whether there is room is asked with what the request owns by then.
                        self._own(request_id, running, group, owned, index)
                        owned = index
                    if not may_copy(index * group.ratio):
                        end = index
                        break
                    chosen.append(keys[index])
                    places.append(index)
            if is_running and self._is_tracked:
                self._own(request_id, running, group, owned, end)
                self._give_up_left(request_id, group, keys, begin, end)
            running.stored[g] = end
            shared = running.on_gpu // group.ratio
            whose += [_whose(running, index < shared) for index in indices if index < end]
        if any(ends):
            self._admission.tier_changed()
        if chosen:
            self._tier.copy(chosen, places, self._now_leaving if step is None else step, whose)
            self.num_stored += len(chosen)

    def _own(self, request_id: str, running: _Running, group: GroupShape, begin: int, end: int) -> None:
        keys = running.chain.line.keys[group.number]
        for first, last in _runs(begin, min(end, len(running.chain) // group.ratio), running.absent, group.number):
            self._owners.own_run(request_id, group.number, first, keys[first:last], group.ratio)

    def _select(self, running: _Running) -> tuple[list[list[int]], list[int]]:
        """What vLLM would copy now, by group in order, and how far the look at each group goes."""
        wanted: list[list[int]] = []
        ends = list(running.stored)
        room = self._tier.num_free
        resident, in_flight = self._tier.resident, self._tier.in_flight
        for group in self._groups.in_order:
            g = group.number
            keys = running.chain.line.keys[g]
            begin, ready = running.stored[g], min(running.ready[g], len(running.chain) // group.ratio)
            if ready <= begin:
                wanted.append([])
                continue
            found = [index for index in range(begin, ready) if keys[index] not in resident]
            if running.absent:
                found = [index for index in found if (g, index) not in running.absent]
            if in_flight:
                shared = running.on_gpu // group.ratio
                found = [i for i in found if not self._is_copied(in_flight.get(keys[i]), running, i < shared)]
            if len(found) > room:
                ready = found[room]
                del found[room:]
            room -= len(found)
            wanted.append(found)
            ends[g] = ready
        return wanted, ends

    def _is_copied(self, copies: list[int] | None, running: _Running, is_shared: bool) -> bool:
        """Whether what is on its way makes this copy needless. Stock knows that by the block on the GPU."""
        if copies is None or not self._rule.copies_twins:
            return copies is not None
        mine = _whose(running, is_shared)
        return any(_is_one_block(mine, other) for other in copies)

    @property
    def _now_leaving(self) -> int:
        """The step with which a copy leaves that is ordered now."""
        return self._step + self._is_between

    def _order_again(self, blocks: list[OwnedBlock]) -> None:
        self._tier.copy([b.key for b in blocks], [b.index for b in blocks], self._now_leaving)
        if self._keeper is not None:
            self._keeper.begin_batch()

    def _gone(self, keys: list[bytes]) -> None:
        for key in keys:
            self._owners.lose(key)

    def _found(self, keys: list[bytes]) -> None:
        if self._owners.num_lost:
            for key in keys:
                self._owners.find(key)


def _whose(running: _Running, is_shared: bool) -> int:
    """The number of the admission whose copy it is; negative where its block on the GPU is shared, by a hit."""
    return -running.number if is_shared else running.number


def _is_one_block(one: int, other: int) -> bool:
    """Whether two requests copy the same content from one block of the GPU: both found it there, or one found what the
    other, admitted before it, had begun to compute. What each of them computed lies twice."""
    low, high = min(one, other), max(one, other)
    return high < 0 or (low < 0 and high < -low) or low == high


def _runs(begin: int, end: int, absent: set[tuple[int, int]], group: int) -> Iterable[tuple[int, int]]:
    """Stretches from `begin` to `end` without what is absent of the group."""
    if absent:
        for index in range(begin, end):
            if (group, index) in absent:
                yield begin, index
                begin = index + 1
    yield begin, end
