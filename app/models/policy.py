"""The switch: the policy, what engines answered to it, its history."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from app.models.base import Budget, Mode, Retention


class PolicyBody(BaseModel):
    """The toggles."""

    enabled: bool
    mode: Mode
    max_restore_blocks_per_step: int
    retention: Retention


class PolicyChange(BaseModel):
    """A partial change. At least one key; unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"enabled": False}, {"mode": "rescan", "max_restore_blocks_per_step": 0}]},
    )

    enabled: StrictBool | None = None
    mode: Mode | None = None
    max_restore_blocks_per_step: Budget | None = None
    retention: Retention | None = None

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
