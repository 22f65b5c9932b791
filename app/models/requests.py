"""Requests: the table, and one request's page."""

from typing import Literal

from pydantic import BaseModel, Field

from app.models.base import RequestState
from app.models.events import EventRow


class RequestRow(BaseModel):
    seq: int = Field(description="Of its request_started row: the order of the table")
    request_id: str
    engine_id: int
    session_id: str | None
    started_wall_ns: int
    finished_wall_ns: int | None
    state: RequestState = Field(
        description="waiting: not admitted yet; lost: its engine ended, or stopped writing, before the request did"
    )
    status: str | None
    prompt_tokens: int
    output_tokens: int | None
    gpu_hit_tokens: int | None
    cpu_hit_tokens: int | None
    computed_tokens: int | None
    cut_index: int | None
    missing_hash: str | None
    num_blocks: int = Field(description="Hashed blocks of its prompt, of hash_block_size tokens")
    num_preemptions: int
    restored_blocks: int
    ttft_ns: int | None
    restored_hit_tokens: int | None = Field(description="Of the CPU hits: there thanks to a re-store")
    cause: str | None = Field(description="Why its lookup ended there; null where nothing was left to find")
    cause_detail: str | None
    lost_tokens: int | None = Field(
        description="Computed now though computed before: what a chain kept whole would have given. Null: not recorded"
    )
    behind_tokens: int | None = Field(description="Of the lost tokens: what still lay in a tier behind the cut")
    since_ns: int | None = Field(description="How long before the lookup the missing block had been evicted")
    by_request_id: str | None = Field(
        description="Whose store evicted the missing block; where the prompt departs: who went on otherwise"
    )


class RequestPage(BaseModel):
    requests: list[RequestRow]
    next_before: int | None = Field(description="Pass as `before` for older ones; null at the end")


class BlockMoment(BaseModel):
    """Something that happened to the CPU copy of one block."""

    seq: int
    step: int
    wall_ns: int
    kind: Literal["blocks_stored", "blocks_restored", "blocks_evicted", "blocks_loaded", "cache_reset"]
    kv_group: int | None
    request_id: str | None
    by_request_id: str | None


class ChainBlock(BaseModel):
    """One block of a request's chain: where its KV came from at the lookup and what became of its CPU copy."""

    index: int
    hash: str
    source: Literal["gpu", "cpu", "missing", "computed", "pending"] = Field(
        description="missing: the first block that the lookup did not find; computed: what lies behind it; "
        "pending: no lookup was admitted yet"
    )
    why_missing: str | None = Field(
        description="For a block not found: 'evicted at step 12 by the store of …', 'never stored', 'never seen'"
    )
    is_in_cpu_tier: bool | None = Field(
        description="As of `history_last_seq`; null where rows before `history_first_seq` may decide it"
    )
    num_moments: int = Field(description="Moments of its history that were read; `history` has the newest of them")
    history: list[BlockMoment]


class Cut(BaseModel):
    """Where the first lookup ended, why, and what that cost."""

    index: int | None = Field(description="First block index that no tier gave; null where the whole prompt was found")
    missing_hash: str | None
    cause: str | None = Field(description="One of the closed list of causes; null where nothing was left to find")
    cause_detail: str | None
    lost_tokens: int | None = Field(description="Computed now though computed before; null in an older schema's rows")
    behind_tokens: int | None = Field(description="Of these: lay in a tier behind the cut, of no use there")
    sibling_hash: str | None = Field(
        description="Where the prompt departs: what followed the same prefix the last time"
    )
    by_request_id: str | None = Field(description="Whose store evicted it; or who went on with the sibling")
    evicted_step: int | None
    since_ns: int | None = Field(description="From the eviction to the lookup")
    age_ns: int | None = Field(description="From its store to its eviction")
    was_owned: bool | None = Field(description="A running request had it then, so that a re-store could have kept it")


class MissedRun(BaseModel):
    """Blocks that the lookup wanted and that the CPU tier had evicted together."""

    seq: int
    kv_group: int
    first_index: int = Field(description="In blocks of that group")
    num_blocks: int
    head_hash: str
    tail_hash: str
    evicted_step: int
    since_ns: int = Field(description="From the eviction to the lookup")
    by_request_id: str | None = Field(description="Whose store took their place")
    is_by_restore: bool = Field(description="That store was a re-store")
    num_owned: int = Field(description="How many a running request owned when they were evicted")


LaneState = Literal[
    "absent", "cached", "restored", "gpu_hit", "cpu_hit", "restored_hit", "missing", "behind", "computed"
]


class LaneSpan(BaseModel):
    """Neighbours of equal state. Spans cover the chain from its first block on, head first."""

    state: LaneState = Field(
        description="absent: no CPU copy; cached, restored: its CPU copy, by what made it; in the row of the lookup: "
        "gpu_hit, cpu_hit, restored_hit (in the CPU tier thanks to a re-store), missing (the cut), behind (usable, but "
        "behind the cut), computed"
    )
    num_blocks: int


class LaneRow(BaseModel):
    """One moment that changed something on this chain, and how all of it stood afterwards."""

    seq: int
    step: int
    wall_ns: int
    kind: str
    request_id: str | None = Field(description="Who did it, or whose blocks they were")
    by_request_id: str | None = Field(description="Of an eviction: whose store took their place")
    kv_group: int | None
    first_index: int = Field(description="The first block of the chain that it touched")
    num_blocks: int = Field(description="How many, from there")
    spans: list[LaneSpan]


class RequestDetail(BaseModel):
    request: RequestRow
    hash_block_size: int
    cut: Cut | None = Field(description="Null before the first lookup")
    missed: list[MissedRun]
    lane: list[LaneRow] = Field(
        description="In the log's order, at most 500: those around the lookup; the newest before there was one"
    )
    is_lane_complete: bool = Field(description="False: rows are left out")
    saved_tokens: int | None = Field(description="Prompt tokens that the caches gave; null before the first lookup")
    saved_prefill_s: float | None = Field(
        description="What computing them would have taken at this engine's measured prefill speed; null where that "
        "is not known well enough"
    )
    conversation_id: str | None
    chain: list[ChainBlock]
    history_first_seq: int | None = Field(
        description="The blocks' history is complete from this row on: of what is older, moments of a much used head "
        "are left out. Null: nothing is left out"
    )
    history_last_seq: int = Field(description="The log's last row when the blocks' history was read")
    is_chain_complete: bool = Field(description="False: the log lost part of it (events were dropped)")
    events: list[EventRow]
