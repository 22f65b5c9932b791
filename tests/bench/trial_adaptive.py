"""`adaptive` as it is, and with a piece of S3-FIFO, SIEVE or LIRS in it. Pure; for `policy_trials.py`."""

from collections.abc import Sequence

from trial_chains import LAP

from connector.chains import Chain, Key, Path
from connector.retention import GUARD_WORTH, LIVE, STORE_MARGIN, Retention, Rule
from connector.reuse import NUM_CLASSES, class_of
from connector.views import View

PROBATION_SHARE = 0.1


class Adaptive:
    """A tier that goes by `connector/retention.py`. Requests come one after another: nobody waits, and nobody runs
    beside another."""

    def __init__(self, capacity: int, retention: Retention | None = None) -> None:
        self.retention = retention or Retention(capacity)

    def ask(self, keys: Sequence[int], num_asked: int, now: float) -> int:
        """A request whose first `num_asked` blocks are its prompt's. Returns how many of those it finds."""
        retention = self.retention
        path = retention.arrive(keys[:num_asked], now)
        found = retention.live.found(path.chains())
        retention.begin(path)
        for key in keys[path.length :]:
            retention.advance(path, key, now)
        self._take_in(path, now)
        retention.leave(path, now)
        return found

    def _take_in(self, path: Path, now: float) -> None:
        retention, live = self.retention, self.retention.live
        for chain in path.chains():
            upto = path.offset if chain is path.chain else len(chain.keys)
            while (missing := upto - live.count(chain)) > 0:
                if live.num_free:
                    live.grow(chain, min(missing, live.num_free))
                    continue
                victim = retention.victim(live, retention.rule, path, chain, STORE_MARGIN, now)
                if victim is None:
                    return
                live.shrink(victim, min(missing, live.count(victim)))


def worth_class(chain: Chain) -> int:
    """As `retention` has it, where nobody waits."""
    return class_of(chain) + (NUM_CLASSES if chain.num_owners else 0)


class Hand:
    """SIEVE's hand of one tier: where each chain stands, and whether it was used since the hand last came by.

    Each class has a queue of its own. A chain that goes over to another class keeps its place.
    """

    def __init__(self) -> None:
        self._visited: set[Chain] = set()
        self._places: dict[Chain, tuple[int, int]] = {}
        self._laps = [0] * (2 * NUM_CLASSES)
        self._num_places = 0

    def order(self, chain: Chain) -> float:
        lap, place = self._place(chain)
        return lap * LAP + place

    def _place(self, chain: Chain) -> tuple[int, int]:
        if chain not in self._places:
            self._num_places += 1
            self._places[chain] = self._laps[worth_class(chain)], self._num_places
        return self._places[chain]

    def use(self, chain: Chain, *, is_there: bool) -> None:
        if is_there:
            self._visited.add(chain)
        else:
            self.forget(chain)  # it comes in as a new one

    def split(self, head: Chain, rest: Chain) -> None:
        if rest in self._places:
            self._places[head] = self._places[rest]
        if rest in self._visited:
            self._visited.add(head)

    def forget(self, chain: Chain) -> None:
        self._visited.discard(chain)
        self._places.pop(chain, None)

    def pass_visited(self, view: View, protected: Chain | None) -> None:
        """Each class's hand goes on to a chain that was not used."""
        while passed := [c for c in view.candidates(protected) if c in self._visited]:
            for chain in passed:
                self._visited.remove(chain)
                lap, place = self._place(chain)
                kind = worth_class(chain)
                self._laps[kind] = max(self._laps[kind], lap)
                self._places[chain] = self._laps[kind] + 1, place
                view.note(chain)
        for chain in view.candidates(protected):
            # Where it has begun anew, who comes in from now on stands at the end of this lap.
            kind = worth_class(chain)
            self._laps[kind] = max(self._laps[kind], self._place(chain)[0])


