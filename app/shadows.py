"""Shadows of the newest engine's CPU tier, followed outside every hot path.

A thread of its own reads the log in small pieces while somebody asks, and rests between them, so that neither the
server nor the engine feels it. What it knows is of one engine: when a newer one signs in, it begins anew.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from app.models import CurveRow, Shadow, ShadowError, ShadowPoint, Shadows, WhatIfRow
from app.queries.traffic import TierShape, newest_engine, read_shape
from app.shadow_feed import ACTIVE, Hits, ShadowFeed
from connector.log import LogError
from connector.shadow import ShadowPolicy, ShadowTier

logger = logging.getLogger("vllm.restore")

CHUNK = 500
REST_SECONDS = 0.02
IDLE_SECONDS = 1.0
FORGET_SECONDS = 120.0
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
CURVES: tuple[ShadowPolicy, ...] = ("off", "tracked")
ADAPTIVE: ShadowPolicy = "adaptive"
UNLIMITED = "unlimited"
NOTES = (
    "Other hits would have changed the timing: what is computed later is stored later, and requests that come "
    "meanwhile find something else. A shadow sees the traffic in the order in which it happened.",
    "What the GPU holds is taken as it was.",
    "A first store that the engine held back or refused is seen by every shadow when the engine told of it.",
)
WINDOW_NOTE = (
    "This model has sliding windows. Which pages the GPU still had when it was time to copy them is taken as it was; "
    "in a tier smaller than the GPU's cache a shadow may be some percentage points off."
)


def notes_of(shape: TierShape) -> list[str]:
    """What to know before one trusts a shadow of this tier."""
    return [*NOTES, WINDOW_NOTE] if any(g.needed is not None for g in shape.groups) else list(NOTES)


def name_of(policy: str, factor: float) -> str:
    """A shadow's name: the policy, and the size where it is not the engine's own."""
    return policy if factor == 1.0 else f"{policy} x{factor:g}"


def row_of(tier: ShadowTier, shape: TierShape, hits: Hits, num_blocks: int | None = None) -> WhatIfRow:
    """What a tier gave and copied. `num_blocks`: the size that it stands for, where it was played with less."""
    size = tier.num_blocks if num_blocks is None else num_blocks
    is_bounded = tier.policy != UNLIMITED
    return WhatIfRow(
        policy=tier.policy,
        cpu_blocks=size if is_bounded else None,
        cpu_bytes=size * shape.block_bytes if is_bounded else None,
        hit_rate=hits.hit_rate,
        cpu_hit_tokens=hits.cpu_hit_tokens,
        gpu_hit_tokens=hits.gpu_hit_tokens,
        restored_blocks=tier.num_restored,
        stored_blocks=tier.num_stored,
    )


def usual_shadows(shape: TierShape) -> dict[str, ShadowTier]:
    """The active policy, each other at the engine's own size, an endless tier, and a curve of sizes of the two that
    leave vLLM its order."""
    shadows = {ACTIVE: ShadowTier("off", shape.num_blocks, shape.groups)}
    for policy in CURVES:
        for factor in SIZES:
            size = max(1, round(shape.num_blocks * factor))
            shadows[name_of(policy, factor)] = ShadowTier(policy, size, shape.groups)
    shadows[ADAPTIVE] = ShadowTier(ADAPTIVE, shape.num_blocks, shape.groups)
    shadows[UNLIMITED] = ShadowTier("unlimited", shape.num_blocks, shape.groups)
    return shadows


class ShadowFollower:
    """Follows the newest engine of a log. Safe to use from several threads.

    Args:
        connect: gives a read-only connection to the log; may raise LogError.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._asked_at = 0.0
        self._closing = False
        self._shape: TierShape | None = None
        self._feed: ShadowFeed | None = None
        self._is_caught_up = False

    def read(self, start: int, end: int, bucket: int) -> Shadows:
        """What the shadows know of a range of wall time by now. Begins to follow, if nobody did."""
        self._follow()
        with self._lock:
            shape, feed = self._shape, self._feed
            if shape is None or feed is None:
                reason = shape.unsupported if shape is not None else None
                return Shadows(
                    engine_id=shape.engine_id if shape is not None else None,
                    is_caught_up=self._is_caught_up,
                    last_seq=0,
                    unsupported=reason,
                    hit_rate=None,
                    shadows=[],
                    error=None,
                    curve=[],
                    notes=[],
                )
            return self._describe(shape, feed, start, end, bucket)

    def double_tier(self, start: int, end: int, prompt_tokens: int) -> float | None:
        """The hit rate that a tier twice as large would have given, the policy as it is. None until it is known, where
        no shadow of that size follows the policy (`adaptive`), and where the range has more `prompt_tokens` than the
        newest engine's, which is the one that is followed."""
        self._follow()
        with self._lock:
            if self._feed is None or not self._is_caught_up:
                return None
            if self._feed.truth.total(start, end).prompt_tokens != prompt_tokens:
                return None
            double = self._feed.series.get(name_of(self._feed.shadows[ACTIVE].policy, 2.0))
            return None if double is None else double.total(start, end).hit_rate

    def begin_anew(self) -> None:
        """Another file lies where the log was."""
        with self._lock:
            self._shape = self._feed = None
            self._is_caught_up = False

    def close(self) -> None:
        """Stop following."""
        self._closing = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    # --- following --------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        with self._lock:
            self._asked_at = time.monotonic()
            if not self._closing and (self._thread is None or not self._thread.is_alive()):
                self._thread = threading.Thread(target=self._run, name="restore-shadows", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        is_failing = False
        while not self._closing and time.monotonic() - self._asked_at < FORGET_SECONDS:
            try:
                num_rows = self._take()
                is_failing = False
            except (LogError, SQLAlchemyError) as e:
                if not is_failing:
                    logger.warning("The shadows cannot read the log; trying again: %s", e)
                is_failing = True
                num_rows = 0
            if num_rows:
                time.sleep(REST_SECONDS)
            else:
                self._wake.wait(IDLE_SECONDS)
                self._wake.clear()

    def _take(self) -> int:
        """Read one piece. Each piece is a short transaction, so that the WAL can be folded back meanwhile."""
        with self._connect() as conn, conn.begin(), self._lock:
            engine_id = newest_engine(conn)
            if engine_id is None:
                return 0
            if self._shape is None or self._shape.engine_id != engine_id:
                self._begin(conn, engine_id)
            if self._feed is None:
                self._is_caught_up = True
                return 0
            num_rows = self._feed.take(conn, CHUNK)
            self._is_caught_up = num_rows < CHUNK
            return num_rows

    def _begin(self, conn: Connection, engine_id: int) -> None:
        self._shape = read_shape(conn, engine_id)
        is_followed = self._shape is not None and self._shape.unsupported is None
        self._feed = ShadowFeed(self._shape, usual_shadows(self._shape)) if self._shape and is_followed else None
        self._is_caught_up = False

    # --- saying -----------------------------------------------------------------------------------------------------

    def _describe(self, shape: TierShape, feed: ShadowFeed, start: int, end: int, bucket: int) -> Shadows:
        truth = feed.truth.buckets(start, end, bucket)
        active = feed.series[ACTIVE].buckets(start, end, bucket)
        shown = (ACTIVE, "off", "tracked", ADAPTIVE, UNLIMITED)
        return Shadows(
            engine_id=shape.engine_id,
            is_caught_up=self._is_caught_up,
            last_seq=feed.last_seq,
            unsupported=None,
            hit_rate=_sum(truth).hit_rate,
            shadows=[self._shadow(shape, feed, name, start, end, bucket) for name in shown],
            error=ShadowError(
                name=ACTIVE,
                percentage_points=_points_between(_sum(active), _sum(truth)),
                worst_percentage_points=max(
                    (abs(_points_between(active.get(n, Hits()), hits) or 0.0) for n, hits in truth.items()),
                    default=None,
                ),
            ),
            curve=[
                CurveRow(
                    policy=policy,
                    cpu_blocks=feed.shadows[name_of(policy, factor)].num_blocks,
                    cpu_bytes=feed.shadows[name_of(policy, factor)].num_blocks * shape.block_bytes,
                    hit_rate=feed.series[name_of(policy, factor)].total(start, end).hit_rate,
                )
                for policy in CURVES
                for factor in SIZES
            ],
            notes=notes_of(shape),
        )

    def _shadow(self, shape: TierShape, feed: ShadowFeed, name: str, start: int, end: int, bucket: int) -> Shadow:
        tier, series = feed.shadows[name], feed.series[name]
        found = series.buckets(start, end, bucket)
        hits = _sum(found)
        return Shadow(
            **row_of(tier, shape, hits).model_dump(),
            name=name,
            points=[
                ShadowPoint(wall_ns=start + n * bucket, hit_rate=found[n].hit_rate if n in found else None)
                for n in range((end - start) // bucket)
            ],
        )


def _sum(buckets: Mapping[int, Hits]) -> Hits:
    total = Hits()
    for hits in buckets.values():
        total.prompt_tokens += hits.prompt_tokens
        total.gpu_hit_tokens += hits.gpu_hit_tokens
        total.cpu_hit_tokens += hits.cpu_hit_tokens
    return total


def _points_between(shadow: Hits, truth: Hits) -> float | None:
    if shadow.hit_rate is None or truth.hit_rate is None:
        return None
    return 100 * (shadow.hit_rate - truth.hit_rate)
