"""How a chain of block hashes lies in the KV-cache groups of a shadow: names of blocks, and the longest hit on which
all groups agree, as vLLM's coordinator finds it.

Pure: standard library only. All positions are in hash blocks unless they are called an index, which counts blocks of a
group.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A KV-cache group that a hit must satisfy. `ratio`: hash blocks in one of its blocks. `needed`: how many of its
    last blocks a hit needs; None for all of them (full attention)."""

    number: int
    ratio: int
    needed: int | None


def key_of(chain: Sequence[bytes], group: GroupShape, index: int) -> bytes:
    """The name of a group's block: the last of the hashes in it covers it whole."""
    return chain[(index + 1) * group.ratio - 1] + group.number.to_bytes(4, "big")


class Groups:
    """The groups of one engine.

    Attributes:
        in_order: by number, as vLLM walks them when it copies.
        alignment: hits end, and hits behind a hit begin, at multiples of this.
        width: how many numbers there are.
    """

    def __init__(self, groups: Sequence[GroupShape]) -> None:
        self._full_first = list(groups)
        self.in_order = sorted(groups, key=lambda g: g.number)
        self.alignment = lcm(*(g.ratio for g in groups))
        self.width = max((g.number for g in groups), default=-1) + 1

    def longest_hit(self, chain: Sequence[bytes], start: int, usable: int, resident: Container[bytes]) -> int:
        """Up to where a hit that begins at `start` goes; `start` where there is none."""
        if start % self.alignment:
            return start
        end = usable // self.alignment * self.alignment
        while end > start:
            agreed = min(_hit_of(chain, group, start, end, resident) for group in self._full_first)
            agreed = agreed // self.alignment * self.alignment
            if agreed == end:
                return end
            end = agreed
        return start

    def keys_of_hit(self, chain: Sequence[bytes], start: int, end: int) -> list[bytes]:
        """The blocks that a hit is copied from, in vLLM's order. Of a window only what lies in it."""
        keys: list[bytes] = []
        for group in self.in_order:
            first, last = start // group.ratio, -(-end // group.ratio)
            if group.needed is not None:
                first = max(first, last - group.needed)
            keys += [key_of(chain, group, index) for index in range(first, last)]
        return keys


def _hit_of(chain: Sequence[bytes], group: GroupShape, start: int, end: int, resident: Container[bytes]) -> int:
    first, last = start // group.ratio, end // group.ratio
    if group.needed is None:
        index = first
        while index < last and key_of(chain, group, index) in resident:
            index += 1
        return index * group.ratio
    num_there = 0
    for index in range(last - 1, first - 1, -1):
        if key_of(chain, group, index) not in resident:
            num_there = 0
            continue
        num_there += 1
        if num_there >= group.needed:
            return (index + num_there) * group.ratio
    return (first + num_there) * group.ratio
