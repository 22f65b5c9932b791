"""`adaptive` in the engine: `keeping`, bound to vLLM's block pool, and what it says of its reasons.

Engine ring. Allocation and references stay vLLM's own, and vLLM's LRU goes on with the pool whenever `adaptive` is
switched off.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id
from vllm.v1.simple_kv_offload.manager import SimpleCPUOffloadScheduler

from connector.admission import FreeQueue
from connector.chains import Chain
from connector.events import Item
from connector.keeping import Keeping
from connector.layout import Layout
from connector.reasons import Asked, Exchange, Reasons

if TYPE_CHECKING:
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import BlockHashList
    from vllm.v1.request import Request


class _Keys(Sequence[bytes]):
    """A request's keys in the full-attention group, each made when it is asked for."""

    def __init__(self, hashes: "BlockHashList", group: int) -> None:
        self._hashes = hashes
        self._group = group

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, index: Any) -> Any:
        return make_block_hash_with_group_id(self._hashes[index], self._group)


class _Pool:
    """vLLM's pool of the CPU tier, as `keeping` sees it."""

    def __init__(self, pool: "BlockPool") -> None:
        self._pool = pool
        self.queue: FreeQueue = pool.free_block_queue
        self._one = pool.cached_block_hash_to_block.get_one_block

    def block_of(self, key: bytes) -> Any:
        return self._one(key)  # type: ignore[arg-type]

    def block(self, block_id: int) -> Any:
        return self._pool.blocks[block_id]

    def referenced(self) -> Iterable[Any]:
        return [b for b in self._pool.blocks if b.ref_cnt and b.block_hash is not None]


class Keeper(Keeping):
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
        self._layout = layout
        self._vllm = _Pool(manager.cpu_block_pool)
        # Those that a block was chosen by worth for, by block.
        self._exchanges: dict[int, Exchange] = {}
        super().__init__(
            self._vllm,
            dict(enumerate(layout.block_sizes)),
            manager.fa_gidx,
            manager.cpu_block_pool.num_gpu_blocks - 1,
            clock,
            before.retention.curve if before else None,
        )
        self._reasons = Reasons(self.retention, tell, clock(), before._reasons.rule if before else "lru")

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
        keys = self._keys_of(request)
        if keys is not None:
            self.follow(request.request_id, keys, request.session_id)

    def follow(self, request_id: str, keys: Sequence[Any], session_id: str | None = None) -> None:
        if not self.follows(request_id):
            super().follow(request_id, keys, session_id)
            self._reasons.arrived()

    def ended(self, request: "Request") -> None:
        self._reasons.ended(request.request_id)
        hashes = self._layout.hashes(request, self._group)
        computed = request.num_computed_tokens - request.num_output_placeholders
        num_full = min(computed // self._size, len(hashes))
        self.end(request.request_id, _Keys(hashes, self._group), num_full)

    def _keys_of(self, request: "Request") -> Sequence[bytes] | None:
        """None for a session of streamed inputs, where a position names no block."""
        return None if request.resumable else _Keys(self._layout.hashes(request, self._group), self._group)

    # --- the step ---------------------------------------------------------------------------------------------------

    def begin_step(self) -> None:
        super().begin_step()
        self._reasons.step_begins(self._clock)

    def begin_batch(self) -> None:
        super().begin_batch()
        self._exchanges.clear()

    def lies_there(self, request: "Request", group: int, index: int, key: bytes) -> None:
        """The request's block at `index` is ready, and the tier has it or is about to."""
        position = self.stands(request.request_id, self._keys_of(request), group, index, key)
        if position is not None:
            self._reasons.passed(request.request_id, position)

    def admit(
        self, request: "Request", group: int, index: int, key: bytes, *, num_ready: int = 1, is_restore: bool = False
    ) -> bool:
        """Whether a block may be copied to the tier. If so, its place is the next one that the pool gives. `num_ready`:
        this block and those behind it that will be asked for if it is."""
        request_id, keys = request.request_id, self._keys_of(request)
        refusal = self.ask(request_id, keys, group, index, key, is_restore=is_restore)
        if refusal is None:
            if keys is not None:
                self._reasons.admitted(request_id, is_restore=is_restore)
            return True
        path = refusal.path
        if path is None or refusal.is_given_up:
            return False  # nobody was weighed against it
        if self._reasons.is_new(request_id, refusal.position, is_restore=is_restore):
            hashes = self._layout.hashes(request, group)
            num_ready = min(num_ready, len(hashes) - index)
            tail = hashes[index + num_ready - 1]
            asked = Asked(request_id, group, index, num_ready, hashes[index], tail, is_restore)
            is_behind_hole = refusal.is_behind_hole
            self._reasons.refused(asked, path, refusal.chain, self._clock(), is_behind_hole=is_behind_hole)
        return False

    # --- what became of blocks --------------------------------------------------------------------------------------

    def emptied(self, block_id: int) -> Exchange | None:
        """A block of the tier holds nothing any more. Returns why, where it was chosen by worth."""
        self.vacated(block_id)
        return self._exchanges.pop(block_id, None)

    def found_in(self, key: bytes, group: int, index: int, block_id: int) -> None:
        """A copy is over, and can be found from now on."""
        self.found(key, group, index, self._vllm.block(block_id))

    def _exchanged(self, block: Any, victim: Chain, incoming: Chain, now: float) -> None:
        exchange = self._reasons.exchange(victim, incoming, now)
        if exchange is not None:
            self._exchanges[block.block_id] = exchange
