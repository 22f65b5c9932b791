"""When does a chain that rests come back? Learned from what came back, and from what did not.

Pure: standard library only. Chains fall into classes by how often they were asked for; those that others hang on, heads
that prompts share, are a class of their own. For each class and each
stretch of idle time (the buckets grow by the square root of two) the rate of coming back is events over time at risk,
drawn towards the rate of all classes where little was seen. From the rates follows what a chain of a class and an age
is worth: the expected value of exp(-X / H), where X is the time until it comes back and H a horizon, the 70th
percentile of the ages at which chains came back.

Time at risk is counted as it passes: chains that rest stand in one queue a bucket, in the order in which they came to
rest, so a look costs what has moved on since the last one and not a look at every chain.
"""

import math
from bisect import bisect_right
from collections import deque
from itertools import pairwise

from connector.chains import Chain

FIRST_SECONDS, LAST_SECONDS = 0.5, 2_048.0
NUM_CLASSES = 6
SHARED = NUM_CLASSES - 1
"""The class of what others hang on."""
PRIOR_EVENTS = 5.0
DECAY = 0.997
REQUESTS_BETWEEN_DECAYS = 20
HORIZON_PERCENTILE = 0.7

EDGES: list[float] = [0.0] + [
    FIRST_SECONDS * 2 ** (n / 2) for n in range(round(2 * math.log2(LAST_SECONDS / FIRST_SECONDS)) + 1)
]
"""Where each bucket of idle time starts, in seconds; the last one has no end."""
NUM_BUCKETS = len(EDGES)


def class_of(chain: Chain) -> int:
    return SHARED if chain.children else min(chain.num_turns, SHARED - 1)


def bucket_of(age: float) -> int:
    return max(0, bisect_right(EDGES, age) - 1)


