"""What things took: copies, as the workers measured them, and the step before.

Engine ring.
"""

from collections.abc import Collection
from dataclasses import dataclass

from connector.worker_meta import ReStoreWorkerMetadata

PREFILL_TOKENS = 16


class CopyTimes:
    """Times that workers reported, until the copies that they belong to are told. With several ranks the slowest
    counts."""

    def __init__(self) -> None:
        self._stores: dict[int, int] = {}
        self.loads: dict[int, tuple[int, int]] = {}
        """(ns, blocks) by load event."""

    def note(self, meta: ReStoreWorkerMetadata) -> None:
        """A report of one or all workers."""
        for event, ns in meta.store_ns.items():
            self._stores[event] = max(ns, self._stores.get(event, 0))
        for event, load in meta.loads.items():
            self.loads[event] = max(load, self.loads.get(event, (0, 1)))

    def take_store(self, event: int) -> int | None:
        """Nanoseconds of a store event; None where the worker does not measure."""
        return self._stores.pop(event, None)

    def load_ns_per_block(self, event: int) -> float | None:
        """Nanoseconds of each block of a load event, which may serve several requests."""
        ns, num_blocks = self.loads.get(event, (None, 1))
        return None if ns is None else ns / num_blocks

    def keep_loads(self, events: Collection[int | None]) -> None:
        """Only these load events are not told yet."""
        self.loads = {event: load for event, load in self.loads.items() if event in events}


@dataclass(frozen=True, slots=True)
class PreviousStep:
    """The step before; empty where there was none, or where the engine was idle since.

    Attributes:
        started_ns: when the connector's part of it began, by the recorder's clock.
    """

    started_ns: int | None = None
    num_tokens: int | None = None
    num_running: int | None = None

    @property
    def is_prefill(self) -> bool:
        """Whether it computed clearly more than a token a request: such a step tells how fast prefill is."""
        return self.num_tokens is not None and self.num_tokens - (self.num_running or 0) >= PREFILL_TOKENS

    def ns_until(self, now_ns: int) -> int | None:
        """How long it took, if `now_ns` is when the next one began."""
        return None if self.started_ns is None else now_ns - self.started_ns
