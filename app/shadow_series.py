"""Prompt tokens by source and second of wall time, such that any range can be summed at once."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SECOND_NS = 1_000_000_000
MAX_SECONDS = 200_000


@dataclass(slots=True)
class Hits:
    """Prompt tokens in a span, by source."""

    prompt_tokens: int = 0
    gpu_hit_tokens: int = 0
    cpu_hit_tokens: int = 0

    @property
    def hit_rate(self) -> float | None:
        """None without traffic."""
        if not self.prompt_tokens:
            return None
        return (self.gpu_hit_tokens + self.cpu_hit_tokens) / self.prompt_tokens


class Series:
    """Sums by second; the oldest go when there are more than `MAX_SECONDS`.

    Beside each second stands the sum of all before it, so a range costs two looks, however long it is.
    """

    def __init__(self) -> None:
        self._seconds: list[int] = []
        self._hits: list[Hits] = []
        # The sum of all before each second, as far as it is known; then that of all.
        self._before: list[tuple[int, int, int]] = [(0, 0, 0)]
        self._changed: set[int] = set()

    def add(self, wall_ns: int, prompt: int, gpu: int, cpu: int) -> None:
        """One lookup."""
        second = wall_ns // SECOND_NS
        hits = self._hits[self._place(second)]
        hits.prompt_tokens += prompt
        hits.gpu_hit_tokens += gpu
        hits.cpu_hit_tokens += cpu
        self._changed.add(second)

    def put(self, second: int, hits: Hits) -> None:
        """The whole sum of one second."""
        self._hits[self._place(second)] = hits

    def take_changes(self) -> dict[int, tuple[int, int, int]]:
        """Sums of the seconds that have changed since the last call: prompt tokens, and those hit on GPU and CPU."""
        found: dict[int, tuple[int, int, int]] = {}
        for second in sorted(self._changed):
            at = bisect_left(self._seconds, second)
            if at < len(self._seconds) and self._seconds[at] == second:
                hits = self._hits[at]
                found[second] = (hits.prompt_tokens, hits.gpu_hit_tokens, hits.cpu_hit_tokens)
        self._changed.clear()
        return found

    def total(self, start: int, end: int) -> Hits:
        """From `start` to `end` (not in it), in wall nanoseconds."""
        return self._sum(self._first_from(start), self._first_from(end))

    def buckets(self, start: int, end: int, bucket: int) -> Mapping[int, Hits]:
        """Sums by number of the bucket of `bucket` nanoseconds; only those with traffic."""
        return dict(self._buckets(start, end, bucket))

    def _buckets(self, start: int, end: int, bucket: int) -> Iterator[tuple[int, Hits]]:
        at, last = self._first_from(start), self._first_from(end)
        while at < last:
            number = (self._seconds[at] * SECOND_NS - start) // bucket
            following = min(last, self._first_from(start + (number + 1) * bucket))
            yield number, self._sum(at, following)
            at = following

    def _first_from(self, wall_ns: int) -> int:
        """The place of the first second that does not begin before a moment."""
        return bisect_left(self._seconds, -(-wall_ns // SECOND_NS))

    def _place(self, second: int) -> int:
        """Where a second stands, which is about to change."""
        if not self._seconds or second > self._seconds[-1]:
            if len(self._seconds) >= MAX_SECONDS:
                self._forget(MAX_SECONDS // 10)
            at = len(self._seconds)
        else:
            at = bisect_left(self._seconds, second)
        if at == len(self._seconds) or self._seconds[at] != second:
            # Behind the last one, but where a clock was set back.
            self._seconds.insert(at, second)
            self._hits.insert(at, Hits())
        del self._before[at + 1 :]
        return at

    def _forget(self, count: int) -> None:
        del self._seconds[:count], self._hits[:count], self._before[1:]

    def _sum(self, first: int, end: int) -> Hits:
        """Of the seconds from one place to another (not in it)."""
        before = self._before
        for hits in self._hits[len(before) - 1 :]:
            prompt, gpu, cpu = before[-1]
            before.append((prompt + hits.prompt_tokens, gpu + hits.gpu_hit_tokens, cpu + hits.cpu_hit_tokens))
        low, high = before[first], before[max(first, end)]
        return Hits(high[0] - low[0], high[1] - low[1], high[2] - low[2])
