"""The first screen: engines, the totals of a range, its timeline."""

from typing import Any

from pydantic import BaseModel, Field


class Engine(BaseModel):
    id: int
    engine_uid: str
    dp_index: int
    pid: int
    hostname: str
    model: str
    vllm_version: str
    restore_version: str
    sqlite_version: str
    hash_block_size: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    block_bytes: int
    kv_groups: list[dict[str, Any]]
    directory_capacity: int | None = Field(
        description="Hashes that the engine remembers to have seen, for the causes; null in an older log"
    )
    restore_support: str
    started_wall_ns: int
    heartbeat_wall_ns: int
    stopped_wall_ns: int | None
    is_live: bool = Field(description="Its last sign of life is a few seconds old at most")


class TokenSplit(BaseModel):
    """Prompt tokens of admitted lookups, by where their KV came from. Lookups after a preemption do not count again."""

    prompt_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    restored_hit_tokens: int = Field(
        description="Of the CPU hits: tokens in blocks that are there thanks to a re-store"
    )
    computed_tokens: int
    hit_rate: float | None = Field(description="(GPU + CPU hits) / prompt tokens; null without traffic")


class TierFill(BaseModel):
    """The CPU tier as the last step of each live engine left it, summed."""

    num_blocks: int
    free_blocks: int = Field(description="Hold nothing that can be found")
    cached_blocks: int
    in_flight_blocks: int
    block_bytes: int
    restorable_blocks: int


class Summary(BaseModel):
    since_wall_ns: int | None
    until_wall_ns: int
    tokens: TokenSplit
    last_minute: TokenSplit = Field(description="The minute before `until_wall_ns`")
    num_requests: int
    num_running: int = Field(description="Requests that live engines have not finished yet, whatever the range")
    stored_blocks: int
    restored_blocks: int
    evicted_blocks: int
    loaded_blocks: int
    dropped_blocks: int
    stored_bytes: int
    restored_bytes: int
    loaded_bytes: int
    ttft_p50_ns: int | None
    ttft_p90_ns: int | None
    num_faults: int
    num_events_dropped: int
    last_fault: str | None
    cpu_tier: TierFill | None
    last_seq: int


class TimelinePoint(BaseModel):
    """One bucket. Token fields are null where no request was admitted in it."""

    wall_ns: int = Field(description="Start of the bucket")
    prompt_tokens: int | None
    gpu_hit_tokens: int | None
    cpu_hit_tokens: int | None
    restored_hit_tokens: int | None = Field(description="Of the CPU hits: there thanks to a re-store")
    computed_tokens: int | None
    lost_tokens: int | None = Field(description="Of the computed: what an endless tier would have given")
    hit_rate: float | None
    stored_blocks: int
    restored_blocks: int
    evicted_blocks: int
    loaded_blocks: int
    cpu_blocks_cached: int | None
    engine_up: bool = Field(description="False where no engine wrote anything: a gap, not a zero")


class PolicyMarker(BaseModel):
    wall_ns: int
    engine_id: int
    step: int
    policy_version: int
    label: str = Field(description="off, rescan or tracked; adaptive or adaptive-off")
    reason: str


class Timeline(BaseModel):
    since_wall_ns: int
    until_wall_ns: int
    bucket_ns: int
    points: list[TimelinePoint]
    policy_markers: list[PolicyMarker]
    policy_at_start: str | None
