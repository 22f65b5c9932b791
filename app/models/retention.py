"""What `adaptive` goes by: its rule, its guard, what it has learned, what it chose and refused."""

from typing import Literal

from pydantic import BaseModel, Field

from app.models.base import Retention

Rule = Literal["lru", "worth"]


class ReuseClass(BaseModel):
    """What is known of chains that were asked for so often."""

    turns: int | None = Field(
        description="How often requests came for a chain of this class; the greatest number is this often or more, 0 "
        "is what a turn left behind that went on otherwise, null are heads that prompts share"
    )
    returns: float = Field(description="How many of them came back; earlier ones count less and less")
    worth: list[float] = Field(
        description="What keeping one is worth, from 0 to 1, by how long nobody has asked for it: one number for each "
        "of the state's `edges_s`"
    )


class RetentionState(BaseModel):
    """What the engine said last. It speaks at most every few seconds, and only where a request came since."""

    step: int
    wall_ns: int
    rule: Rule = Field(description="What blocks go by: `lru`, the last use, or `worth`, what was learned")
    is_guard_on: bool = Field(description="The shadow by last use leads by more than `guard_lead`")
    lru_hit_rate: float | None = Field(
        description="What the shadow that goes by last use found of what was asked for of late; null before any request"
    )
    worth_hit_rate: float | None = Field(description="What the shadow that goes by worth found")
    asked_blocks: float = Field(description="Of how many blocks; earlier requests count less and less")
    guard_lead: float
    num_reuses: int = Field(description="Chains that came back, in all")
    num_to_learn: int = Field(description="So many have to come back before blocks go by worth")
    horizon_s: float = Field(description="Worth is the expected value of exp(-t / horizon), t the time to its return")
    edges_s: list[float] = Field(description="Where each stretch of idle time starts; the last one has no end")
    classes: list[ReuseClass]


class RuleSwitch(BaseModel):
    """The tier went by another rule from this row of the log on. Hit rates as of `RetentionState`, at that time."""

    seq: int
    step: int
    wall_ns: int
    from_rule: Rule
    to_rule: Rule
    reason: Literal["learned", "guard_on", "guard_off", "reset"] = Field(
        description="Enough chains came back; the shadow by last use leads, or does no longer; the tier was emptied, "
        "with which the guard begins anew"
    )
    lru_hit_rate: float | None
    worth_hit_rate: float | None
    asked_blocks: float
    num_reuses: int


class RetentionView(BaseModel):
    engine_id: int
    retention: Retention | None = Field(description="What the engine said that it obeys; null if it said nothing yet")
    since_wall_ns: int | None = Field(description="When `adaptive` came in force; null where it is not")
    state: RetentionState | None = Field(
        description="Under `adaptive`: null until it has said something, and for a model that it does not suit, as the "
        "server's log says. Else the last one of a time when it was in force"
    )
    rule: Rule | None = Field(
        description="What the tier goes by now, by the newer of `state` and `switches`; null where it is not in "
        "force, or has said nothing yet"
    )
    rule_since_wall_ns: int | None = Field(
        description="Since when it goes by it; null where `adaptive` is not in force"
    )
    switches: list[RuleSwitch] = Field(description="Newest first, at most `limit`, since `adaptive` came in force")
    num_switches: int | None = Field(description="All of them; as the counts below null where it is not in force")
    evicted_blocks: int | None = Field(description="Blocks that left the tier, whatever they went by")
    evicted_by_worth_blocks: int | None = Field(description="Of these, chosen by worth")
    num_refusals: int | None = Field(description="How often a request's blocks began to be refused")
