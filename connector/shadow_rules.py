"""What a policy decides in a shadow of the CPU tier: what is copied again, and which first copies wait.

Pure: standard library and the pure modules that the connector itself decides with. A new policy is a new rule here, and
a name in `shadow`; a victim rule of its own goes into `begin_step` or `admit_first`, by moving blocks of `tier.queue`.
"""

from collections.abc import Callable
from typing import Protocol

from connector.admission import Admission
from connector.keeping import Keeping
from connector.owners import OwnedBlock, OwnerIndex
from connector.shadow_blocks import ShadowBlocks


class Rule(Protocol):
    """The hooks of a policy.

    Attributes:
        copies_twins: whether content that is on its way is copied once more for a request that computed it itself.
        stores_after_reset: whether requests that run while the tier is emptied are stored again, from their heads.
    """

    copies_twins: bool
    stores_after_reset: bool

    def begin_step(self) -> list[OwnedBlock]:
        """The next step is built. Returns what was ordered again."""
        ...

    def at_finish(self, request_id: str) -> list[OwnedBlock]:
        """A request is about to end. Returns what was ordered again."""
        ...

    def admit_first(self, num_new: int) -> Callable[[int], bool]:
        """A request has so many new blocks. Returns what says whether one at this depth may be copied; where it may
        not, the request waits."""
        ...


def always(depth: int) -> bool:
    """Any block may be copied."""
    return True


class Stock:
    """vLLM's own: nothing is copied again, everything new is."""

    copies_twins = True
    stores_after_reset = False

    def begin_step(self) -> list[OwnedBlock]:
        return []

    def at_finish(self, request_id: str) -> list[OwnedBlock]:
        return []

    def admit_first(self, num_new: int) -> Callable[[int], bool]:
        return always


class Endless(Stock):
    """A tier that never loses anything."""

    copies_twins = False
    stores_after_reset = True


class _Restoring:
    """What re-stores have in common.

    Args:
        order: has copies made.
        budget: re-stores a step; 0 is no limit. What is chosen at a request's end counts in the next step.
    """

    copies_twins = False
    stores_after_reset = True

    def __init__(
        self, tier: ShadowBlocks, owners: OwnerIndex, order: Callable[[list[OwnedBlock]], None], budget: int
    ) -> None:
        self._tier = tier
        self._owners = owners
        self._order = order
        self._budget = budget
        self._left = budget

    def _take(self, chosen: list[OwnedBlock]) -> list[OwnedBlock]:
        if self._budget:
            self._left -= len(chosen)
        self._order(chosen)
        return chosen

    def _room(self) -> int:
        return min(self._tier.num_free, self._left) if self._budget else self._tier.num_free

    def _is_missing(self, block: OwnedBlock) -> bool:
        return block.key not in self._tier.resident and block.key not in self._tier.in_flight


class Tracked(_Restoring):
    """Re-store as `restore` does it in the mode `tracked`."""

    def __init__(
        self,
        tier: ShadowBlocks,
        owners: OwnerIndex,
        admission: Admission,
        order: Callable[[list[OwnedBlock]], None],
        budget: int,
    ) -> None:
        super().__init__(tier, owners, order, budget)
        self._admission = admission

    def begin_step(self) -> list[OwnedBlock]:
        ordered: list[OwnedBlock] = []
        if self._owners.num_lost:
            ordered = self._by_depth() if self._is_tight() else self._in_scan_order()
        self._left = self._budget
        return ordered

    def at_finish(self, request_id: str) -> list[OwnedBlock]:
        lost = self._owners.lost_of(request_id)
        walk = self._admission.walk() if lost and self._is_tight() else None
        chosen: list[OwnedBlock] = []
        for block in lost:
            if len(chosen) >= self._room():
                break
            if not self._is_missing(block):
                self._owners.find(block.key)
                continue
            if walk is not None and not walk.admit(block.depth):
                break
            chosen.append(block)
            self._owners.find(block.key)
        return self._take(chosen)

    def admit_first(self, num_new: int) -> Callable[[int], bool]:
        return self._admission.walk().admit if self._is_tight(num_new) else always

    def _in_scan_order(self) -> list[OwnedBlock]:
        """Request by request; what a re-store pushes out is met by the turns that follow."""
        ordered: list[OwnedBlock] = []
        turn = 0
        with self._owners.scan() as scan:
            while (room := self._room()) > 0:
                chosen: list[OwnedBlock] = []
                after = turn
                while len(chosen) < room and (found := scan.peek()) is not None:
                    number, block = found
                    if chosen and number > turn:
                        break
                    if not self._is_missing(block):
                        self._owners.find(block.key)
                        scan.set_aside()
                        continue
                    suppliers = map(self._owners.admit, self._owners.owners_of(block))
                    supplier = next((n for n in suppliers if n > after), None)
                    if supplier is None:
                        scan.set_aside()  # it was lost to a re-store of this step, and has had its turn
                        continue
                    if supplier > number:
                        scan.defer(supplier)
                        continue
                    turn = number
                    chosen.append(block)
                    self._owners.find(block.key)
                if not chosen:
                    break
                ordered += self._take(chosen)
        return ordered

    def _by_depth(self) -> list[OwnedBlock]:
        """The tier is too small for what runs: the hole nearest a head first, for as long as something is gained."""
        walk = self._admission.walk()
        chosen: list[OwnedBlock] = []
        for block in self._owners.lost_by_depth():
            if len(chosen) >= self._room():
                break
            if self._is_missing(block):
                if not walk.admit(block.depth):
                    break
                chosen.append(block)
            self._owners.find(block.key)
        return self._take(chosen)

    def _is_tight(self, num_new: int = 0) -> bool:
        return len(self._owners) + num_new > self._tier.num_free + self._tier.num_in_flight


class Adaptive(_Restoring):
    """Re-store as `restore` does it under `adaptive`, which decides by `keeping`. First copies are asked of that
    directly, block by block.

    Args:
        ask: whether this block may come in again, for a request that owns it.
        is_restoring: False leaves re-store out.
    """

    def __init__(
        self,
        tier: ShadowBlocks,
        owners: OwnerIndex,
        keeper: Keeping,
        ask: Callable[[str, OwnedBlock], bool],
        order: Callable[[list[OwnedBlock]], None],
        budget: int,
        *,
        is_restoring: bool,
    ) -> None:
        super().__init__(tier, owners, order, budget)
        self._keeper = keeper
        self._ask = ask
        self._is_restoring = is_restoring

    def begin_step(self) -> list[OwnedBlock]:
        chosen: list[OwnedBlock] = []
        for block in self._owners.lost_by_depth() if self._is_restoring and self._owners.num_lost else ():
            if len(chosen) >= self._room() or not self._keeper.may_restore:
                break
            if self._is_missing(block):
                owner = next(self._owners.owners_of(block))
                if not self._ask(owner, block):
                    if self._keeper.gave_up(owner, block.group, block.index):
                        self._owners.find(block.key)
                    continue
                chosen.append(block)
            self._owners.find(block.key)
        self._take(chosen)
        self._left = self._budget
        return chosen

    def at_finish(self, request_id: str) -> list[OwnedBlock]:
        chosen: list[OwnedBlock] = []
        for block in self._owners.lost_of(request_id) if self._is_restoring else ():
            if len(chosen) >= self._room():
                break
            if self._is_missing(block):
                if not self._ask(request_id, block):
                    break
                chosen.append(block)
            self._owners.find(block.key)
        return self._take(chosen)

    def admit_first(self, num_new: int) -> Callable[[int], bool]:
        return always
