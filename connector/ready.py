"""Which requests of a step vLLM's connector has to look at: those that got blocks, and those that filled one.

Engine ring. Stock looks at every running request in every step, to find nearly always that nothing has become ready.
The rest is left out of what it is shown, so a step costs what has changed in it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from vllm.v1.simple_kv_offload.manager import StoreRequestState

if TYPE_CHECKING:
    from vllm.v1.core.sched.output import SchedulerOutput

T = TypeVar("T")


def only_ready(
    output: "SchedulerOutput", states: Mapping[str, StoreRequestState], groups: Sequence[tuple[int, int]]
) -> "SchedulerOutput":
    """The step as scheduled, without the running requests that have nothing to store and got no block.

    `output` itself is everybody's, and stays as it is.

    Args:
        states: of stock, by request.
        groups: (number, block size in tokens) of those that are stored by position.
    """
    cached = output.scheduled_cached_reqs
    # What is computed by now, drafts and what is not confirmed included: who is below his next block with it has none.
    scheduled = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True)
    get = states.get
    if len(groups) == 1:
        ((g, size),) = groups
        kept = [
            (request_id, new)
            for request_id, new, computed in scheduled
            if new is not None
            or ((state := get(request_id)) is not None and computed >= (state.num_stored_blocks[g] + 1) * size)
        ]
    else:
        kept = [
            (request_id, new)
            for request_id, new, computed in scheduled
            if new is not None or ((state := get(request_id)) is not None and _has_ready(state, computed, groups))
        ]
    if len(kept) == len(cached.req_ids):
        return output
    narrowed = {"req_ids": [request_id for request_id, _ in kept], "new_block_ids": [new for _, new in kept]}
    return _with(output, scheduled_cached_reqs=_with(cached, **narrowed))


def _has_ready(state: StoreRequestState, computed: int, groups: Sequence[tuple[int, int]]) -> bool:
    stored = state.num_stored_blocks
    return any(computed >= (stored[g] + 1) * size for g, size in groups)


def _with(thing: T, **changes: object) -> T:
    """A shallow copy with some attributes replaced; vLLM's dataclasses have too many fields for `replace`."""
    twin = object.__new__(type(thing))
    vars(twin).update(vars(thing), **changes)
    return twin
