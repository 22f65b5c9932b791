"""The time that the connector reads: the machine's, or that of a replay. Pure."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of one time, in nanoseconds: since some beginning, and since 1970."""

    def monotonic_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class MachineClock:
    """The machine's own."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()


MACHINE_CLOCK = MachineClock()
