"""What the engine has seen: which block hashes, who brought each first, and what became of its copy in the CPU tier.

Pure: standard library only. It is bounded: each of its tables is two halves, and when the newer is full the older goes
at once and is counted. So memory does not grow with traffic, and a look costs one or two dictionary accesses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Evicted:
    """One eviction from the CPU tier; shared by the blocks that left together.

    Attributes:
        step: the step in which the blocks' places were taken.
        at_ns: monotonic.
        by_request_id: whose store took them; None where it is not known.
        owner: a running request that had the block on the GPU then.
        age_ns: how long the block had been in the tier; None where that is not known.
        is_by_restore: whether that store was a re-store.
    """

    step: int
    at_ns: int
    by_request_id: str | None
    owner: str | None
    age_ns: int | None
    is_by_restore: bool


Fate = Evicted | str | int
"""What became of a block that was computed: evicted; never copied, for this reason; or stored, before the reset of this
number."""


@dataclass(frozen=True, slots=True)
class Novelty:
    """What of a chain was new when its request arrived.

    Attributes:
        first: index of the first hash that had not been seen; the chain's length where there is none.
        sibling: the hash that came there the last time, after the same prefix; None where the chain went on for the
            first time, or at its head.
        sibling_by: the request that brought it.
    """

    first: int
    sibling: bytes | None
    sibling_by: str | None


class Halves(Generic[K, V]):
    """A dictionary that forgets: the older half goes when the newer holds half of `capacity`."""

    def __init__(self, capacity: int) -> None:
        self._half = max(1, capacity // 2)
        self._new: dict[K, V] = {}
        self._old: dict[K, V] = {}
        self.num_forgotten = 0

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def get(self, key: K) -> V | None:
        """The value; None where it is unknown or forgotten."""
        value = self._new.get(key)
        return self._old.get(key) if value is None else value

    def put(self, key: K, value: V) -> None:
        """Set it, as something new."""
        self._old.pop(key, None)
        self._new[key] = value
        if len(self._new) >= self._half:
            self.num_forgotten += len(self._old)
            self._new, self._old = {}, self._new


class Directory:
    """Bounded memory of block hashes (as requests have them) and of keys (hashes with their KV-cache group).

    Args:
        capacity: hashes that are remembered. A hash costs about 350 bytes, and 150 more a group after the first.
        num_groups: KV-cache groups of the engine.
    """

    def __init__(self, capacity: int, num_groups: int) -> None:
        self.capacity = capacity
        self._tellers: Halves[bytes, str] = Halves(capacity)
        self._children: Halves[bytes, bytes] = Halves(capacity)
        self._fates: Halves[bytes, Fate] = Halves(capacity * max(1, num_groups))
        self._num_resets = 0

    @property
    def num_forgotten(self) -> int:
        """Hashes that had to be forgotten so far: what was seen before may be called new."""
        return self._tellers.num_forgotten

    # --- what is seen -----------------------------------------------------------------------------------------------

    def tell(self, request_id: str, hashes: Sequence[bytes]) -> Novelty:
        """A request has this chain of hashes. Costs a look at each that is new, and one more."""
        first = len(hashes)
        while first and self._tellers.get(hashes[first - 1]) is None:
            first -= 1
        if first == len(hashes):
            return Novelty(first, None, None)
        sibling = self._children.get(hashes[first - 1]) if first else None
        sibling_by = self._tellers.get(sibling) if sibling is not None else None
        for i in range(first, len(hashes)):
            self._tellers.put(hashes[i], request_id)
            if i:
                self._children.put(hashes[i - 1], hashes[i])
        return Novelty(first, sibling, sibling_by)

    def teller(self, block_hash: bytes) -> str | None:
        """The request that brought the hash first; None where it was never seen, or is forgotten."""
        return self._tellers.get(block_hash)

    # --- what became of it ------------------------------------------------------------------------------------------

    def stored(self, key: bytes) -> None:
        """Its copy can be found in the CPU tier."""
        self._fates.put(key, self._num_resets)

    def dropped(self, key: bytes, reason: str) -> None:
        """It was computed, and not copied. A copy that was evicted before stays evicted."""
        if not isinstance(self._fates.get(key), Evicted):
            self._fates.put(key, reason)

    def evicted(self, key: bytes, eviction: Evicted) -> None:
        """It can no longer be found in the CPU tier."""
        self._fates.put(key, eviction)

    def reset(self) -> None:
        """The CPU tier was emptied."""
        self._num_resets += 1

    def fate(self, key: bytes) -> Fate | None:
        """What became of it; None where it was never computed, or is forgotten."""
        return self._fates.get(key)

    def was_reset(self, fate: int) -> bool:
        """Whether what was stored then went with a reset."""
        return fate < self._num_resets
