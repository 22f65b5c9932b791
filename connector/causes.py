"""Why a lookup ended where it did, and what that cost.

Pure: standard library only. It asks the directory of what was seen, and both tier for what they have now. The cause
itself costs a few looks; counting what lies behind the cut costs one look a block, up to `MAX_LOOKS`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, Protocol

from connector.directory import Directory, Evicted, Fate, Novelty

Cause = Literal[
    "never_seen",
    "never_stored",
    "evicted",
    "in_flight",
    "shorter_than_a_block",
    "last_token_rule",
    "not_aligned",
    "cache_skipped",
    "reset",
]
MAX_LOOKS = 2_048


@dataclass(frozen=True, slots=True)
class Group:
    """A KV-cache group that a hit must satisfy. `ratio`: hash blocks in a block of this group. `needed`: None where a
    hit needs every block (full attention); else how many of the last ones (a sliding window; 1 for a state)."""

    number: int
    kind: str
    ratio: int
    needed: int | None


class Tier(Protocol):
    """What the CPU tier has now, by key."""

    def is_in_tier(self, key: bytes) -> bool: ...
    def is_in_flight(self, key: bytes) -> bool: ...


class Chain(Protocol):
    """The request that was looked up. Indices count hash blocks, or blocks of a group. `was_on_gpu`: apart from the
    blocks that the request has been given since."""

    request_id: str
    num_tokens: int
    num_hashes: int
    is_skipped: bool

    def hash_at(self, index: int) -> bytes: ...
    def key_at(self, group: int, index: int) -> bytes: ...
    def was_on_gpu(self, group: int, index: int) -> bool: ...


@dataclass(slots=True)
class MissedRun:
    """Neighbouring blocks of a group that the tier had and evicted at once."""

    group: int
    first_index: int
    keys: list[bytes]
    eviction: Evicted
    num_owned: int


@dataclass(slots=True)
class Finding:
    """What is said of one lookup; `cause` None where nothing was left to find."""

    cause: Cause | None = None
    detail: str | None = None
    lost_blocks: int = 0
    behind_blocks: int = 0
    sibling: bytes | None = None
    by_request_id: str | None = None
    eviction: Evicted | None = None
    missed: list[MissedRun] = field(default_factory=list[MissedRun])


class Causes:
    """Explains one engine's lookups.

    Args:
        groups: those that can be hit, full attention first.
        hash_block_size: tokens a block hash covers.
        drops_last_block: a draft head lets the last block that is found be computed again (EAGLE, MTP).
    """

    def __init__(
        self, directory: Directory, tier: Tier, groups: list[Group], hash_block_size: int, *, drops_last_block: bool
    ) -> None:
        self._directory = directory
        self._tier = tier
        self._groups = groups
        self._hash_block_size = hash_block_size
        self._drops_last_block = drops_last_block
        self._novelty: dict[str, Novelty] = {}
        self._admitted: set[str] = set()

    def arrived(self, request_id: str, novelty: Novelty) -> None:
        """Remember what was new of the request's chain, until it ends."""
        self._novelty[request_id] = novelty

    def ended(self, request_id: str) -> None:
        """The request is over."""
        self._novelty.pop(request_id, None)
        self._admitted.discard(request_id)

    def explain(self, chain: Chain, cut: int, *, is_resumed: bool) -> Finding:
        """The request is admitted: say why the lookup of its `chain` ended before hash block `cut`."""
        self._admitted.add(chain.request_id)
        if chain.is_skipped:
            return Finding("cache_skipped")
        # The last token is always computed, so a last block that it completes cannot be used.
        usable = min((chain.num_tokens - 1) // self._hash_block_size, chain.num_hashes)
        if not chain.num_hashes:
            return Finding("shorter_than_a_block")
        if cut >= usable:
            return Finding("last_token_rule") if self._is_computed(chain, usable) else Finding()
        # A request that was preempted has seen its whole chain itself.
        finding = self._why(chain, cut, usable, None if is_resumed else self._novelty.get(chain.request_id))
        if self._is_computed(chain, cut):
            self._weigh(chain, cut, usable, finding)
        return finding

    # --- why --------------------------------------------------------------------------------------------------------

    def _why(self, chain: Chain, cut: int, usable: int, novelty: Novelty | None) -> Finding:
        reach = usable
        for group in self._groups:
            if group.needed is not None:
                continue
            index = cut // group.ratio
            if index >= usable // group.ratio:
                return _not_aligned(group)  # a hit does not end within its block
            key = chain.key_at(group.number, index)
            if not self._tier.is_in_tier(key):
                return self._of_key(chain, cut, key, novelty)
            reach = min(reach, self._end_in_tier(chain, group, index, usable))
        if self._drops_last_block and reach == cut + 1:
            return Finding("last_token_rule", "draft_head")
        for group in self._groups:
            if group.needed is None:
                continue
            # What a hit up to the end of what full attention has would need.
            end = reach // group.ratio
            for index in range(max(0, end - group.needed), end):
                key = chain.key_at(group.number, index)
                if not self._tier.is_in_tier(key):
                    found = self._of_key(chain, min((index + 1) * group.ratio, chain.num_hashes) - 1, key, novelty)
                    return found if found.cause in ("evicted", "reset", "in_flight") else _not_aligned(group)
        return _not_aligned(self._groups[-1]) if self._groups else Finding("not_aligned")

    def _of_key(self, chain: Chain, index: int, key: bytes, novelty: Novelty | None) -> Finding:
        """Why a tier has not the block `key`, whose last hash is at `index` of the chain."""
        if self._tier.is_in_flight(key):
            return Finding("in_flight", "copying")
        fate = self._directory.fate(key)
        if isinstance(fate, Evicted):
            detail = "owner_running" if fate.owner is not None else "no_owner"
            return Finding("evicted", detail, by_request_id=fate.by_request_id, eviction=fate)
        if isinstance(fate, str):
            return Finding("never_stored", fate)
        if fate is not None:
            return Finding("reset") if self._directory.was_reset(fate) else Finding("never_stored", "skipped")
        if novelty is not None and index >= novelty.first:
            return self._new(index, novelty)
        teller = self._directory.teller(chain.hash_at(index))
        if teller is not None and teller != chain.request_id and teller in self._admitted:
            return Finding("in_flight", "computing", by_request_id=teller)
        if teller == chain.request_id:
            return Finding("never_stored", "skipped")
        return Finding("never_seen", "never_computed", by_request_id=teller)

    def _new(self, index: int, novelty: Novelty) -> Finding:
        if index == novelty.first and novelty.sibling is not None:
            return Finding("never_seen", "departs", sibling=novelty.sibling, by_request_id=novelty.sibling_by)
        if self._directory.num_forgotten and novelty.first == 0:
            return Finding("never_seen", "maybe_forgotten")
        return Finding("never_seen", "new_head" if index == 0 else "extends")

    # --- what it cost -----------------------------------------------------------------------------------------------

    def _is_computed(self, chain: Chain, index: int) -> bool:
        return any(
            self._directory.fate(chain.key_at(group.number, index // group.ratio)) is not None
            for group in self._groups
            if group.needed is None and index // group.ratio < chain.num_hashes // group.ratio
        )

    def _end_in_tier(self, chain: Chain, group: Group, index: int, usable: int) -> int:
        """The hash block up to which the tier has this group's blocks, from block `index` on."""
        end = min(usable // group.ratio, index + MAX_LOOKS)
        while index < end and self._tier.is_in_tier(chain.key_at(group.number, index)):
            index += 1
        return min(usable, index * group.ratio)

    def _weigh(self, chain: Chain, cut: int, end: int, finding: Finding) -> None:
        """Count what was computed once from the cut on, and what of it a tier has behind the cut."""
        # What is computed is computed from the head on: the end is found by halving.
        low, high = cut, end
        while low < high:
            middle = (low + high) // 2
            if self._is_computed(chain, middle):
                low = middle + 1
            else:
                high = middle
        finding.lost_blocks = low - cut
        for group in self._groups:
            if group.needed is None:
                finding.behind_blocks = max(finding.behind_blocks, self._look_behind(chain, group, cut, low, finding))

    def _look_behind(self, chain: Chain, group: Group, cut: int, end: int, finding: Finding) -> int:
        """Blocks behind the cut that a tier has, in hash blocks; runs of evicted ones go to the finding."""
        start = cut // group.ratio
        stop = min(end // group.ratio, start + MAX_LOOKS)
        num_there = 0
        for index, key, fate in self._fates(chain, group, start, stop):
            if self._tier.is_in_tier(key) or chain.was_on_gpu(group.number, index):
                num_there += index > start
            elif isinstance(fate, Evicted):
                _join(finding.missed, group.number, index, key, fate)
        return num_there * group.ratio

    def _fates(self, chain: Chain, group: Group, start: int, stop: int) -> Iterator[tuple[int, bytes, Fate | None]]:
        for index in range(start, stop):
            key = chain.key_at(group.number, index)
            yield index, key, self._directory.fate(key)


def _not_aligned(group: Group) -> Finding:
    return Finding("not_aligned", group.kind)


def _join(runs: list[MissedRun], group: int, index: int, key: bytes, eviction: Evicted) -> None:
    last = runs[-1] if runs else None
    if (
        last is not None
        and last.group == group
        and last.first_index + len(last.keys) == index
        and last.eviction.step == eviction.step
        and last.eviction.by_request_id == eviction.by_request_id
        and last.eviction.is_by_restore == eviction.is_by_restore
    ):
        last.keys.append(key)
        last.num_owned += eviction.owner is not None
        return
    runs.append(MissedRun(group, index, [key], eviction, int(eviction.owner is not None)))
