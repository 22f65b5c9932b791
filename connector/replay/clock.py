"""Virtual time: it goes on only when a replay says so. Pure."""

import time


class VirtualClock:
    """Starts at 0 seconds. `begin_wall_ns`: which moment of the wall clock that is; now, if not said."""

    def __init__(self, begin_wall_ns: int | None = None) -> None:
        self.seconds = 0.0
        self._begin_wall_ns = time.time_ns() if begin_wall_ns is None else begin_wall_ns

    def advance(self, seconds: float) -> None:
        self.seconds += seconds

    def jump(self, to_seconds: float) -> None:
        """Skip the time in which nothing happens; never back."""
        self.seconds = max(self.seconds, to_seconds)

    def monotonic_ns(self) -> int:
        return int(self.seconds * 1e9)

    def wall_ns(self) -> int:
        return self.wall_ns_at(self.seconds)

    def wall_ns_at(self, seconds: float) -> int:
        return self._begin_wall_ns + int(seconds * 1e9)