class ReuseCurve:
    """What was learned.

    Attributes:
        num_reuses: chains that came back, in all.
        horizon: seconds.
        worth: by class and bucket of idle time, from 0 to 1.
    """

    def __init__(self) -> None:
        self.num_reuses = 0
        self.horizon = 60.0
        self.events = [[0.0] * NUM_BUCKETS for _ in range(NUM_CLASSES)]
        self.exposure = [[0.0] * NUM_BUCKETS for _ in range(NUM_CLASSES)]
        self.worth = [[1.0] * NUM_BUCKETS for _ in range(NUM_CLASSES)]
        self._at_risk = [[0] * NUM_BUCKETS for _ in range(NUM_CLASSES)]
        self._resting: list[deque[tuple[float, Chain]]] = [deque() for _ in range(NUM_BUCKETS - 1)]
        self._num_requests = 0

    # --- what happens -----------------------------------------------------------------------------------------------

    def rests(self, chain: Chain, now: float) -> None:
        """Nobody runs on the chain any more."""
        self.goes_on(chain, now)
        chain.idle_since, chain.age_bucket, chain.idle_class = now, 0, class_of(chain)
        self._at_risk[chain.idle_class][0] += 1
        self._resting[0].append((now, chain))

    def comes_back(self, chain: Chain, now: float) -> None:
        """A request came for it."""
        if chain.idle_since is not None:
            bucket = self._leave(chain, now)
            self.events[chain.idle_class][bucket] += 1
            self.num_reuses += 1

    def goes_on(self, chain: Chain, now: float) -> None:
        """It does not rest any more, and was not asked for itself, or is forgotten."""
        if chain.idle_since is not None:
            self._leave(chain, now)

    def request_came(self, now: float) -> None:
        """Every few requests the counts age, and the worths are worked out anew."""
        self._num_requests += 1
        if self._num_requests % REQUESTS_BETWEEN_DECAYS:
            return
        self._move_on(now)
        for rows in (self.events, self.exposure):
            for row in rows:
                for b in range(NUM_BUCKETS):
                    row[b] *= DECAY
        self._work_out()

    # --- what follows -----------------------------------------------------------------------------------------------

    def score(self, chain: Chain, now: float) -> float:
        """What keeping it is worth now. One on which a request runs has age 0."""
        if chain.num_waiting:
            return 1.0
        age = 0.0 if chain.num_owners else now - chain.last_used
        return self.worth[class_of(chain)][bucket_of(age)]

    def _leave(self, chain: Chain, now: float) -> int:
        assert chain.idle_since is not None
        self._catch_up(chain, now)
        bucket, kind = chain.age_bucket, chain.idle_class
        self.exposure[kind][bucket] += max(0.0, now - chain.idle_since - EDGES[bucket])
        self._at_risk[kind][bucket] -= 1
        chain.idle_since = None
        return bucket

    def _catch_up(self, chain: Chain, now: float) -> None:
        """Count the buckets that the chain has rested through since it was last looked at."""
        assert chain.idle_since is not None
        kind, old, new = chain.idle_class, chain.age_bucket, bucket_of(now - chain.idle_since)
        if new > old:
            row = self.exposure[kind]
            for b in range(old, new):
                row[b] += EDGES[b + 1] - EDGES[b]
            self._at_risk[kind][old] -= 1
            self._at_risk[kind][new] += 1
            chain.age_bucket = new

    def _move_on(self, now: float) -> None:
        for b in range(NUM_BUCKETS - 1):
            queue, edge = self._resting[b], EDGES[b + 1]
            while queue and now - queue[0][0] >= edge:
                since, chain = queue.popleft()
                if chain.idle_since == since:
                    self._catch_up(chain, now)
                    if chain.age_bucket < NUM_BUCKETS - 1:  # from the last one nobody moves on
                        self._resting[chain.age_bucket].append((since, chain))

    def _work_out(self) -> None:
        events = [math.fsum(column) for column in zip(*self.events, strict=True)]
        if not sum(events):
            return
        risks = [self._risk(kind) for kind in range(NUM_CLASSES)]
        # A head that all prompts share comes back all the time, which says nothing of conversations.
        of_ends = self._pool(self.events[:SHARED], risks[:SHARED])
        of_all = self._pool(self.events, risks)
        self.horizon = self._percentile(events)
        discount = 1 / self.horizon
        for kind in range(NUM_CLASSES):
            value = 0.0
            pooled = of_all if kind == SHARED else of_ends
            for b in reversed(range(NUM_BUCKETS)):
                rate = self._rate(self.events[kind][b], risks[kind][b], pooled[b])
                total = rate + discount
                if b == NUM_BUCKETS - 1:
                    value = rate / total
                else:
                    stays = math.exp(-total * (EDGES[b + 1] - EDGES[b]))
                    value = rate / total * (1 - stays) + stays * value
                self.worth[kind][b] = value

    @staticmethod
    def _pool(events: list[list[float]], risks: list[list[float]]) -> list[float]:
        """Returns a second at risk, by bucket, of these classes together."""
        columns = zip(zip(*events, strict=True), zip(*risks, strict=True), strict=True)
        return [math.fsum(e) / math.fsum(x) if math.fsum(x) else 0.0 for e, x in columns]

    def _risk(self, kind: int) -> list[float]:
        """Seconds at risk. Who is in a bucket has, on the average, half of it behind him."""
        widths = [b - a for a, b in pairwise(EDGES)] + [LAST_SECONDS]
        return [x + n * w / 2 for x, n, w in zip(self.exposure[kind], self._at_risk[kind], widths, strict=True)]

    @staticmethod
    def _rate(events: float, seconds: float, pooled: float) -> float:
        if not pooled:
            return 0.0
        return (events + PRIOR_EVENTS) / (seconds + PRIOR_EVENTS / pooled)

    @staticmethod
    def _percentile(events: list[float]) -> float:
        wanted = HORIZON_PERCENTILE * sum(events)
        for b, count in enumerate(events):
            if count >= wanted and count:
                end = EDGES[b + 1] if b + 1 < NUM_BUCKETS else 2 * EDGES[b]
                return max(FIRST_SECONDS, EDGES[b] + (end - EDGES[b]) * wanted / count)
            wanted -= count
        return LAST_SECONDS
