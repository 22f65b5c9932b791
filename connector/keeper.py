"""`adaptive` in the engine: the pure rule of `retention`, bound to vLLM's block pool.

Engine ring. Blocks of the full-attention group are what the tree of chains counts; what other groups hold of the same
tokens goes with them. A block that comes in gets its place at the front of vLLM's free queue, where the pool takes
its next block from, so allocation and references stay vLLM's own, and vLLM's LRU goes on with the pool whenever
`adaptive` is switched off.

What lies in the pool and the tree does not count is a *stray*: there before `adaptive` was switched on, behind a
hole, of a session, or left over when its chain's block went. Strays leave first, in vLLM's order; a request that goes
through one takes it into the tree.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from connector.chains import Chain, Path
from connector.events import Item
from connector.layout import Layout
from connector.reasons import Asked, Exchange, Reasons
from connector.retention import RESTORE_MARGIN, STORE_MARGIN, Retention

if TYPE_CHECKING:
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request

REFUSALS_PER_STEP = 16


class _Keys(Sequence[bytes]):
    """A request's keys in the full-attention group, each made when it is asked for."""

    def __init__(self, hashes: "BlockHashList", group: int) -> None:
        self._hashes = hashes
        self._group = group

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, index: Any) -> Any:
        return make_block_hash_with_group_id(self._hashes[index], self._group)


