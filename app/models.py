"""What the API says: response and request models, and with them the OpenAPI schema that `web/` takes its types from.

Units stand in names. Times are wall-clock nanoseconds since the epoch unless they say `monotonic`. Hashes are hex
strings. A rate over no traffic is null, never 0.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from connector.policy import MAX_BUDGET

MAX_INTEGER = 2**63 - 1
"""The largest integer that SQLite can compare with: the bound of every row number and time that a client gives."""

Mode = Literal["rescan", "tracked"]
EventKind = Literal[
    "request_started",
    "lookup",
    "blocks_stored",
    "blocks_restored",
    "blocks_evicted",
    "blocks_loaded",
    "blocks_dropped",
    "cursor_moved",
    "request_preempted",
    "request_finished",
    "policy_applied",
    "events_dropped",
    "fault",
    "cache_reset",
]
RequestState = Literal["waiting", "running", "preempted", "finished", "lost"]
Budget = Annotated[StrictInt, Field(ge=0, le=MAX_BUDGET)]


class PolicyBody(BaseModel):
    """The toggles."""

    enabled: bool
    mode: Mode
    max_restore_blocks_per_step: int


class PolicyChange(BaseModel):
    """A partial change. At least one key; unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"enabled": False}, {"mode": "rescan", "max_restore_blocks_per_step": 0}]},
    )

    enabled: StrictBool | None = None
    mode: Mode | None = None
    max_restore_blocks_per_step: Budget | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError(f"nothing to change: give at least one of {', '.join(type(self).model_fields)}")
        if nulls := [k for k, v in self.changes().items() if v is None]:
            raise ValueError(f"{', '.join(nulls)} may not be null: leave out what shall stay as it is")
        return self

    def changes(self) -> dict[str, Any]:
        """The keys that were given, and only these."""
        return self.model_dump(exclude_unset=True)


class AppliedPolicy(BaseModel):
    """What one live engine last said about the policy it obeys."""

    engine_id: int
    dp_index: int
    applied_version: int | None = Field(description="None: the engine has not said anything yet")
    applied_step: int | None
    applied_wall_ns: int | None
    is_pending: bool = Field(
        description="The engine has not answered for the newest version yet; false where it cannot re-store"
    )
    is_idle: bool = Field(description="No step was running when it answered; the next step obeys")
    reason: str | None = Field(description="'start', 'toggle', or 'fault': re-store was turned off by itself")
    applied: PolicyBody | None
    restore_support: str = Field(
        description="'yes', or why this engine cannot re-store: whatever it answers, it obeys nothing"
    )


class PolicyState(BaseModel):
    """The newest policy and every live engine's answer to it."""

    version: int = Field(description="0 is the built-in default, before anyone changed it")
    policy: PolicyBody
    created_wall_ns: int | None
    author: str | None
    engines: list[AppliedPolicy]
    can_change: bool = Field(description="False over a recorded log, where no engine listens")
    detail: str | None = Field(description="Which engines do not obey it yet, or cannot, in words; null where all do")


class PolicyHistoryEntry(BaseModel):
    version: int
    created_wall_ns: int
    author: str
    before: PolicyBody
    after: PolicyBody
    applied: list[AppliedPolicy]


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
    label: str = Field(description="off, rescan or tracked")
    reason: str


class Timeline(BaseModel):
    since_wall_ns: int
    until_wall_ns: int
    bucket_ns: int
    points: list[TimelinePoint]
    policy_markers: list[PolicyMarker]
    policy_at_start: str | None


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


class RequestPage(BaseModel):
    requests: list[RequestRow]
    next_before: int | None = Field(description="Pass as `before` for older ones; null at the end")


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
    history: list["BlockMoment"]


class BlockMoment(BaseModel):
    """Something that happened to the CPU copy of one block."""

    seq: int
    step: int
    wall_ns: int
    kind: Literal["blocks_stored", "blocks_restored", "blocks_evicted", "blocks_loaded", "cache_reset"]
    kv_group: int | None
    request_id: str | None
    by_request_id: str | None


class RequestDetail(BaseModel):
    request: RequestRow
    hash_block_size: int
    chain: list[ChainBlock]
    history_first_seq: int | None = Field(
        description="The blocks' history is complete from this row on: of what is older, moments of a much used head "
        "are left out. Null: nothing is left out"
    )
    history_last_seq: int = Field(description="The log's last row when the blocks' history was read")
    is_chain_complete: bool = Field(description="False: the log lost part of it (events were dropped)")
    events: list["EventRow"]


class EventRow(BaseModel):
    """One row of the log: the header, and in `data` the columns that its kind fills."""

    seq: int
    engine_id: int
    step: int
    wall_ns: int
    monotonic_ns: int
    kind: str
    request_id: str | None
    data: dict[str, Any]


class EventPage(BaseModel):
    events: list[EventRow]
    last_seq: int = Field(description="Pass as `after` for what comes next")


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    detail: str | None
    log: str = Field(description="Where it lies; empty for who asks without the key that is set")
    schema_revision: str
    num_live_engines: int
    last_seq: int


class Problem(BaseModel):
    """Every error: one line that says what was wrong and what to do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"detail": "no request has the id 'abc'"}]})

    detail: str


class Gap(BaseModel):
    """Sent on the stream in place of rows that a slow or late client missed; read them with `/events?after=`."""

    after_seq: int = Field(description="The last row that the client has")
    next_seq: int = Field(description="The first row that follows on the stream")
