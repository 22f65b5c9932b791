"""Why lookups missed, what re-store gained and cost, and the one sentence that sums it up."""

from typing import Literal

from pydantic import BaseModel, Field


class CauseRow(BaseModel):
    """Lookups that ended for one reason. Those after a preemption do not count."""

    cause: str | None = Field(
        description="never_seen, never_stored, evicted, in_flight, shorter_than_a_block, last_token_rule, not_aligned, "
        "cache_skipped, reset; `not_recorded` in rows of an older schema; null where nothing was left to find"
    )
    detail: str | None
    num_lookups: int
    prompt_tokens: int = Field(description="Of these lookups")
    lost_tokens: int = Field(description="Computed though computed before")
    behind_tokens: int = Field(description="Of the lost: lay in a tier behind the cut")
    lost_share: float | None = Field(description="Lost tokens / all prompt tokens of the range; null without traffic")


class CausesPoint(BaseModel):
    """One bucket of the timeline."""

    wall_ns: int = Field(description="Start of the bucket")
    prompt_tokens: int | None = Field(description="Null where no request was admitted")
    lost_tokens: dict[str, int] = Field(description="By cause; causes that lost nothing are left out")


class CauseExample(BaseModel):
    """A lookup that lost much for one cause."""

    seq: int
    request_id: str
    engine_id: int
    wall_ns: int
    cause: str
    detail: str | None
    prompt_tokens: int
    lost_tokens: int
    behind_tokens: int
    cut_index: int | None
    missing_hash: str | None
    since_ns: int | None = Field(description="From the eviction to the lookup")
    by_request_id: str | None


class Directory(BaseModel):
    """What the newest engine of the range remembers of hashes that were seen: it bounds what a cause can know."""

    engine_id: int
    capacity: int | None
    num_forgotten: int | None = Field(description="So far; a hash that was forgotten looks as if it was never seen")


class Causes(BaseModel):
    since_wall_ns: int
    until_wall_ns: int
    bucket_ns: int
    num_lookups: int
    prompt_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    lost_tokens: int
    behind_tokens: int
    causes: list[CauseRow] = Field(description="The most lost tokens first")
    points: list[CausesPoint]
    examples: list[CauseExample] = Field(
        description="Up to five of each cause and detail, out of the seconds that lost the most for it"
    )
    directory: Directory | None


class Bin(BaseModel):
    """One bar of a histogram over time."""

    from_ns: int
    to_ns: int | None = Field(description="Not in it; null: no bound")
    num_blocks: int


class Regret(BaseModel):
    """Blocks that the CPU tier evicted and that a lookup wanted again."""

    evicted_blocks: int
    wanted_blocks: int = Field(description="A block counts each time that a lookup wants it")
    wanted_owned_blocks: int = Field(description="Of these: a running request owned them when they were evicted")
    wanted_share: float | None = Field(description="Wanted / evicted; null where nothing was evicted")
    lost_tokens: int = Field(description="Of lookups that were cut at an evicted block")
    histogram: list[Bin] = Field(description="By the time from the eviction to the lookup that wanted it")


class RestoreCost(BaseModel):
    """What was copied again, what it gave, and what it pushed out."""

    restored_blocks: int
    restored_bytes: int
    copy_ns: int | None = Field(description="As the worker measured it; null where it does not measure or nothing was")
    measured_blocks: int = Field(description="How many of the re-stored blocks `copy_ns` is of")
    loaded_blocks: int = Field(description="Re-stored blocks that were hit later; each hit counts")
    hit_tokens: int = Field(description="Prompt tokens found thanks to a re-store")
    displaced_blocks: int = Field(description="Evicted to make place for a re-store")
    displaced_wanted_blocks: int = Field(description="Of the displaced: wanted again by a lookup; each time counts")


class Prefill(BaseModel):
    """Measured prefill speed: the least-squares slope of a step's time over the tokens that it scheduled, from the
    steps that did prefill (more tokens than running requests)."""

    seconds_per_token: float | None = Field(description="Null: too few steps, or a slope that is not positive")
    num_steps: int
    r_squared: float | None
    doubt: str | None = Field(
        description="Why nothing should be concluded from this speed, in words: there is none, or R² is below 0.5"
    )


class Benefit(BaseModel):
    """Re-store's account over some lookups. Prices are the whole range's, `total.prefill` and what a copied block took
    on average where it was not measured, so that versions of the policy add up to the total."""

    num_lookups: int
    prompt_tokens: int
    hit_rate: float | None
    regret: Regret
    restore: RestoreCost
    prefill: Prefill = Field(description="Over the steps of this part alone")
    saved_s: float | None = Field(description="Prefill that re-stored hits spared; null where speed is not measured")
    spent_s: float | None = Field(
        description="Copying again; what was not measured, at the average of what was; null where nothing was"
    )
    displaced_s: float | None = Field(
        description="At most: prefill of the displaced blocks that were wanted again; null where speed is not measured"
    )
    roi: float | None = Field(description="saved_s / spent_s")


class PolicyBenefit(Benefit):
    """The account of one version of the policy, over all engines that obeyed it."""

    policy_version: int | None = Field(description="Null: before the engine said which policy it obeys")
    label: str | None = Field(description="off, rescan or tracked; adaptive or adaptive-off")
    first_wall_ns: int
    last_wall_ns: int


class Assumption(BaseModel):
    """A figure that people quote, next to the same quantity measured here."""

    name: Literal["restore_seconds", "restore_bytes", "prefill_seconds", "ratio"]
    label: str
    unit: Literal["s", "B", "×"]
    quoted: float
    measured: float | None


class BenefitView(BaseModel):
    since_wall_ns: int
    until_wall_ns: int
    total: Benefit
    policies: list[PolicyBenefit] = Field(description="In the order in which they were obeyed first")
    block_tokens: int | None = Field(description="Tokens of a block that measured figures are of; null: no engine")
    assumptions: list[Assumption] = Field(description="Measured time and bytes are per 256 tokens, as the quoted ones")
    hits_per_restore: float | None = Field(
        description="How often a re-stored block was hit: the quoted ratio pays only so often"
    )
    holds: bool | None = Field(
        description="Re-store gained at least the quoted 50×; null: not measured, or there is a `total.prefill.doubt`"
    )
    verdict: str = Field(description="Whether the assumption holds here, in words")


class GlanceNumber(BaseModel):
    """One number of the sentence and the view that proves it."""

    name: Literal["from_cache", "lost_to_eviction", "restore_would_have_saved", "double_tier"]
    share: float | None = Field(description="Of prompt tokens, 0 to 1; null: no traffic, or not known")
    view: str = Field(description="The dashboard's view that it comes from")
    query: dict[str, str] = Field(description="That view's parameters")


class Glance(BaseModel):
    """What is going on, in one sentence."""

    since_wall_ns: int
    until_wall_ns: int
    prompt_tokens: int
    from_cache: float | None
    lost_to_eviction: float | None = Field(description="Lost at lookups that were cut at an evicted block")
    restore_would_have_saved: float | None = Field(
        description="Of these, as a share of all prompt tokens: a running request owned the block when it went"
    )
    double_tier: float | None = Field(description="Hit rate of a tier twice as large; null until its shadow knows")
    sentence: str
    numbers: list[GlanceNumber] = Field(description="In the order of the sentence")
