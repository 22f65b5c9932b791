"""Shadows of the newest engine's CPU tier, followed outside every hot path.

`shadow_process` reads the log in a process of its own while somebody asks; what it tells is kept here, so an answer
waits for nobody. It is of one engine: when a newer one signs in, it begins anew.
"""

import logging
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from app.aside import start_aside
from app.models import CurveRow, Shadow, ShadowError, ShadowPoint, Shadows, WhatIfRow
from app.queries.traffic import TierShape
from app.shadow_feed import ACTIVE
from app.shadow_series import Hits
from app.shadow_told import TRUTH, Followed, Mirror, TierState, Told
from connector.shadow import ShadowPolicy, ShadowTier

logger = logging.getLogger("vllm.restore")

FIRST_PAUSE, LONGEST_PAUSE = 15.0, 600.0
"""Seconds until a process that ended again soon after its start is started once more."""
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


def row_of(tier: TierState, block_bytes: int, hits: Hits) -> WhatIfRow:
    """What a tier gave and copied."""
    is_bounded = tier.policy != UNLIMITED
    return WhatIfRow(
        policy=tier.policy,
        cpu_blocks=tier.num_blocks if is_bounded else None,
        cpu_bytes=tier.num_blocks * block_bytes if is_bounded else None,
        hit_rate=hits.hit_rate,
        cpu_hit_tokens=hits.cpu_hit_tokens,
        gpu_hit_tokens=hits.gpu_hit_tokens,
        restored_blocks=tier.num_restored,
        stored_blocks=tier.num_stored,
    )


def usual_shadows(shape: TierShape) -> dict[str, ShadowTier]:
    """The active policy, each other at the engine's own size, an endless tier, a curve of sizes of the two that leave
    vLLM its order, and `adaptive` with twice as much, for the sentence about it."""
    shadows = {ACTIVE: ShadowTier("off", shape.num_blocks, shape.groups)}
    for policy in CURVES:
        for factor in SIZES:
            size = max(1, round(shape.num_blocks * factor))
            shadows[name_of(policy, factor)] = ShadowTier(policy, size, shape.groups)
    for factor in (1.0, 2.0):
        shadows[name_of(ADAPTIVE, factor)] = ShadowTier(ADAPTIVE, round(shape.num_blocks * factor), shape.groups)
    shadows[UNLIMITED] = ShadowTier("unlimited", shape.num_blocks, shape.groups)
    return shadows