class Keeper:
    """Decides which blocks of the tier go, and which may come in.

    Args:
        clock: seconds.
        tell: takes what is to be logged.
        before: what kept the tier until it was reset: what it has learned goes on.
    """

    def __init__(
        self,
        manager: SimpleCPUOffloadScheduler,
        layout: Layout,
        clock: Callable[[], float],
        tell: Callable[[Item], object],
        before: "Keeper | None" = None,
    ) -> None:
        self._pool = manager.cpu_block_pool
        self._queue = self._pool.free_block_queue
        self._layout = layout
        self._group = manager.fa_gidx
        self._size = layout.block_sizes[self._group]
        self._clock = clock
        self._paths: dict[str, Path] = {}
        self._strays: dict[int, None] = {}
        self._pinned_strays: list[int] = []
        # Blocks of other groups, by the key of the block that they go with.
        self._hung: dict[bytes, list[bytes]] = {}
        self._hangs_on: dict[bytes, bytes] = {}
        self._refused: dict[str, int] = {}
        self._version = 0
        self._refusals_left = REFUSALS_PER_STEP
        self._last: Any = self._queue.fake_free_list_head
        # Blocks whose content is about to go: the pool takes them next.
        self._promised: dict[int, Any] = {}
        # Those of them that were chosen by worth, by block.
        self._exchanges: dict[int, Exchange] = {}
        curve = before.retention.curve if before else None
        self.retention = Retention(self._pool.num_gpu_blocks - 1, self._may_leave, curve)
        self._reasons = Reasons(self.retention, tell, clock(), before._reasons.rule if before else "lru")
        # One look at the whole pool, when `adaptive` is switched on.
        self._strays.update((b.block_id, None) for b in self._free_blocks() if b.block_hash is not None)
        self._pinned_strays += [b.block_id for b in self._pool.blocks if b.ref_cnt and b.block_hash is not None]

    @staticmethod
    def why_not(manager: SimpleCPUOffloadScheduler, layout: Layout) -> str | None:
        """Why the models' groups cannot be kept by chains; None where they can."""
        if manager.fa_gidx not in layout.groups:
            return "the model has no full-attention group"
        if set(layout.groups) != set(manager.prefix_cacheable_group_ids):
            return "the model has groups whose blocks have no fixed positions (state-space layers)"
        return None

    # --- requests ---------------------------------------------------------------------------------------------------

    def arrived(self, request: "Request") -> None:
        if request.resumable or request.request_id in self._paths:
            return
        hashes = self._layout.hashes(request, self._group)
        self._paths[request.request_id] = self.retention.arrive(_Keys(hashes, self._group), self._clock())
        self._changed()
        self._reasons.arrived()

    def began(self, request_id: str) -> None:
        """The request has got its blocks: what it came for is no longer needed by somebody who waits."""
        path = self._paths.get(request_id)
        if path is not None and path.is_waiting:
            self.retention.begin(path)
            self._changed()

    def ended(self, request: "Request") -> None:
        request_id = request.request_id
        self._refused.pop(request_id, None)
        self._reasons.ended(request_id)
        path = self._paths.pop(request_id, None)
        if path is not None:
            # Also what was not looked at any more since the tier would have refused it: the guard's tiers would not.
            self._pass_all(request, path)
            self.retention.leave(path, self._clock())
            self._changed()

    # --- the step ---------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        self._refusals_left = REFUSALS_PER_STEP
        self.begin_batch()
        self._reasons.step_begins(self._clock)

    def begin_batch(self) -> None:
        """What was promised has been allocated."""
        for block in self._promised.values():
            if block.ref_cnt == 0 and block.block_hash is not None:
                self._strays[block.block_id] = None
        self._promised.clear()
        self._exchanges.clear()
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

    def ask_again(self, request_id: str) -> None:
        """It is the last moment at which the request's blocks are on the GPU."""
        if self._refused.pop(request_id, None) is not None:
            self._refusals_left = max(self._refusals_left, 1)

    def references_changed(self) -> None:
        """Blocks were pinned or freed."""
        self.retention.live.unpark()
        self._strays.update(dict.fromkeys(self._pinned_strays))
        self._pinned_strays.clear()
        self._changed()

    def lies_there(self, request: "Request", group: int, index: int, key: bytes) -> None:
        """The request's block at `index` is ready, and the tier has it or is about to."""
        path = self._path_of(request)
        if path is None:
            return
        if group == self._group:
            self._pass(request, path, index, key)
        position = self._position(group, index)
        self._reasons.passed(request.request_id, position)
        chain = self._chain_at(path, position)
        if chain is None:
            return
        offset = position - chain.start
        if group == self._group:
            self._adopt(chain, offset + 1)
            return
        block = self._block_of(key)
        if block is not None and block.block_id in self._strays and self.retention.live.count(chain) > offset:
            del self._strays[block.block_id]
            self._hang(key, chain.keys[offset])

    def _pass(self, request: "Request", path: Path, index: int, key: bytes) -> None:
        """The path goes on to the block at `index`, which is `key`, where it does not yet."""
        missing = index - path.length
        if missing < 0:
            return
        if not missing:
            self.retention.advance(path, key, self._clock())
            return
        hashes = self._layout.hashes(request, self._group)
        while path.length <= index:
            key = make_block_hash_with_group_id(hashes[path.length], self._group)
            self.retention.advance(path, key, self._clock())

    def _pass_all(self, request: "Request", path: Path) -> None:
        """The path goes on to the last full block that the request has computed."""
        computed = request.num_computed_tokens - request.num_output_placeholders
        hashes = self._layout.hashes(request, self._group)
        last = min(computed // self._size, len(hashes)) - 1
        if last >= path.length:
            self._pass(request, path, last, make_block_hash_with_group_id(hashes[last], self._group))

    def admit(
        self, request: "Request", group: int, index: int, key: bytes, *, num_ready: int = 1, is_restore: bool = False
    ) -> bool:
        """Whether a block may be copied to the tier. If so, its place is the next one that the pool gives. `num_ready`:
        this block and those behind it that will be asked for if it is."""
        path = self._path_of(request)
        if path is None:
            return self._place_for_stranger()
        if group == self._group:
            self._pass(request, path, index, key)
        position = self._position(group, index)
        chain = self._chain_at(path, position)
        is_behind_hole = chain is None or self._is_behind_hole(chain, group, position)
        if is_behind_hole or not self._place(path, chain, RESTORE_MARGIN if is_restore else STORE_MARGIN):
            self._refusals_left -= 1
            self._refused[request.request_id] = self._version
            if self._reasons.is_new(request.request_id, position, is_restore=is_restore):
                hashes = self._layout.hashes(request, group)
                num_ready = min(num_ready, len(hashes) - index)
                tail = hashes[index + num_ready - 1]
                asked = Asked(request.request_id, group, index, num_ready, hashes[index], tail, is_restore)
                self._reasons.refused(asked, path, chain, self._clock(), is_behind_hole=is_behind_hole)
            return False
        if group == self._group:
            self.retention.live.grow(chain, 1)
        else:
            self._hang(key, chain.keys[position - chain.start])
        self._reasons.admitted(request.request_id, is_restore=is_restore)
        return True

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

    def emptied(self, block_id: int) -> Exchange | None:
        """A block of the tier holds nothing any more. Returns why, where it was chosen by worth."""
        self._strays.pop(block_id, None)
        return self._exchanges.pop(block_id, None)

    def found(self, key: bytes, group: int, index: int, block_id: int) -> None:
        """A copy is over, and can be found from now on."""
        if group == self._group:
            chain = self.retention.tree.find(key)
            is_counted = chain is not None and index - chain.start < self.retention.live.count(chain)
        else:
            is_counted = key in self._hangs_on
        # Of two blocks with the same content the later one is not needed.
        if not is_counted or self._block_of(key).block_id != block_id:
            self._strays[block_id] = None

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
        block = self._block_of(key)
        assert block is not None
        retention.live.shrink(victim, 1)
        self._strand_hung(key)
        self._promise(block)
        exchange = self._reasons.exchange(victim, chain, now)
        if exchange is not None:
            self._exchanges[block.block_id] = exchange
        return True

    def _place_for_stranger(self) -> bool:
        """A place that costs no chain anything: an empty block, or a stray."""
        block = self._last.next_free_block
        if block is not None and block is not self._queue.fake_free_list_tail and block.block_hash is None:
            self._last = block
            return True
        while self._strays:
            block_id = next(iter(self._strays))
            del self._strays[block_id]
            block = self._pool.blocks[block_id]
            if block.ref_cnt:
                self._pinned_strays.append(block_id)
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

    def _path_of(self, request: "Request") -> Path | None:
        path = self._paths.get(request.request_id)
        if path is None and not request.resumable:
            self.arrived(request)  # it ran before `adaptive` was switched on
            self.began(request.request_id)
            path = self._paths.get(request.request_id)
        return path

    def _position(self, group: int, index: int) -> int:
        """The full-attention block that a block of any group ends in."""
        return ((index + 1) * self._layout.block_sizes[group] - 1) // self._size

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
            block = self._block_of(key)
            if block is None or block.block_id in self._promised:
                return
            self._strays.pop(block.block_id, None)
            live.grow(chain, 1)

    def _strand(self, keys: Sequence[Any]) -> None:
        """These, as far as they are there, are counted no longer."""
        for key in keys:
            block = self._block_of(key)
            if block is not None:
                self._strays[block.block_id] = None
            self._strand_hung(key)

    def _strand_hung(self, key: bytes) -> None:
        for other in self._hung.pop(key, ()):
            self._hangs_on.pop(other, None)
            block = self._block_of(other)
            if block is not None:
                self._strays[block.block_id] = None

    def _strand_kids(self, chain: Chain) -> None:
        """What lies behind a hole is worth nothing until the hole is closed."""
        live = self.retention.live
        for child in chain.children.values():
            if count := live.count(child):
                self._strand_kids(child)
                self._strand(child.keys[:count])
                live.shrink(child, count)

    def _block_of(self, key: bytes) -> Any:
        return self._pool.cached_block_hash_to_block.get_one_block(key)

    def _may_leave(self, chain: Chain) -> bool:
        key = chain.keys[self.retention.live.count(chain) - 1]
        assert isinstance(key, bytes)
        block = self._block_of(key)
        return block is not None and block.ref_cnt == 0

    def _free_blocks(self) -> Iterator[Any]:
        block = self._queue.fake_free_list_head.next_free_block
        while block is not None and block is not self._queue.fake_free_list_tail:
            yield block
            block = block.next_free_block

    def _changed(self) -> None:
        self._version += 1
