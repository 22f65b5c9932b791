"""The time that the connector reads: the machine's, or that of a replay. Pure."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings of one time, in nanoseconds: since some beginning, and since 1970."""

    def monotonic_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class MachineClock:
    """The machine's own."""

    # Read several times for each block that is copied: no frame of ours around them.
    monotonic_ns: "staticmethod[[], int]" = staticmethod(time.monotonic_ns)
    wall_ns: "staticmethod[[], int]" = staticmethod(time.time_ns)


MACHINE_CLOCK = MachineClock()
