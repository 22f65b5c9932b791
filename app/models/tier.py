"""The CPU tier of one engine, block by block, as of a row of the log."""

from typing import Literal

from pydantic import BaseModel, Field

from app.models.evidence import Bin

TierState = Literal["free", "cached", "pinned", "in_flight", "unknown"]


class TierBlock(BaseModel):
    """One CPU block. Fields are null where the block holds nothing, or where the log does not say."""

    id: int
    state: TierState = Field(
        description="pinned: a load reads it, or a request that waits for a place found it; in_flight: given to a copy "
        "that is not complete; unknown: nothing about it stands in the rows that were read"
    )
    hash: str | None
    kv_group: int | None
    index: int | None = Field(description="Its index in its chain, in blocks of its group")
    request_id: str | None = Field(description="Who stored it")
    conversation_id: str | None = Field(description="The conversation of who stored it")
    is_restored: bool | None = Field(description="What lies there is a re-store")
    stored_wall_ns: int | None
    age_ns: int | None = Field(description="Since it was stored, at the time of the view")
    num_hits: int | None = Field(description="Loads since it was stored")
    eviction_rank: int | None = Field(description="0 goes first; null where it is not among those that can go")


class Tier(BaseModel):
    engine_id: int
    seq: int = Field(description="The state after this row")
    wall_ns: int = Field(description="The time of that row")
    num_blocks: int
    block_bytes: int
    states: dict[str, int] = Field(description="Blocks by state")
    blocks: list[TierBlock] = Field(description="By id, `limit` of them from `first_id` on")
    is_complete: bool = Field(description="False: the log says too little, or too far back, about some blocks")
    is_order_approximate: bool = Field(
        description="The order is worked out from completed copies and loads. It is approximate where loads were under "
        "way, a copy failed, or rows are missing"
    )
    since_wall_ns: int = Field(description="The range of the figures below")
    until_wall_ns: int
    evicted_blocks: int
    evicted_unhit_blocks: int = Field(description="Evicted without a hit since they were stored")
    churn: float | None = Field(description="Unhit / evicted; null where nothing was evicted")
    eviction_age: list[Bin] = Field(description="Evicted blocks by the time since they were stored")
