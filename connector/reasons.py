"""Why `adaptive` did what it did: which chain went for which, who was refused, by which rule and what was learned.

Pure: standard library only. It reads the retention and decides nothing. What is said of a step is bounded by what
changed in it: a chain that is refused in every step is told once, when that begins.
"""

from collections.abc import Callable
from dataclasses import dataclass

from connector.chains import Chain, Path
from connector.events import Item, RetentionState, RuleSwitched, StoresRefused
from connector.retention import GUARD_LEAD, REUSES_TO_LEARN, Retention
from connector.reuse import EDGES

STATE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the chain that gave a block was worth, and the one that came in."""

    victim_worth: float
    incoming_worth: float


@dataclass(frozen=True, slots=True)
class Asked:
    """Blocks that were refused. `index`: of the first, in blocks of its group; `head`, `tail`: their hashes."""

    request_id: str
    group: int
    index: int
    num_blocks: int
    head: bytes
    tail: bytes
    is_restore: bool


class Reasons:
    """Tells of one retention, from when it takes over the tier.

    Args:
        tell: takes what is to be logged.
        now: seconds.
        rule_before: what the tier went by before; other than `lru` only where the tier was emptied.
    """

    def __init__(
        self, retention: Retention, tell: Callable[[Item], object], now: float, rule_before: str = "lru"
    ) -> None:
        self._retention = retention
        self._tell = tell
        self._is_learned = self._has_learned
        self._refused_from: dict[tuple[str, bool], int] = {}
        self._state_due = now
        self._is_state_new = True
        self.rule = rule_before
        """What was last said to be the rule."""
        if retention.rule != rule_before:
            self._tell_rule("reset")
        self.step_begins(lambda: now)

    # --- what was learned -------------------------------------------------------------------------------------------

    def arrived(self) -> None:
        """A request was taken in: with nothing else do the rule and what was learned change."""
        self._is_state_new = True
        was_learned, self._is_learned = self._is_learned, self._has_learned
        if self._retention.rule != self.rule:
            is_to_lru = self.rule == "worth"
            self._tell_rule("guard_on" if is_to_lru else "guard_off" if was_learned else "learned")

    def step_begins(self, clock: Callable[[], float]) -> None:
        """Say what has been learned, where anything has changed and a while has passed."""
        if self._is_state_new and (now := clock()) >= self._state_due:
            self._is_state_new = False
            self._state_due = now + STATE_SECONDS
            self._tell(self._state())

    # --- what was decided -------------------------------------------------------------------------------------------

    def exchange(self, victim: Chain, incoming: Chain, now: float) -> Exchange | None:
        """The scores by which the victim was chosen; None where it was by last use."""
        if self._retention.rule == "lru":
            return None
        score = self._retention.curve.score
        return Exchange(score(victim, now), score(incoming, now))

    def is_new(self, request_id: str, position: int, *, is_restore: bool) -> bool:
        """Whether it has to be told that a request's blocks from here on are refused; from then on it counts as told.

        Args:
            position: in blocks of the tree.
        """
        key = request_id, is_restore
        told = self._refused_from.get(key)
        if told is not None and told <= position:
            return False
        self._refused_from[key] = position
        return True

    def refused(self, asked: Asked, path: Path, chain: Chain | None, now: float, *, is_behind_hole: bool) -> None:
        """Tell of blocks of `chain`; None: the tree does not know them."""
        retention = self._retention
        rule, score = retention.rule, retention.curve.score
        reason, worth = "hole", None
        if not is_behind_hole:
            best = retention.cheapest(retention.live, rule, path, now)
            reason = "no_victim" if best is None else "order" if rule == "lru" else "worth"
            worth = None if best is None or rule == "lru" else score(best, now)
        own = None if chain is None or rule == "lru" else score(chain, now)
        self._tell(
            StoresRefused(
                request_id=asked.request_id,
                kv_group=asked.group,
                first_index=asked.index,
                num_blocks=asked.num_blocks,
                tail_hash=asked.tail,
                head_hash=asked.head,
                reason=reason,
                is_restore=asked.is_restore,
                victim_worth=worth,
                incoming_worth=own,
            )
        )

    def admitted(self, request_id: str, *, is_restore: bool) -> None:
        """A block of the request came in: what is refused of it from now on is told anew."""
        if self._refused_from:
            self._refused_from.pop((request_id, is_restore), None)

    def passed(self, request_id: str, position: int) -> None:
        """Another request's copy of the block stands there by now."""
        if self._refused_from and self._refused_from.get((request_id, False), position + 1) <= position:
            del self._refused_from[request_id, False]

    def ended(self, request_id: str) -> None:
        """The request is over."""
        if self._refused_from:
            self._refused_from.pop((request_id, False), None)
            self._refused_from.pop((request_id, True), None)

    # --- the words --------------------------------------------------------------------------------------------------

    @property
    def _has_learned(self) -> bool:
        return self._retention.curve.num_reuses >= REUSES_TO_LEARN

    def _tell_rule(self, reason: str) -> None:
        guard = self._retention.guard
        before, self.rule = self.rule, self._retention.rule
        self._tell(
            RuleSwitched(
                from_rule=before,
                to_rule=self.rule,
                reason=reason,
                lru_hit_blocks=guard.lru_hits,
                worth_hit_blocks=guard.worth_hits,
                asked_blocks=guard.asked,
                num_reuses=self._retention.curve.num_reuses,
            )
        )

    def _state(self) -> RetentionState:
        retention, guard, curve = self._retention, self._retention.guard, self._retention.curve
        return RetentionState(
            rule=retention.rule,
            is_guard_on=retention.is_guard_on,
            lru_hit_blocks=guard.lru_hits,
            worth_hit_blocks=guard.worth_hits,
            asked_blocks=guard.asked,
            guard_lead=GUARD_LEAD,
            num_reuses=curve.num_reuses,
            num_to_learn=REUSES_TO_LEARN,
            horizon_s=curve.horizon,
            edges_s=tuple(EDGES),
            worth=tuple(tuple(row) for row in curve.worth),
            returns=tuple(sum(row) for row in curve.events),
        )
