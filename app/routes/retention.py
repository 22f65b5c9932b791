"""What `adaptive` goes by: its rule, its guard, the curve that it has learned, what it chose and refused."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import example
from app.examples_evidence import RETENTION
from app.models import MAX_INTEGER, Problem, RetentionView, ReuseClass, RuleSwitch
from app.queries import retention as queries

router = APIRouter(tags=["tier"])


@router.get(
    "/api/retention",
    response_model=RetentionView,
    responses={**example(200, RETENTION), 404: {"model": Problem, "description": "No such engine, or none at all"}},
)
def get_retention(
    context: Context,
    engine: Annotated[
        int | None, Query(ge=0, le=MAX_INTEGER, description="An engine's `id`; the newest if not given")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    format: FormatQuery = "json",
    table: Annotated[Literal["switches", "classes"], Query(description="Which table `format=csv` gives")] = "switches",
) -> RetentionView | Response:
    """Which rule blocks of the CPU tier go by, why, and what `adaptive` has learned, chosen and refused since it came
    in force. `limit` is of `switches`."""
    with context.snapshot() as conn:
        found = queries.read_retention(conn, engine, limit)
    if format == "json":
        return found
    if table == "classes":
        return csv_answer(
            ReuseClass, found.state.classes if found.state else [], f"retention-{found.engine_id}-classes"
        )
    return csv_answer(RuleSwitch, found.switches, f"retention-{found.engine_id}-switches")
