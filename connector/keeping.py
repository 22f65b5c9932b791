"""`adaptive` bound to the blocks of a tier: which block each chain's end lies in, and which place a newcomer gets.

Pure: standard library and pure modules. The engine binds it to vLLM's block pool (`keeper`), a shadow to its own blocks
(`shadow_blocks`): both decide with this module and with `retention`. Blocks of the full-attention group are what the
tree of chains counts; what other groups hold of the same tokens goes with them. A block that comes in gets its place
at the front of the free queue, where the pool takes its next block from, so allocation and references stay the pool's.

What lies in the pool and the tree does not count is a *stray*: there before `adaptive` was switched on, behind a
hole, of a session, or left over when its chain's block went. Strays leave first, in the pool's order; a request that
goes through one takes it into the tree.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from connector.admission import FreeQueue
from connector.chains import Chain, Key, Path
from connector.retention import RESTORE_MARGIN, STORE_MARGIN, Retention
from connector.reuse import ReuseCurve

REFUSALS_PER_STEP = 16

Keys = Sequence[Key]
"""A request's keys in the full-attention group, as far as they are known, head first."""


class Pool(Protocol):
    """The blocks of a tier. A block has `block_id`, `block_hash` (None: it holds nothing) and `ref_cnt` (free: 0)."""

    @property
    def queue(self) -> FreeQueue:
        """Free blocks, the next one that is taken first."""
        ...

    def block_of(self, key: bytes) -> Any:
        """The block that answers for a key; None where there is none."""
        ...

    def referenced(self) -> Iterable[Any]:
        """Blocks that hold something and are not free, by id."""
        ...


class Refusal(NamedTuple):
    """A block that may not come in. `path`: None where the request is followed by none; `chain`: None where the tree
    does not know the block."""

    position: int
    path: Path | None
    chain: Chain | None
    is_behind_hole: bool
    is_given_up: bool = False
    """A re-store of what went for others that were worth more."""


