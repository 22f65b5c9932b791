"""What the shadows and the what-if answer."""

from pydantic import BaseModel, Field


class ShadowPoint(BaseModel):
    wall_ns: int
    hit_rate: float | None = Field(description="0 to 1; null without traffic")


class CurveRow(BaseModel):
    """The hit rate of one policy at one size."""

    policy: str
    cpu_blocks: int | None = Field(description="Null: no bound")
    cpu_bytes: int | None
    hit_rate: float | None


class WhatIfRow(CurveRow):
    """A tier of metadata that followed the traffic: what it gave and copied. Block counts are since the engine's start,
    whatever the range."""

    cpu_hit_tokens: int
    gpu_hit_tokens: int
    restored_blocks: int
    stored_blocks: int


class Shadow(WhatIfRow):
    """One that follows a live engine."""

    name: str
    points: list[ShadowPoint]


class ShadowError(BaseModel):
    """How far the shadow of the policy that was obeyed is from what the engine said."""

    name: str
    percentage_points: float | None = Field(description="Over the range: shadow minus truth")
    worst_percentage_points: float | None = Field(description="In the worst point of the timeline, its size")


class Shadows(BaseModel):
    engine_id: int | None
    is_caught_up: bool
    last_seq: int
    unsupported: str | None = Field(description="Why there can be none, in words")
    hit_rate: float | None = Field(description="What the engine itself found")
    shadows: list[Shadow]
    error: ShadowError | None
    curve: list[CurveRow]
    notes: list[str] = Field(description="Where a shadow must differ from what would have happened")


class WhatIf(BaseModel):
    engine_id: int
    num_lookups: int
    prompt_tokens: int
    hit_rate: float | None = Field(description="What the engine itself found")
    rows: list[WhatIfRow]
    notes: list[str]
