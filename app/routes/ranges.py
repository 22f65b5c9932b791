"""The parameters of a range of time, which several routes take."""

from typing import Annotated

from fastapi import Query

from app.models import MAX_INTEGER

WallNs = Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="Wall-clock nanoseconds since the epoch")]
Bucket = Annotated[
    float | None, Query(gt=0, le=86_400 * 366, description="Seconds a point; chosen to fit the range if not given")
]