class OtherOrder(Retention):
    """`adaptive` with another order inside a class, for as long as a tier goes by worth; else it is by last use."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._rules: dict[int, Rule] = {LIVE: "lru", GUARD_WORTH: "lru"}
        self.live, self._worth = (self._view(index, capacity) for index in self._rules)
        self._views = (self.live, self._lru, self._worth)

    def _view(self, index: int, capacity: int) -> View:
        def order(chain: Chain) -> float:
            return chain.last_used if self._rules[index] == "lru" else self.order(index, chain)

        return View(index, capacity, worth_class, order)

    def order(self, index: int, chain: Chain) -> float:
        """Where the chain stands in its class in the view `index`; the least goes first."""
        raise NotImplementedError

    def arrive(self, keys: Sequence[Key], now: float) -> Path:
        path = super().arrive(keys, now)
        for view, rule in ((self.live, self.rule), (self._worth, self._worth_rule)):
            if rule != self._rules[view.index]:
                self._rules[view.index] = rule
                for chain in self.tree:
                    view.note(chain)
        return path


class SieveInClass(OtherOrder):
    """Of each class it is not the least recently used chain that may go, but the one at which SIEVE's hand stops."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._hands = {LIVE: Hand(), GUARD_WORTH: Hand()}

    def order(self, index: int, chain: Chain) -> float:
        return self._hands[index].order(chain)

    def _use(self, chain: Chain, now: float) -> None:
        for view in (self.live, self._worth):
            self._hands[view.index].use(chain, is_there=view.count(chain) > 0)
        super()._use(chain, now)

    def _on_split(self, head: Chain, rest: Chain) -> None:
        for hand in self._hands.values():
            hand.split(head, rest)
        super()._on_split(head, rest)

    def _on_dropped(self, chain: Chain, now: float) -> None:
        for hand in self._hands.values():
            hand.forget(chain)
        super()._on_dropped(chain, now)

    def cheapest(self, view: View, rule: Rule, incoming: Path, now: float) -> Chain | None:
        if view is not self._lru and rule == "worth":
            self._hands[view.index].pass_visited(view, incoming.chain)
        return super().cheapest(view, rule, incoming, now)


class LruTwoInClass(OtherOrder):
    """Of each class the chain may go whose last use but one is longest ago, which is near to what LIRS orders by."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._before: dict[Chain, float] = {}

    def order(self, index: int, chain: Chain) -> float:
        return self._before.get(chain, 0.0) * LAP + chain.last_used

    def _use(self, chain: Chain, now: float) -> None:
        self._before[chain] = chain.last_used if chain.num_turns > 1 or chain.children else 0.0
        super()._use(chain, now)

    def _on_split(self, head: Chain, rest: Chain) -> None:
        self._before[head] = self._before.get(rest, 0.0)
        super()._on_split(head, rest)

    def _on_dropped(self, chain: Chain, now: float) -> None:
        self._before.pop(chain, None)
        super()._on_dropped(chain, now)


class Probation(Retention):
    """S3-FIFO's small queue before it: while ends of the first turn hold a tenth of the tier or more, the one of them
    that came in first gives the next block, whatever it is worth.

    Args:
        only_for_new: only for another end of the first turn: a filter before the tier. What came back goes by worth.
    """

    def __init__(self, capacity: int, *, only_for_new: bool = False) -> None:
        super().__init__(capacity)
        self._num_new: dict[int, int] = {}
        self._only_for_new = only_for_new

    def arrive(self, keys: Sequence[Key], now: float) -> Path:
        path = super().arrive(keys, now)
        # What a chain counts as changes as it is asked for: counted anew with each request, not with each block.
        self._num_new = {v.index: 0 for v in self._views}
        for chain in self.tree:
            if self._is_new(chain):
                for view in self._views:
                    self._num_new[view.index] += view.count(chain)
        return path

    def victim(self, view: View, rule: Rule, incoming: Path, chain: Chain, margin: float, now: float) -> Chain | None:
        if self._num_new.get(view.index, 0) < PROBATION_SHARE * view.capacity or rule == "lru":
            return super().victim(view, rule, incoming, chain, margin, now)
        new = [c for c in view.candidates(incoming.chain) if self._is_new(c)]
        first = min(new, key=lambda c: (c.last_used, -c.number), default=None)
        if self._only_for_new:
            if self._is_new(chain):
                return first
            return super().victim(view, rule, incoming, chain, margin, now)
        return first or super().victim(view, rule, incoming, chain, margin, now)

    @staticmethod
    def _is_new(chain: Chain) -> bool:
        return chain.num_turns <= 1 and not chain.children
