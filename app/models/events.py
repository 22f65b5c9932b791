"""Rows of the log, by page and as a stream."""

from typing import Any

from pydantic import BaseModel, Field


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
    last_seq: int = Field(
        description="Pass as `after` for what comes next. Smaller than the `after` that was given: that number is of "
        "another log, and this one's rows begin at `after=0`"
    )


class Gap(BaseModel):
    """Sent on the stream in place of rows that a slow or late client missed; read them with `/events?after=`."""

    after_seq: int = Field(description="The last row that the client has")
    next_seq: int = Field(description="The first row that follows on the stream")
    is_other_log: bool = Field(
        description="True: `after_seq` is beyond the log's end, so the client's rows are of another log: it forgets "
        "them, and reads this one with `/events?after=0`"
    )
