"""What the other modules of the models share: bounds, the closed lists of words, and the shape of an error.

Units stand in names. Times are wall-clock nanoseconds since the epoch unless they say `monotonic`. Hashes are hex
strings. A rate over no traffic is null, never 0; so is a quantity that nobody measured.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from connector.policy import MAX_BUDGET

MAX_INTEGER = 2**63 - 1
"""The largest integer that SQLite can compare with: the bound of every row number and time that a client gives."""

Mode = Literal["rescan", "tracked"]
Retention = Literal["lru", "adaptive"]
EventKind = Literal[
    "request_started",
    "lookup",
    "lookup_waits",
    "blocks_stored",
    "blocks_restored",
    "blocks_evicted",
    "blocks_loaded",
    "blocks_missed",
    "blocks_dropped",
    "stores_refused",
    "rule_switched",
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
Format = Literal["json", "csv"]


class Health(BaseModel):
    status: Literal["ok", "degraded"]
    detail: str | None
    log: str = Field(description="Where it lies; empty for who asks without the key that is set")
    schema_revision: str
    num_live_engines: int
    last_seq: int
    is_recorded: bool = Field(description="Served alone, over a log, without vLLM: there is no /v1 here")


class Problem(BaseModel):
    """Every error: one line that says what was wrong and what to do."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"detail": "no request has the id 'abc'"}]})

    detail: str