class Keeping:
    """Decides which blocks of a tier go, and which may come in.

    Args:
        block_sizes: of each group, in one unit.
        group: the full-attention group that the tree counts.
        capacity: blocks of the tier.
        clock: seconds.
        curve: what is known already.
    """

    def __init__(
        self,
        pool: Pool,
        block_sizes: Mapping[int, int],
        group: int,
        capacity: int,
        clock: Callable[[], float],
        curve: ReuseCurve | None = None,
    ) -> None:
        self._pool = pool
        self._queue = pool.queue
        self._sizes = block_sizes
        self._group = group
        self._size = block_sizes[group]
        self._clock = clock
        self._paths: dict[str, Path] = {}
        self._strays: dict[int, Any] = {}
        self._pinned_strays: dict[int, Any] = {}
        # Blocks of other groups, by the key of the block that they go with.
        self._hung: dict[bytes, list[bytes]] = {}
        self._hangs_on: dict[bytes, bytes] = {}
        self._refused: dict[str, int] = {}
        self._version = 0
        self._refusals_left = self._restores_left = REFUSALS_PER_STEP
        self._last: Any = self._queue.fake_free_list_head
        # Blocks whose content is about to go: the pool takes them next.
        self._promised: dict[int, Any] = {}
        self.retention = Retention(capacity, self._may_leave, curve)
        # One look at the whole pool, when `adaptive` is switched on.
        self._strays.update((b.block_id, b) for b in self._free_blocks() if b.block_hash is not None)
        self._pinned_strays.update((b.block_id, b) for b in pool.referenced())

    # --- requests ---------------------------------------------------------------------------------------------------

    def follow(self, request_id: str, keys: Keys, session_id: str | None = None) -> None:
        """A request was taken in, with the keys of its prompt's full blocks, and the session's id where the client gave
        one. Nothing happens where it is followed."""
        if request_id in self._paths:
            return
        self._paths[request_id] = self.retention.arrive(keys, self._clock(), session_id)
        self._changed()

    def follows(self, request_id: str) -> bool:
        return request_id in self._paths

    def began(self, request_id: str) -> None:
        """The request has got its blocks: what it came for is no longer needed by somebody who waits."""
        path = self._paths.get(request_id)
        if path is not None and path.is_waiting:
            self.retention.begin(path)
            self._changed()

    def end(self, request_id: str, keys: Keys, num_full: int) -> None:
        """The request is over, with so many full blocks of the full-attention group computed."""
        self._refused.pop(request_id, None)
        path = self._paths.pop(request_id, None)
        if path is not None:
            # Also what was not looked at any more since the tier would have refused it: the guard's tiers would not.
            if num_full > path.length:
                self._pass(keys, path, num_full - 1)
            self.retention.leave(path, self._clock())
            self._changed()

    # --- the step ---------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self._refusals_left = self._restores_left = REFUSALS_PER_STEP
        self.begin_batch()

    def begin_batch(self) -> None:
        """What was promised has been allocated."""
        for block in self._promised.values():
            if block.ref_cnt == 0 and block.block_hash is not None:
                self._strays[block.block_id] = block
        self._promised.clear()
        self._last = self._queue.fake_free_list_head

    def must_wait(self, request_id: str) -> bool:
        """Whether the request's next block was refused, and nothing has changed since or enough were refused in this
        step."""
        version = self._refused.get(request_id)
        return version is not None and (version == self._version or not self.may_ask)

    @property
    def may_ask(self) -> bool:
        """Whether not yet so much was refused in this step that the rest has to wait."""
        return self._refusals_left > 0

    @property
    def may_restore(self) -> bool:
        """The same of re-stores: those that are refused keep no first store waiting."""
        return self._restores_left > 0

    def ask_again(self, request_id: str) -> None:
        """It is the last moment at which the request's blocks are on the GPU."""
        if self._refused.pop(request_id, None) is not None:
            self._refusals_left = max(self._refusals_left, 1)

    def references_changed(self) -> None:
        """Blocks were pinned or freed."""
        self.retention.live.unpark()
        self._strays.update(self._pinned_strays)
        self._pinned_strays.clear()
        self._changed()

    def stands(self, request_id: str, keys: Keys | None, group: int, index: int, key: bytes) -> int | None:
        """The request's block at `index` is ready, and the tier has it or is about to.

        Args:
            keys: None for a request that is not followed, as a session whose positions name no block.

        Returns:
            Its position; None where the request is not followed.
        """
        path = self._path_of(request_id, keys)
        if path is None or keys is None:
            return None
        if group == self._group:
            self._pass(keys, path, index)
        position = self._position(group, index)
        chain = self._chain_at(path, position)
        if chain is None:
            return position
        offset = position - chain.start
        if group == self._group:
            self._adopt(chain, offset + 1)
            return position
        block = self._pool.block_of(key)
        if block is not None and block.block_id in self._strays and self.retention.live.count(chain) > offset:
            del self._strays[block.block_id]
            self._hang(key, chain.keys[offset])
        return position

    def ask(
        self, request_id: str, keys: Keys | None, group: int, index: int, key: bytes, *, is_restore: bool = False
    ) -> Refusal | None:
        """Ask for a place for the request's block at `index`. Where there is one (None), it is the next that the pool
        gives. `keys`: as of `stands`."""
        path = self._path_of(request_id, keys)
        position = self._position(group, index)
        if path is None or keys is None:
            return None if self._place_for_stranger() else Refusal(position, None, None, False)
        if group == self._group:
            self._pass(keys, path, index)
        chain = self._chain_at(path, position)
        is_behind_hole = chain is None or self._is_behind_hole(chain, group, position)
        # What the rule itself took is not lost: to take it back would undo what was just decided. Where a place costs
        # nothing it may have that.
        is_given_up = is_restore and chain is not None and chain.is_given_up
        if (
            chain is None
            or is_behind_hole
            or not (
                self._place_for_stranger()
                if is_given_up
                else self._place(path, chain, RESTORE_MARGIN if is_restore else STORE_MARGIN)
            )
        ):
            if is_restore:
                self._restores_left -= not is_given_up
            else:
                self._refusals_left -= 1
                self._refused[request_id] = self._version
            return Refusal(position, path, chain, is_behind_hole, is_given_up)
        if group == self._group:
            self.retention.live.grow(chain, 1)
        else:
            self._hang(key, chain.keys[position - chain.start])
        return None

    def gave_up(self, request_id: str, group: int, index: int) -> bool:
        """Whether the request's block at `index` lies in a chain of which blocks went for others that were worth more,
        so that it is not to be copied again for this request."""
        path = self._paths.get(request_id)
        chain = None if path is None else self._chain_at(path, self._position(group, index))
        return chain is not None and chain.is_given_up

    def _pass(self, keys: Keys, path: Path, index: int) -> None:
        """The path goes on to the block at `index`, where it does not yet."""
        while path.length <= index:
            self.retention.advance(path, keys[path.length], self._clock())

    def _is_behind_hole(self, chain: Chain, group: int, position: int) -> bool:
        """Whether the tier lacks something that the block needs: all before it, or the block that it goes with."""
        live, offset = self.retention.live, position - chain.start
        if group != self._group:
            return live.count(chain) <= offset
        self._adopt(chain, offset)
        return live.count(chain) != offset or not self._is_whole(chain.parent)

    # --- what became of blocks --------------------------------------------------------------------------------------

    def gone(self, key: bytes, group: int, index: int) -> None:
        """The tier cannot answer for this key: it was evicted, or its copy failed."""
        on = self._hangs_on.pop(key, None)
        if on is not None:
            hung = self._hung[on]
            hung.remove(key)
            if not hung:
                del self._hung[on]
            return
        chain = self.retention.tree.find(key) if group == self._group else None
        if chain is None:
            return
        offset = index - chain.start
        live = self.retention.live
        count = live.count(chain)
        if offset >= count:
            return  # as it was decided
        self._strand_hung(key)
        self._strand(chain.keys[offset + 1 : count])
        live.shrink(chain, count - offset)
        self._strand_kids(chain)
        self._changed()

    def vacated(self, block_id: int) -> None:
        """A block of the tier holds nothing any more."""
        self._strays.pop(block_id, None)

    def found(self, key: bytes, group: int, index: int, block: Any) -> None:
        """A copy is over, and can be found from now on in this block."""
        if group == self._group:
            chain = self.retention.tree.find(key)
            is_counted = chain is not None and index - chain.start < self.retention.live.count(chain)
        else:
            is_counted = key in self._hangs_on
        # Of two blocks with the same content the later one is not needed.
        first = self._pool.block_of(key)
        if not is_counted or first.block_id != block.block_id:
            self._strays[block.block_id] = block

    # --- places -----------------------------------------------------------------------------------------------------

    def _place(self, path: Path, chain: Chain, margin: float) -> bool:
        if self._place_for_stranger():
            return True
        retention, now = self.retention, self._clock()
        victim = retention.victim(retention.live, retention.rule, path, chain, margin, now)
        if victim is None:
            return False
        key = victim.keys[retention.live.count(victim) - 1]
        assert isinstance(key, bytes)
        block = self._pool.block_of(key)
        assert block is not None
        retention.live.shrink(victim, 1)
        victim.is_given_up |= retention.rule == "worth"
        self._strand_hung(key)
        self._promise(block)
        self._exchanged(block, victim, chain, now)
        return True

    def _exchanged(self, block: Any, victim: Chain, incoming: Chain, now: float) -> None:
        """A block of `victim` goes for one of `incoming`: for who wants to know why."""

    def _place_for_stranger(self) -> bool:
        """A place that costs no chain anything: an empty block, or a stray."""
        block = self._last.next_free_block
        if block is not None and block is not self._queue.fake_free_list_tail and block.block_hash is None:
            self._last = block
            return True
        while self._strays:
            block_id = next(iter(self._strays))
            block = self._strays.pop(block_id)
            if block.ref_cnt:
                self._pinned_strays[block_id] = block
            elif block.block_hash is not None:
                self._promise(block)
                return True
        return False

    def _promise(self, block: Any) -> None:
        """Put a block where the pool takes its next one from."""
        self._queue.remove(block)
        self._queue.prepend_n([block])
        if self._last is self._queue.fake_free_list_head:
            self._last = block
        self._promised[block.block_id] = block

    # --- the tree and the pool --------------------------------------------------------------------------------------

    def _path_of(self, request_id: str, keys: Keys | None) -> Path | None:
        path = self._paths.get(request_id)
        if path is None and keys is not None:
            self.follow(request_id, keys)  # it ran before `adaptive` was switched on
            self.began(request_id)
            path = self._paths.get(request_id)
        return path

    def _position(self, group: int, index: int) -> int:
        """The full-attention block that a block of any group ends in."""
        return ((index + 1) * self._sizes[group] - 1) // self._size

    def _hang(self, key: bytes, on: Any) -> None:
        self._hung.setdefault(on, []).append(key)
        self._hangs_on[key] = on

    def _chain_at(self, path: Path, position: int) -> Chain | None:
        """The chain of the path that holds a position."""
        if position >= path.length:
            return None
        chain: Chain | None = path.chain
        while chain is not None and chain.start > position:
            chain = chain.parent
        return chain

    def _is_whole(self, chain: Chain | None) -> bool:
        return chain is None or chain.parent is None or self.retention.live.count(chain) == len(chain.keys)

    def _adopt(self, chain: Chain, upto: int) -> None:
        """Strays that close up to what the tree counts belong to it."""
        if chain.parent is not None and not self._is_whole(chain.parent):
            self._adopt(chain.parent, len(chain.parent.keys))
            if not self._is_whole(chain.parent):
                return
        live = self.retention.live
        while live.count(chain) < upto:
            key = chain.keys[live.count(chain)]
            assert isinstance(key, bytes)
            block = self._pool.block_of(key)
            if block is None or block.block_id in self._promised:
                return
            self._strays.pop(block.block_id, None)
            live.grow(chain, 1)

    def _strand(self, keys: Sequence[Any]) -> None:
        """These, as far as they are there, are counted no longer."""
        for key in keys:
            block = self._pool.block_of(key)
            if block is not None:
                self._strays[block.block_id] = block
            self._strand_hung(key)

    def _strand_hung(self, key: bytes) -> None:
        for other in self._hung.pop(key, ()):
            self._hangs_on.pop(other, None)
            block = self._pool.block_of(other)
            if block is not None:
                self._strays[block.block_id] = block

    def _strand_kids(self, chain: Chain) -> None:
        """What lies behind a hole is worth nothing until the hole is closed."""
        live = self.retention.live
        for child in chain.children.values():
            if count := live.count(child):
                self._strand_kids(child)
                self._strand(child.keys[:count])
                live.shrink(child, count)

    def _may_leave(self, chain: Chain) -> bool:
        key = chain.keys[self.retention.live.count(chain) - 1]
        assert isinstance(key, bytes)
        block = self._pool.block_of(key)
        return block is not None and block.ref_cnt == 0

    def _free_blocks(self) -> Iterator[Any]:
        block = self._queue.fake_free_list_head.next_free_block
        while block is not None and block is not self._queue.fake_free_list_tail:
            yield block
            block = block.next_free_block

    def _changed(self) -> None:
        self._version += 1
