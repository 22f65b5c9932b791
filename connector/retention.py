"""Which block leaves the CPU tier for which, and whether a block may come in at all: `adaptive`.

Pure: standard library only. The same module decides for the live tier and for its own guard.

    victim(for chain c, margin m):
      of each class (how often it was asked for, or a head that others hang on; with or without a running request): the
      least recently used chain
      v = the one that is worth least (of equals the one that was first seen last)
      worth(v) * m < worth(c):                                     a block at v's end goes
      equal, c has blocks there, and v was first seen after c:     a block at v's end goes
      else:                                                        c is refused
    come in: first hole first, and never past a hole

Worth is what `reuse` has learned, and 1 for what a request that waits for its turn will find: of those the last one in
the queue goes first. Until it has learned something, and while the guard says so, the least recently used chain goes
and nothing is refused. The guard are two tiers without bytes, one by either rule, that see the same requests: by which
of them more was found of late, the live tier goes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from connector.chains import Chain, ChainTree, Key, Path, Session
from connector.reuse import NUM_CLASSES, ReuseCurve, class_of
from connector.sessions import Sessions
from connector.views import View

Rule = Literal["lru", "worth"]

STORE_MARGIN = 1.3
RESTORE_MARGIN = 3.0
REUSES_TO_LEARN = 8
GHOSTS_PER_BLOCK = 4
GUARD_REQUESTS = 250
GUARD_LEAD = 0.03

LIVE, GUARD_LRU, GUARD_WORTH = 0, 1, 2


def _lru_class(chain: Chain) -> int:
    return int(chain.num_owners > 0)


def _lru_order(chain: Chain) -> tuple[bool, float, int]:
    """Who goes first: who rests, then by last use, then who was first seen last."""
    return chain.num_owners > 0, chain.last_used, -chain.number


def _worth_class(chain: Chain) -> int:
    if chain.num_waiting:
        return 2 * NUM_CLASSES
    return class_of(chain) + (NUM_CLASSES if chain.num_owners else 0)


def _worth_order(chain: Chain) -> float:
    return -chain.last_used if chain.num_waiting else chain.last_used


@dataclass(slots=True)
class GuardState:
    """What the two shadows of the guard found of late: blocks, fading with each request."""

    lru_hits: float = 0.0
    worth_hits: float = 0.0
    asked: float = 0.0

    def note(self, lru_hits: int, worth_hits: int, asked: int) -> None:
        fade = 1 - 1 / GUARD_REQUESTS
        self.lru_hits = self.lru_hits * fade + lru_hits
        self.worth_hits = self.worth_hits * fade + worth_hits
        self.asked = self.asked * fade + asked

    @property
    def lead_of_lru(self) -> float:
        """How much more of what was asked for the LRU shadow found, from -1 to 1."""
        return (self.lru_hits - self.worth_hits) / self.asked if self.asked else 0.0


class Retention:
    """Decides for one tier.

    Args:
        capacity: blocks of the tier.
        may_leave: see `View`; for the live tier.
        curve: what is known already.
    """

    def __init__(
        self,
        capacity: int,
        may_leave: Callable[[Chain], bool] = lambda chain: True,
        curve: ReuseCurve | None = None,
    ) -> None:
        self.curve = curve or ReuseCurve()
        self.guard = GuardState()
        self.sessions = Sessions()
        self.tree = ChainTree(
            3, (GHOSTS_PER_BLOCK + 1) * capacity, on_split=self._on_split, on_dropped=self._on_dropped
        )
        self.live = View(LIVE, capacity, _worth_class, _worth_order, may_leave)
        self._lru = View(GUARD_LRU, capacity, _lru_class)
        self._worth = View(GUARD_WORTH, capacity, _worth_class, _worth_order)
        self._views = (self.live, self._lru, self._worth)
        self.is_guard_on = False

    @property
    def rule(self) -> Rule:
        """What the live tier goes by now."""
        return "worth" if self.curve.num_reuses >= REUSES_TO_LEARN and not self.is_guard_on else "lru"

    # --- requests ---------------------------------------------------------------------------------------------------

    def arrive(self, keys: Sequence[Key], now: float, session_id: str | None = None) -> Path:
        """A request was taken in, with the blocks of its prompt that are full. `session_id`: the client's, if it gave
        one."""
        path = self.tree.arrive(keys)
        chains = path.chains()
        self.guard.note(self._lru.found(chains), self._worth.found(chains), len(keys))
        self.is_guard_on = self.guard.lead_of_lru > GUARD_LEAD
        session = None if session_id is None else self.sessions.comes(session_id)
        if session is not None and self._comes_for_superseded(path):
            session.is_one = False
        self._learn(path, now)
        if session is not None:
            self._take_turn(path, chains, session, now)
        self.tree.wait(path)
        for chain in chains:
            chain.is_given_up = False
            self._use(chain, now)
        self.curve.request_came(now)
        return path

    def begin(self, path: Path) -> None:
        """The request runs."""
        if path.is_waiting:
            self.tree.begin(path)
            for chain in path.chains():
                for view in self._views:
                    view.note(chain)

    def advance(self, path: Path, key: Key, now: float) -> Chain:
        """The request's next block is full."""
        self.begin(path)
        before = path.chain
        chain = self.tree.advance(path, key, now)
        if chain is not before:
            chain.is_given_up = False
            if chain.num_owners == 1:
                self.curve.goes_on(chain, now)
                self._use(chain, now)
        return chain

    def leave(self, path: Path, now: float) -> None:
        """The request is over. The guard's tiers take in what it left."""
        self.begin(path)
        chains = path.chains()
        for chain in chains:
            chain.last_used = now
        self._take_in(self._lru, path, chains, "lru", now)
        self._take_in(self._worth, path, chains, self._worth_rule, now)
        if path.session is not None:
            path.session.end = path.chain.keys[path.offset - 1] if path.offset else None
        self.tree.leave(path, now)
        for chain in chains:
            if not chain.num_owners:
                self.curve.rests(chain, now)
            for view in self._views:
                view.note(chain)
        self.tree.forget(self._release, now)

    def _learn(self, path: Path, now: float) -> None:
        """What the request came for, and how often that was asked for with it.

        Whoever comes through a shared head has asked for it. Of conversations only ends of the tree say when they come
        back. A request that goes on from nearly the end of a chain goes on with that conversation, and what it left
        behind is superseded (the last turn as it was sent, a thought that the template leaves out).
        """
        last, rest = path.chain, path.rest
        for chain in path.chains():
            if chain.children:
                self.curve.comes_back(chain, now)
        if rest is not None:
            if not rest.children and len(last.keys) >= len(rest.keys):
                path.num_turns = rest.num_turns + 1
                self._supersede(rest, now)
        elif last.parent is not None and not last.children:
            self.curve.comes_back(last, now)
            last.num_turns += 1
            path.num_turns = last.num_turns

    @staticmethod
    def _comes_for_superseded(path: Path) -> bool:
        """Whether somebody comes back for what was taken for superseded."""
        return any(chain is not None and not chain.num_turns for chain in (path.chain, path.rest))

    def _take_turn(self, path: Path, chains: list[Chain], session: Session, now: float) -> None:
        """The request is the next turn of a session. What the turn before it left is superseded where the prompt goes
        another way and nobody else needs it: `_learn` cannot know that of a prompt that departs early. Not of a session
        whose requests come back for what was superseded: it is no single conversation."""
        last, left = path.chain, None
        if session.end is not None:
            left = self.tree.find(session.end)
        path.num_turns = session.num_turns = max(path.num_turns, session.num_turns + 1)
        path.session = session
        if last.parent is not None and not last.children:
            last.num_turns = path.num_turns  # the chain that it goes on with
        if not session.is_one or left is None or left in chains or left.children or left.num_owners:
            return
        # Longer by now: another request went on from it. No turns: it was superseded before.
        if left.keys[-1] == session.end and left.num_turns:
            self._supersede(left, now)

    def _supersede(self, chain: Chain, now: float) -> None:
        """The conversation came back for this chain, and goes on elsewhere."""
        self.curve.comes_back(chain, now)
        chain.num_turns = 0
        if not chain.num_owners:
            self.curve.rests(chain, now)
        for view in self._views:
            view.note(chain)

    # --- the decision -----------------------------------------------------------------------------------------------

    def victim(self, view: View, rule: Rule, incoming: Path, chain: Chain, margin: float, now: float) -> Chain | None:
        """The chain that gives its last block for the next block of `chain`, or None: refused.

        A re-store asks with a margin of its own, and by either rule only for a victim that stands strictly before it in
        one order of all chains: so re-stores end.
        """
        victim = self.cheapest(view, rule, incoming, now)
        if victim is None:
            return None
        if rule == "lru":
            is_behind = margin == RESTORE_MARGIN and _lru_order(victim) >= _lru_order(chain)
            return None if is_behind else victim
        worth, own = self.curve.score(victim, now), self.curve.score(chain, now)
        if worth * margin < own:
            return victim
        if worth == own and view.count(chain) and victim.number > chain.number:
            return victim
        return None

    def cheapest(self, view: View, rule: Rule, incoming: Path, now: float) -> Chain | None:
        """The chain that would be the first to give a block; never one that the request goes through."""
        found = view.candidates(incoming.chain)
        if rule == "lru":
            return min(found, key=_lru_order, default=None)
        score = self.curve.score
        return min(found, key=lambda c: (score(c, now), -c.number), default=None)

    # --- the guard --------------------------------------------------------------------------------------------------

    @property
    def _worth_rule(self) -> Rule:
        return "worth" if self.curve.num_reuses >= REUSES_TO_LEARN else "lru"

    def _take_in(self, view: View, path: Path, chains: list[Chain], rule: Rule, now: float) -> None:
        for chain in chains:
            upto = path.offset if chain is path.chain else len(chain.keys)
            while (missing := upto - view.count(chain)) > 0:
                if view.num_free:
                    view.grow(chain, min(missing, view.num_free))
                    continue
                victim = self.victim(view, rule, path, chain, STORE_MARGIN, now)
                if victim is None:
                    return
                view.shrink(victim, min(missing, view.count(victim)))

    # --- the tree -----------------------------------------------------------------------------------------------------

    def _use(self, chain: Chain, now: float) -> None:
        chain.last_used = now
        for view in self._views:
            view.note(chain)

    def _on_split(self, head: Chain, rest: Chain) -> None:
        for view in self._views:
            view.note(head)
            view.note(rest)  # who stood on the head alone is not its owner any more

    def _on_dropped(self, chain: Chain, now: float) -> None:
        self.curve.goes_on(chain, now)
        assert chain.parent is not None
        for view in self._views:
            view.note(chain.parent)  # it may be no head that others share any more

    def _release(self, chain: Chain, wanted: int) -> int:
        keep = max(self.live.count(chain), len(chain.keys) - wanted)
        for view in (self._lru, self._worth):
            if (excess := view.count(chain) - keep) > 0:
                view.shrink(chain, excess)
        return keep
