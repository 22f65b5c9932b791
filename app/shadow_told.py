"""What the process that follows a log with shadows tells the server, a line each, and what the server keeps of it."""

from collections.abc import Mapping

from pydantic import BaseModel

from app.queries.traffic import TierShape
from app.shadow_feed import ShadowFeed
from app.shadow_series import Hits, Series
from connector.shadow import ShadowTier

TRUTH = "truth"
"""Names beside those of the shadows: what the engine gave, and that of lookups which the active shadow answers for."""


class TierState(BaseModel):
    """A shadow's size, the policy that it follows now, and what it has copied since the engine's start, in blocks."""

    policy: str
    num_blocks: int
    num_stored: int
    num_restored: int


def state_of(tier: ShadowTier, num_blocks: int | None = None) -> TierState:
    """Of a shadow. `num_blocks`: the size that it stands for, where it was played with less."""
    return TierState(
        policy=tier.policy,
        num_blocks=tier.num_blocks if num_blocks is None else num_blocks,
        num_stored=tier.num_stored,
        num_restored=tier.num_restored,
    )


class Followed(BaseModel):
    """The engine whose traffic is followed."""

    engine_id: int
    block_bytes: int
    unsupported: str | None
    notes: list[str]


class Told(BaseModel):
    """One line.

    Attributes:
        begins: what was told before is of another engine.
        engine: None while no engine has signed in.
        sums: by name and by second of wall time what changed: prompt tokens, and those hit on GPU and CPU. Whole sums,
            not differences.
        problem: why the log cannot be read now.
    """

    begins: bool = False
    engine: Followed | None = None
    last_seq: int = 0
    is_caught_up: bool = False
    tiers: dict[str, TierState] = {}
    sums: dict[str, dict[int, tuple[int, int, int]]] = {}
    problem: str | None = None


def tell(shape: TierShape, notes: list[str], feed: ShadowFeed | None, *, begins: bool, is_caught_up: bool) -> Told:
    """What has changed since the last time."""
    engine = Followed(
        engine_id=shape.engine_id, block_bytes=shape.block_bytes, unsupported=shape.unsupported, notes=notes
    )
    if feed is None:
        return Told(begins=begins, engine=engine, is_caught_up=is_caught_up)
    series = {TRUTH: feed.truth, **feed.series}
    return Told(
        begins=begins,
        engine=engine,
        last_seq=feed.last_seq,
        is_caught_up=is_caught_up,
        tiers={name: state_of(tier) for name, tier in feed.shadows.items()},
        sums={name: changes for name, s in series.items() if (changes := s.take_changes())},
    )


class Mirror:
    """What was told so far of the engine that is followed now.

    Attributes:
        newest: the last line.
    """

    def __init__(self) -> None:
        self.newest = Told()
        self._series: dict[str, Series] = {}

    def take(self, told: Told) -> None:
        """The next line."""
        if told.begins:
            self._series.clear()
        for name, sums in told.sums.items():
            series = self._series.setdefault(name, Series())
            for second, (prompt, gpu, cpu) in sums.items():
                series.put(second, Hits(prompt, gpu, cpu))
        self.newest = told

    def total(self, name: str, start: int, end: int) -> Hits:
        """Of a shadow from `start` to `end` (not in it), in wall nanoseconds."""
        series = self._series.get(name)
        return series.total(start, end) if series is not None else Hits()

    def buckets(self, name: str, start: int, end: int, bucket: int) -> Mapping[int, Hits]:
        """Of a shadow, by number of the bucket of `bucket` nanoseconds; only those with traffic."""
        series = self._series.get(name)
        return series.buckets(start, end, bucket) if series is not None else {}
