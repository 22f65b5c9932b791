"""How a chain of block hashes lies in the KV-cache groups of a shadow: names of blocks, and the longest hit on which
all groups agree, as vLLM's coordinator finds it.

Pure: standard library only. All positions are in hash blocks unless they are called an index, which counts blocks of a
group.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from math import lcm


@dataclass(frozen=True, slots=True)
class GroupShape:
    """A KV-cache group that a hit must satisfy. `ratio`: hash blocks in one of its blocks. `needed`: how many of its
    last blocks a hit needs; None for all of them (full attention). `drops_last`: a draft head (EAGLE, MTP) has the last
    block that is found computed again."""

    number: int
    ratio: int
    needed: int | None
    drops_last: bool = False


class Line:
    """Block hashes that follow one another, and the names that their blocks have in each group. It only grows: several
    chains are beginnings of one line, and whoever follows many tiers names each block once for all of them.

    Attributes:
        hashes: from the head on.
        keys: by group number; a name is the last of the hashes in a block, which covers it whole, with the group's
            number in four bytes.
    """

    __slots__ = ("_groups", "hashes", "keys")

    def __init__(self, groups: Sequence[GroupShape], hashes: Iterable[bytes] = ()) -> None:
        self._groups = groups
        self.hashes: list[bytes] = []
        self.keys: list[list[bytes]] = [[] for _ in range(max((g.number for g in groups), default=-1) + 1)]
        self.extend(hashes)

    def branch(self, length: int) -> "Line":
        """A line of its own with the first `length` hashes of this one."""
        line = Line(self._groups)
        line.hashes = self.hashes[:length]
        for group in self._groups:
            line.keys[group.number] = self.keys[group.number][: length // group.ratio]
        return line

    def extend(self, hashes: Iterable[bytes]) -> None:
        """Go on with these."""
        self.hashes += hashes
        for group in self._groups:
            keys, suffix = self.keys[group.number], group.number.to_bytes(4, "big")
            ends = range((len(keys) + 1) * group.ratio - 1, len(self.hashes), group.ratio)
            keys += [self.hashes[end] + suffix for end in ends]


@dataclass(frozen=True, slots=True)
class Chain:
    """The first `length` hashes of a line."""

    line: Line
    length: int

    def __len__(self) -> int:
        return self.length


def chain_of(groups: Sequence[GroupShape], hashes: Sequence[bytes]) -> Chain:
    """A chain with a line of its own."""
    return Chain(Line(groups, hashes), len(hashes))


class _Joined:
    """Groups of one shape, which vLLM looks up together: a block is there where all of them have it."""

    def __init__(self, shape: GroupShape) -> None:
        self.ratio, self.needed = shape.ratio, shape.needed
        self.drops_last = False
        self.numbers: list[int] = []

    def has(self, keys: Sequence[Sequence[bytes]], index: int, resident: Container[bytes]) -> bool:
        return all(keys[number][index] in resident for number in self.numbers)


class Groups:
    """The groups of one engine.

    Attributes:
        in_order: by number, as vLLM walks them when it copies.
        alignment: hits end, and hits behind a hit begin, at multiples of this.
        width: how many numbers there are.
    """

    def __init__(self, groups: Sequence[GroupShape]) -> None:
        self.in_order = sorted(groups, key=lambda g: g.number)
        self.alignment = lcm(*(g.ratio for g in groups))
        self.width = max((g.number for g in groups), default=-1) + 1
        joined: dict[tuple[int, int | None], _Joined] = {}
        for group in sorted(groups, key=lambda g: g.needed is not None):
            same = joined.setdefault((group.ratio, group.needed), _Joined(group))
            same.numbers.append(group.number)
            same.drops_last |= group.drops_last
        self._joined = list(joined.values())
        # vLLM's coordinator of one group lets a draft head look no further than the hit may go.
        self._margin = len(groups) > 1

    def longest_hit(self, chain: Chain, start: int, usable: int, known: int, resident: Container[bytes]) -> int:
        """Up to where a hit that begins at `start` goes; `start` where there is none. `usable`: how far it may go;
        `known`: hashes that the request had when it was looked up, behind which no draft head looks."""
        if start % self.alignment or usable <= start:
            return start
        keys = chain.line.keys
        if len(self._joined) == 1 and not self._margin:
            return self._found(keys, self._joined[0], start, usable, resident, self._joined[0].drops_last)
        end, known = usable, min(known, len(chain))
        verified: set[int] = set()
        full: dict[int, int] = {}
        while True:
            agreed = end
            for n, group in enumerate(self._joined):
                if n in full:
                    agreed = min(agreed, full[n])
                    continue
                drops = group.drops_last and n not in verified
                limit = min(agreed + group.ratio, known) if drops else agreed
                found = self._found(keys, group, start, limit, resident, drops)
                if drops:
                    verified.add(n)
                elif found < agreed:
                    verified.clear()
                agreed = found
                if group.needed is None:
                    full[n] = found
            if agreed >= end:
                return end
            end = agreed
            if len(self._joined) == 2 and full:
                return end

    def _found(
        self,
        keys: Sequence[Sequence[bytes]],
        group: _Joined,
        start: int,
        limit: int,
        resident: Container[bytes],
        drops: bool,
    ) -> int:
        """What a group has, from `start` on and no further than `limit`, less what is computed again."""
        ratio = group.ratio
        first, last = start // ratio, limit // ratio
        end = first
        if group.needed is None:
            if len(group.numbers) == 1:
                names = keys[group.numbers[0]]
                while end < last and names[end] in resident:
                    end += 1
            else:
                while end < last and group.has(keys, end, resident):
                    end += 1
        else:
            end = self._last_window(keys, group, first, last, resident, drops)
        if drops and end > first:
            end -= 1
        return max(start, end * ratio // self.alignment * self.alignment)

    def _last_window(
        self,
        keys: Sequence[Sequence[bytes]],
        group: _Joined,
        first: int,
        last: int,
        resident: Container[bytes],
        drops: bool,
    ) -> int:
        assert group.needed is not None
        needed = group.needed + drops
        num_there = 0
        for index in range(last - 1, first - 1, -1):
            if not group.has(keys, index, resident):
                num_there = 0
                continue
            if not num_there and (index + 1 - drops) * group.ratio % self.alignment:
                continue  # a hit does not end here
            num_there += 1
            if num_there >= needed:
                return index + num_there
        num_there = num_there * group.ratio // self.alignment * self.alignment // group.ratio
        return first + num_there

    def keys_of_hit(self, chain: Chain, start: int, end: int) -> list[bytes]:
        """The blocks that a hit is copied from, in vLLM's order. Of a window only what lies in it."""
        keys: list[bytes] = []
        for group in self.in_order:
            first, last = start // group.ratio, -(-end // group.ratio)
            if group.needed is not None:
                first = max(first, last - group.needed)
            keys += chain.line.keys[group.number][first:last]
        return keys
