"""Counts what the journal tells, for Prometheus: which metrics there are, and one engine's sums since they were taken.

Pure: standard library and the pure ring. `prom_metrics` carries the sums into vLLM's `/metrics`. Every label has a
closed list of values, so that no client can make series; what is not on the list is `other`. Base units: tokens,
blocks, bytes, seconds.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    CacheReset,
    Event,
    Fault,
    Lookup,
)

logger = logging.getLogger("vllm.restore")

PREFIX = "vllm_restore_"
STOCK = "stock"
"""Where `restore_scheduler` has put vLLM's own scheduler half in the place of ours."""
POLICIES = ("off", "rescan", "tracked", "adaptive", "adaptive-off", STOCK)
SOURCES = ("gpu", "cpu", "restored", "computed")
OPERATIONS = ("store", "restore", "load")
TIER_STATES = ("free", "cached", "in_flight")
CAUSES = (
    "never_seen", "never_stored", "evicted", "in_flight", "shorter_than_a_block", "last_token_rule", "not_aligned",
    "cache_skipped", "reset", "none",
)  # fmt: skip
DETAILS = (
    "new_head", "extends", "departs", "maybe_forgotten", "never_computed",
    "cpu_full", "budget", "no_gain", "not_tried", "copy_failed", "rehashed", "skipped",
    "owner_running", "no_owner", "copying", "computing", "draft_head", "none", "other",
)  # fmt: skip
REASONS = ("cpu_full", "budget", "no_gain", "not_tried", "copy_failed", "rehashed", "other")
AGE_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_000.0, 10_000.0, 30_000.0)
COPY_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
MAX_OBSERVATIONS = 10_000
"""Of one histogram between two `take`s; what is more is not observed."""

