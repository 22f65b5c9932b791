"""The clairvoyant bound: how many prompt blocks could have been found at best. Pure."""

from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush

from connector.replay.history import Asked, History

NEVER = -1


def best_hit_blocks(history: Iterable[tuple[bool, Asked]], capacity: int) -> int:
    """How many blocks of prompts can have been found at most, by whatever policy, by requests that arrive and end in
    this order.

    What it bounds: GPU and CPU tier together, as one cache that holds `capacity` blocks at any time, where a block may
    be kept or refused as one likes, at no cost. Blocks of requests that are between arrival and end lie outside of it,
    are found by others from the arrival on, and take none of its places; a real engine has them computed later and
    needs places for them. So no policy finds more on this sequence. A closed loop under another policy may arrive in
    another order, whose own bound is a little different.

    How: a block is worth keeping from the end of the last request that has it to the arrival of the next that asks for
    it. Of such intervals as many as possible are kept by giving up, whenever there are too many, the one that ends
    last (Belady's MIN, with refusal). Which of two that end alike makes no difference to the number. All who ask for a
    block ask for what lies before it too, so with the deeper one given up whole prefixes are kept: what is counted
    block by block can be found without a gap.
    """
    moments = list(history)
    next_use = _next_uses(moments)
    running: Counter[bytes] = Counter()
    kept: dict[bytes, int] = {}
    latest: list[tuple[int, bytes]] = []
    num_hits = 0
    for moment, (is_arrival, asked) in enumerate(moments):
        if is_arrival:
            for key in asked.usable:
                num_hits += running[key] > 0 or kept.pop(key, NEVER) != NEVER
            # The prompt's last blocks may be full and yet not usable by this request.
            running.update(asked.usable)
            continue
        running.subtract(asked.usable)
        for key in asked.all:
            if running[key] > 0:
                continue
            del running[key]
            use = next_use[moment].get(key, NEVER)
            if use != NEVER:
                kept[key] = use
                heappush(latest, (-use, key))
        while len(kept) > capacity:
            use, key = heappop(latest)
            if kept.get(key) == -use:
                del kept[key]
    return num_hits


def _next_uses(moments: list[tuple[bool, Asked]]) -> dict[int, dict[bytes, int]]:
    """For each end: when each of its blocks is asked for next."""
    coming: dict[bytes, int] = {}
    found: dict[int, dict[bytes, int]] = {}
    for moment in range(len(moments) - 1, -1, -1):
        is_arrival, asked = moments[moment]
        if is_arrival:
            coming.update(dict.fromkeys(asked.usable, moment))
        else:
            found[moment] = {key: coming[key] for key in asked.all if key in coming}
    return found


def best_hit_tokens(history: History, capacity: int) -> int:
    """The bound in tokens of prompts."""
    return best_hit_blocks(history, capacity) * history.block_size
