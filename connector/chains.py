"""A tree of block hashes, in runs: who extends whom, who runs on it, how much of each run lies in which tier.

Pure: standard library only. A hash covers its whole prefix, so equal hashes at one position mean equal prefixes, and
the hashes of all prompts form one tree. A *chain* is a stretch of it without a branch; a branch splits it. A request
that goes on from the end of a chain extends that chain, so a conversation is one chain without any id for it.

Of each chain a tier holds the first so many blocks (`counts`, by view). That is all that there is to say as long as
blocks leave from the end: no hole can form. Blocks that no tier holds are ghosts; they are remembered so that their
coming back is noticed, and the oldest are dropped beyond a bound.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

Key = Hashable


@dataclass(slots=True)
class Session:
    """What is known of one of the clients' sessions.

    Attributes:
        num_turns: the number of its last turn, from 1; 0 before the first one.
        end: the last block of what its turn left that ended last; None where there is none.
        is_one: as far as is known it is one conversation, and not, say, all those of a user.
    """

    num_turns: int = 0
    end: Key | None = None
    is_one: bool = True


class Chain:
    """A run of blocks without a branch.

    Attributes:
        keys: block hashes, the first at position `start` of its prompts.
        parent, children: runs that end where this one starts, or start where it ends; children by their first key.
        num_owners: unfinished requests whose prompt or output goes through it.
        num_waiting: those of them that have not begun to run.
        paths: those that end in it.
        last_used: when a request last arrived at it or ended on it, in seconds.
        num_turns: how many requests came for it.
        is_given_up: blocks of it went for others that were worth more, and nobody has come for it since.
        number: the order in which chains were first seen.
        counts: by view, how many of its first blocks a tier holds.
        num_kids: by view, how many of its children a tier holds something of.
    """

    __slots__ = (
        "age_bucket",
        "children",
        "counts",
        "idle_class",
        "idle_since",
        "is_given_up",
        "keys",
        "last_used",
        "num_kids",
        "num_owners",
        "num_turns",
        "num_waiting",
        "number",
        "parent",
        "paths",
        "start",
    )

    def __init__(self, start: int, parent: "Chain | None", number: int, now: float, num_views: int) -> None:
        self.keys: list[Key] = []
        self.start = start
        self.parent = parent
        self.children: dict[Key, Chain] = {}
        self.num_owners = 0
        self.num_waiting = 0
        self.paths: set[Path] = set()
        self.last_used = now
        self.num_turns = 1
        self.is_given_up = False
        self.number = number
        self.counts = [0] * num_views
        self.num_kids = [0] * num_views
        self.idle_since: float | None = None
        self.age_bucket = 0
        self.idle_class = 0

    def __repr__(self) -> str:
        return f"Chain({self.number}: {self.start}+{len(self.keys)}, {self.counts})"


class Path:
    """Where an unfinished request stands in the tree: on the first `offset` blocks of `chain`, and all before it.

    Attributes:
        is_waiting: the request has not begun to run.
        rest: what its arrival split off the chain that it came for.
        num_turns: of what it goes on with.
        session: what is known of the client's session; None where it named none.
    """

    __slots__ = ("chain", "is_waiting", "num_turns", "offset", "rest", "session")

    def __init__(self, chain: Chain, offset: int) -> None:
        self.chain = chain
        self.offset = offset
        self.is_waiting = False
        self.rest: Chain | None = None
        self.num_turns = 1
        self.session: Session | None = None

    @property
    def length(self) -> int:
        """Blocks from the head."""
        return self.chain.start + self.offset

    def chains(self) -> list[Chain]:
        """All chains of the path, from the head on."""
        found: list[Chain] = []
        chain = self.chain
        while chain.parent is not None:
            found.append(chain)
            chain = chain.parent
        found.reverse()
        return found


class ChainTree:
    """All chains that are remembered.

    Args:
        num_views: how many tiers are followed.
        max_blocks: how many blocks are remembered, ghosts included, beyond those on which requests run.
        on_split: told of (head, rest) when a chain was split; `rest` is the object that there was.
        on_dropped: told of a chain that is forgotten, when nothing hangs on its parent by it any more.
    """

    def __init__(
        self,
        num_views: int,
        max_blocks: int,
        *,
        on_split: Callable[[Chain, Chain], object] = lambda head, rest: None,
        on_dropped: Callable[[Chain, float], object] = lambda chain, now: None,
    ) -> None:
        self._num_views = num_views
        self._max_blocks = max_blocks
        self._on_split = on_split
        self._on_dropped = on_dropped
        self._where: dict[Key, Chain] = {}
        self._next_number = 1
        self._root = Chain(0, None, 0, 0.0, num_views)
        self._leaves: list[tuple[float, int, Chain]] = []
        self.num_chains = 0

    def __len__(self) -> int:
        """Blocks that are remembered."""
        return len(self._where)

    def __contains__(self, key: Key) -> bool:
        return key in self._where

    def find(self, key: Key) -> Chain | None:
        return self._where.get(key)

    # --- requests ---------------------------------------------------------------------------------------------------

    def arrive(self, keys: Sequence[Key]) -> Path:
        """A request arrives with these blocks. The path goes as far as they are known: its last chain is split where
        they end.

        O(log blocks) to find the place: what is known of a prompt is always its head.
        """
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high + 1) // 2
            if keys[middle - 1] in self._where:
                low = middle
            else:
                high = middle - 1
        chain = self._where[keys[low - 1]] if low else self._root
        offset = low - chain.start
        rest = None
        if offset < len(chain.keys):
            rest = chain
            chain = self._split(chain, offset)
        path = Path(chain, offset)
        path.rest = rest
        chain.paths.add(path)
        step: Chain | None = chain
        while step is not None:
            step.num_owners += 1
            step = step.parent
        return path

    def advance(self, path: Path, key: Key, now: float) -> Chain:
        """The path goes on by one block. Returns the chain that holds it."""
        chain, offset = path.chain, path.offset
        if offset < len(chain.keys):
            if chain.keys[offset] == key:
                path.offset += 1
                return chain
            chain = self._split(chain, offset)
        child = chain.children.get(key)
        if child is None and (chain is self._root or chain.children):
            child = chain.children[key] = Chain(path.length, chain, self._next_number, now, self._num_views)
            child.keys.append(key)
            child.num_turns = path.num_turns
            self._where[key] = child
            self._next_number += 1
            self.num_chains += 1
        elif child is None:
            chain.keys.append(key)
            self._where[key] = chain
            path.offset += 1
            return chain
        chain.paths.discard(path)
        path.chain, path.offset = child, 1
        child.paths.add(path)
        child.num_owners += 1
        return child

    def wait(self, path: Path) -> None:
        """The request waits for its turn: its prompt is known, and nothing of it runs yet."""
        assert not path.is_waiting
        path.is_waiting = True
        for chain in path.chains():
            chain.num_waiting += 1

    def begin(self, path: Path) -> None:
        """The request runs from now on."""
        if path.is_waiting:
            path.is_waiting = False
            for chain in path.chains():
                chain.num_waiting -= 1

    def leave(self, path: Path, now: float) -> None:
        """The request is over."""
        self.begin(path)
        path.chain.paths.discard(path)
        step: Chain | None = path.chain
        while step is not None:
            step.num_owners -= 1
            step = step.parent
        self.note_leaf(path.chain)

    def _split(self, chain: Chain, at: int) -> Chain:
        """The first `at` blocks become a chain of their own, which is returned."""
        assert 0 < at < len(chain.keys)
        assert chain.parent is not None
        head = Chain(chain.start, chain.parent, chain.number, chain.last_used, self._num_views)
        head.keys = chain.keys[:at]
        head.num_turns = chain.num_turns
        head.is_given_up = chain.is_given_up
        del chain.keys[:at]
        for key in head.keys:
            self._where[key] = head
        chain.parent.children[head.keys[0]] = head
        head.children[chain.keys[0]] = chain
        chain.parent, chain.start = head, head.start + at
        moved = {path for path in chain.paths if path.offset <= at}
        head.num_owners = chain.num_owners
        head.num_waiting = chain.num_waiting
        for path in chain.paths - moved:
            path.offset -= at
        for path in moved:
            path.chain = head
        head.paths = moved
        chain.paths -= moved
        chain.num_owners -= len(moved)
        chain.num_waiting -= sum(path.is_waiting for path in moved)
        for view, count in enumerate(chain.counts):
            head.counts[view] = min(count, at)
            chain.counts[view] = count - head.counts[view]
            head.num_kids[view] = int(chain.counts[view] > 0)
        self.num_chains += 1
        self._on_split(head, chain)
        return head

    # --- memory -----------------------------------------------------------------------------------------------------

    def note_leaf(self, chain: Chain) -> None:
        """The chain may be forgotten some time: it is idle."""
        if chain is not self._root and not chain.children and not chain.num_owners:
            heappush(self._leaves, (chain.last_used, chain.number, chain))
            if len(self._leaves) > 256 + 4 * self.num_chains:
                self._leaves = [e for e in self._leaves if e[0] == e[2].last_used and self._is_leaf(e[2])]
                heapify(self._leaves)

    def forget(self, release: Callable[[Chain, int], int], now: float) -> None:
        """Drop the oldest idle ghosts until the bound holds.

        Args:
            release: asked how many blocks to keep of a chain; it takes what is beyond out of every view but the one
                that holds bytes.
        """
        kept: list[tuple[float, int, Chain]] = []
        while len(self._where) > self._max_blocks and self._leaves:
            entry = heappop(self._leaves)
            chain = entry[2]
            if entry[0] != chain.last_used or not self._is_leaf(chain):
                continue
            num_kept = release(chain, len(self._where) - self._max_blocks)
            for key in chain.keys[num_kept:]:
                del self._where[key]
            if num_kept:
                del chain.keys[num_kept:]
                kept.append(entry)
                continue
            parent = chain.parent
            assert parent is not None
            del parent.children[chain.keys[0]]
            self._on_dropped(chain, now)
            chain.keys.clear()
            self.num_chains -= 1
            self.note_leaf(parent)
        for entry in kept:
            heappush(self._leaves, entry)

    def _is_leaf(self, chain: Chain) -> bool:
        return bool(chain.keys) and not chain.children and not chain.num_owners

    def __iter__(self) -> Iterator[Chain]:
        """Every chain once. For tests and pictures: it costs what it shows."""
        todo = list(self._root.children.values())
        while todo:
            chain = todo.pop()
            yield chain
            todo += chain.children.values()