Labels = tuple[str, ...]
Values = dict[str, dict[Labels, Any]]
"""By metric and values of its own labels: a sum, a gauge's value, or a histogram's list of (value, how often)."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name` without the prefix; `labels` maps each label to the values that it may have. `is_full`: each
    series is there from the start, so that its first increase is seen as one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Mapping[str, Labels]
    buckets: tuple[float, ...] = ()
    is_full: bool = False


_POLICY: dict[str, Labels] = {"policy": POLICIES}
_EVICTION: dict[str, Labels] = {"owner": ("running", "none"), "by": ("store", "restore"), **_POLICY}

METRICS = (
    Metric(
        "prompt_tokens_total", "counter",
        "Prompt tokens of admitted lookups by source: gpu and cpu hits, cpu hits thanks to a re-store (restored, not "
        "in cpu), computed. Lookups after a preemption do not count.",
        {"source": SOURCES, **_POLICY}, is_full=True,
    ),
    Metric(
        "lookups_total", "counter",
        "Admitted lookups by why they ended where they did; cause none: nothing was left to find.",
        {"cause": CAUSES, "detail": DETAILS, **_POLICY},
    ),
    Metric(
        "lost_tokens_total", "counter",
        "Prompt tokens computed again though computed before: what a tier without end would have given.",
        {"cause": CAUSES, "detail": DETAILS, **_POLICY},
    ),
    Metric(
        "behind_tokens_total", "counter",
        "Of the lost tokens: in a tier, but behind the block that was missing.",
        {"cause": CAUSES, **_POLICY},
    ),
    Metric(
        "copied_blocks_total", "counter",
        "Blocks whose copy was completed: store and restore to the CPU tier, load from it.",
        {"operation": OPERATIONS, **_POLICY}, is_full=True,
    ),
    Metric(
        "copied_bytes_total", "counter", "Bytes of these copies, all layers of one rank.",
        {"operation": OPERATIONS, **_POLICY}, is_full=True,
    ),
    Metric(
        "loaded_restored_blocks_total", "counter",
        "Of the loaded blocks: in the CPU tier thanks to a re-store.", _POLICY,
    ),
    Metric(
        "evicted_blocks_total", "counter",
        "Blocks that left the CPU tier. owner: whether a running request owned them; by: what took their place.",
        _EVICTION,
    ),
    Metric(
        "evicted_unhit_blocks_total", "counter",
        "Of the evicted blocks: never loaded since they were stored.", _POLICY,
    ),
    Metric(
        "missed_blocks_total", "counter",
        "Blocks that a lookup wanted and that the CPU tier had evicted; owner and by: as of the eviction.", _EVICTION,
    ),
    Metric(
        "dropped_blocks_total", "counter",
        "Blocks that were ready on the GPU and were not copied when their request ended.",
        {"reason": REASONS, **_POLICY},
    ),
    Metric("cache_resets_total", "counter", "How often the CPU tier was emptied.", {}, is_full=True),
    Metric("faults_total", "counter", "Faults of the connector, after which vLLM went on as stock.", {}, is_full=True),
    Metric("log_dropped_events_total", "counter", "Events that are missing from the log.", {}, is_full=True),
    Metric("tier_blocks", "gauge", "Blocks of the CPU tier by state.", {"state": TIER_STATES}),
    Metric("restorable_blocks", "gauge", "Lost blocks of running requests that wait to be copied again.", {}),
    Metric("policy", "gauge", "1 for the policy that the engine obeys, 0 for the others.", _POLICY),
    Metric("policy_version", "gauge", "The version of the policy that the engine obeys.", {}),
    Metric(
        "copy_seconds", "histogram",
        "What the worker took for a completed copy of neighbouring blocks. Nothing where it does not measure.",
        {"operation": OPERATIONS}, COPY_BUCKETS, is_full=True,
    ),
    Metric(
        "evicted_block_age_seconds", "histogram",
        "How long evicted blocks had been in the CPU tier; of neighbours evicted together, the oldest's age.",
        {}, AGE_BUCKETS, is_full=True,
    ),
    Metric(
        "missed_block_gone_seconds", "histogram",
        "How long before the lookup that wanted them blocks had been evicted.", {}, AGE_BUCKETS, is_full=True,
    ),
)  # fmt: skip
INFO = Metric("info", "gauge", "What runs here; always 1.", {"version": (), "vllm_version": ()})
"""Its labels are facts of the installation: one series an engine."""


class Metrics:
    """One engine's sums since they were last taken. Its methods are called by the scheduler's thread alone.

    Args:
        policy: the label of the policy that holds now.
    """

    def __init__(self, policy: Callable[[], str]) -> None:
        self._policy = policy
        self._sums: Values = {}
        self._num_faults = 0
        self._is_broken = False
        self._counts: dict[type[Event], Callable[[Any, str], None]] = {
            Lookup: self._lookup,
            BlocksStored: lambda e, p: self._copied(e, "store", p),
            BlocksRestored: lambda e, p: self._copied(e, "restore", p),
            BlocksLoaded: self._loaded,
            BlocksEvicted: self._evicted,
            BlocksMissed: self._missed,
            BlocksDropped: self._dropped,
            CacheReset: lambda _, __: self.add("cache_resets_total", (), 1),
            Fault: self._fault,
        }

    def count(self, event: Event) -> None:
        """Count one event. Never raises: after a fault of its own it stops counting, and says so once."""
        count = self._counts.get(type(event))
        if count is None or self._is_broken:
            return
        try:
            count(event, self._policy())
        except Exception as e:
            self._is_broken = True
            logger.exception("The metrics stop here after a fault in counting %s: %s", event.kind, e)

    def add(self, name: str, labels: Labels, value: float) -> None:
        """Increase a counter."""
        series = self._sums.setdefault(name, {})
        series[labels] = series.get(labels, 0) + value

    def take(self) -> Values:
        """What was counted since the last call."""
        taken, self._sums = self._sums, {}
        return taken

    def _observe(self, name: str, labels: Labels, value_ns: int, weight: int) -> None:
        seen: list[tuple[float, int]] = self._sums.setdefault(name, {}).setdefault(labels, [])
        if len(seen) < MAX_OBSERVATIONS:
            seen.append((value_ns / 1e9, weight))

    # --- by kind of event -------------------------------------------------------------------------------------------

    def _lookup(self, e: Lookup, policy: str) -> None:
        if e.is_resumed:
            return
        tokens = (
            e.gpu_hit_tokens,
            e.cpu_hit_tokens - e.restored_hit_tokens,
            e.restored_hit_tokens,
            e.num_tokens - e.gpu_hit_tokens - e.cpu_hit_tokens,
        )
        for source, count in zip(SOURCES, tokens, strict=True):
            if count:
                self.add("prompt_tokens_total", (source, policy), count)
        cause = e.cause or "none"
        # The detail of `not_aligned` is the name of a class of vLLM's.
        detail = _known(e.cause_detail or "none", DETAILS)
        self.add("lookups_total", (cause, detail, policy), 1)
        if e.lost_tokens:
            self.add("lost_tokens_total", (cause, detail, policy), e.lost_tokens)
        if e.behind_tokens:
            self.add("behind_tokens_total", (cause, policy), e.behind_tokens)

    def _copied(self, e: BlocksStored | BlocksRestored | BlocksLoaded, operation: str, policy: str) -> None:
        self.add("copied_blocks_total", (operation, policy), e.num_blocks)
        self.add("copied_bytes_total", (operation, policy), e.num_bytes)
        if e.copy_ns is not None:
            self._observe("copy_seconds", (operation,), e.copy_ns, 1)

    def _loaded(self, e: BlocksLoaded, policy: str) -> None:
        self._copied(e, "load", policy)
        if e.num_restored:
            self.add("loaded_restored_blocks_total", (policy,), e.num_restored)

    def _evicted(self, e: BlocksEvicted, policy: str) -> None:
        self._by_owner("evicted_blocks_total", e, policy)
        if unhit := e.num_blocks - e.num_loaded:
            self.add("evicted_unhit_blocks_total", (policy,), unhit)
        if e.age_ns is not None:
            self._observe("evicted_block_age_seconds", (), e.age_ns, e.num_blocks)

    def _missed(self, e: BlocksMissed, policy: str) -> None:
        self._by_owner("missed_blocks_total", e, policy)
        self._observe("missed_block_gone_seconds", (), e.since_ns, e.num_blocks)

    def _by_owner(self, name: str, e: BlocksEvicted | BlocksMissed, policy: str) -> None:
        by = "restore" if e.is_by_restore else "store"
        if e.num_owned:
            self.add(name, ("running", by, policy), e.num_owned)
        if others := e.num_blocks - e.num_owned:
            self.add(name, ("none", by, policy), others)

    def _dropped(self, e: BlocksDropped, policy: str) -> None:
        self.add("dropped_blocks_total", (_known(e.reason, REASONS), policy), e.num_blocks)

    def _fault(self, e: Fault, _: str) -> None:
        # Not every fault is told by an event of its own; the number so far is.
        self.add("faults_total", (), e.num_faults - self._num_faults)
        self._num_faults = e.num_faults


def _known(value: str, known: Labels) -> str:
    return value if value in known else "other"