class ShadowFollower:
    """Follows the newest engine of a log. Safe to use from several threads.

    Args:
        named_log: gives the log as the process that follows it opens it.
    """

    def __init__(self, named_log: Callable[[], str]) -> None:
        self._named_log = named_log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._mirror = Mirror()
        self._has_failed = False
        self._is_closed = False
        self._born_at = self._not_before = 0.0
        self._num_deaths = 0

    @property
    def pid(self) -> int | None:
        """Of the process that follows; None until somebody asked."""
        return self._process.pid if self._process is not None else None

    def read(self, start: int, end: int, bucket: int) -> Shadows:
        """What the shadows know of a range of wall time by now. Begins to follow, if nobody did."""
        self._ask()
        with self._lock:
            newest = self._mirror.newest
            if newest.engine is None or not newest.tiers:
                return Shadows(
                    engine_id=newest.engine.engine_id if newest.engine is not None else None,
                    is_caught_up=newest.is_caught_up,
                    last_seq=0,
                    unsupported=newest.engine.unsupported if newest.engine is not None else None,
                    hit_rate=None,
                    shadows=[],
                    error=None,
                    curve=[],
                    notes=[],
                )
            return self._describe(newest.engine, newest, start, end, bucket)

    def double_tier(self, start: int, end: int, prompt_tokens: int) -> float | None:
        """The hit rate that a tier twice as large would have given, the policy as it is. None until it is known, where
        no shadow of that size follows the policy (`adaptive-off`), and where the range has more `prompt_tokens` than
        the newest engine's, which is the one that is followed."""
        self._ask()
        with self._lock:
            newest, mirror = self._mirror.newest, self._mirror
            if not newest.is_caught_up or not newest.tiers:
                return None
            if mirror.total(TRUTH, start, end).prompt_tokens != prompt_tokens:
                return None
            name = name_of(newest.tiers[ACTIVE].policy, 2.0)
            return mirror.total(name, start, end).hit_rate if name in newest.tiers else None

    def begin_anew(self) -> None:
        """Another file lies where the log was."""
        with self._lock:
            self._stop()

    def close(self) -> None:
        """Stop following."""
        with self._lock:
            self._is_closed = True
            self._stop()
            listener = self._listener
        if listener is not None:
            listener.join(timeout=5.0)

    # --- following --------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Start the process that follows, or tell it that somebody still asks."""
        with self._lock:
            if self._is_closed:
                return
            if self._process is not None and self._process.poll() is not None:
                self._note_death(self._process.returncode)
            if self._process is None:
                if time.monotonic() < self._not_before:
                    return
                self._born_at = time.monotonic()
                try:
                    self._process = start_aside("app.shadow_process", self._named_log())
                except OSError as e:
                    self._warn(f"no process can be started: {e}")
                    return
                self._listener = threading.Thread(
                    target=self._listen, args=(self._process, self._mirror), name="restore-shadows", daemon=True
                )
                self._listener.start()
            assert self._process.stdin is not None
            # If it has just died, and its pipe is closed, the next who asks starts another.
            with suppress(OSError, ValueError):
                self._process.stdin.write("\n")
                self._process.stdin.flush()

    def _note_death(self, status: int) -> None:
        """The process ended by itself or was killed. It is started again: at once the first time, then after a
        while that grows."""
        if time.monotonic() - self._born_at > LONGEST_PAUSE:
            self._num_deaths = 0
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (self._num_deaths - 1)) if self._num_deaths else 0.0
        self._num_deaths += 1
        self._not_before = time.monotonic() + pause
        logger.warning("Shadows of the CPU tier: their process ended with status %s", status)
        self._stop()

    def _listen(self, process: subprocess.Popen[str], mirror: Mirror) -> None:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.endswith("\n"):  # the last one of a process that was killed may be cut
                    self._take(Told.model_validate_json(line), mirror)
        finally:
            process.kill()
            # Also closes the pipes; what was not written to a process that is dead is lost.
            with suppress(OSError, ValueError), process:
                pass

    def _take(self, told: Told, mirror: Mirror) -> None:
        with self._lock:
            mirror.take(told)
            if told.problem is None:
                self._has_failed = False
            else:
                self._warn(f"they cannot read the log; trying again: {told.problem}")

    def _warn(self, problem: str) -> None:
        if not self._has_failed:
            logger.warning("Shadows of the CPU tier: %s", problem)
        self._has_failed = True

    def _stop(self) -> None:
        """Forget what was told, and end who told it. The lock is held."""
        self._mirror = Mirror()
        process, self._process = self._process, None
        if process is not None:
            # Its listener waits for it. It only reads: there is nothing that it would have to put in order.
            process.kill()

    # --- saying -----------------------------------------------------------------------------------------------------

    def _describe(self, engine: Followed, newest: Told, start: int, end: int, bucket: int) -> Shadows:
        truth, active = (self._mirror.buckets(name, start, end, bucket) for name in (TRUTH, ACTIVE))
        shown = (ACTIVE, "off", "tracked", ADAPTIVE, UNLIMITED)
        return Shadows(
            engine_id=engine.engine_id,
            is_caught_up=newest.is_caught_up,
            last_seq=newest.last_seq,
            unsupported=None,
            hit_rate=_sum(truth).hit_rate,
            shadows=[self._shadow(engine, newest.tiers[name], name, start, end, bucket) for name in shown],
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
                    cpu_blocks=newest.tiers[name].num_blocks,
                    cpu_bytes=newest.tiers[name].num_blocks * engine.block_bytes,
                    hit_rate=self._mirror.total(name, start, end).hit_rate,
                )
                for policy in CURVES
                for name in (name_of(policy, factor) for factor in SIZES)
            ],
            notes=engine.notes,
        )

    def _shadow(self, engine: Followed, tier: TierState, name: str, start: int, end: int, bucket: int) -> Shadow:
        found = self._mirror.buckets(name, start, end, bucket)
        return Shadow(
            **row_of(tier, engine.block_bytes, _sum(found)).model_dump(),
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
