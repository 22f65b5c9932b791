"""The evidence: why lookups missed, what re-store gained, and the sentence on the first screen."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import example
from app.examples_evidence import BENEFIT, CAUSES, GLANCE
from app.models import (
    Assumption,
    BenefitView,
    Bin,
    CauseExample,
    CauseRow,
    Causes,
    CausesPoint,
    Glance,
    GlanceNumber,
    PolicyBenefit,
    Problem,
)
from app.queries import benefit as benefit_queries
from app.queries import causes as cause_queries
from app.queries import glance as glance_queries
from app.routes.ranges import Bucket, WallNs

router = APIRouter(tags=["evidence"])

_RANGE = {422: {"model": Problem, "description": "An empty range, or one that cannot be drawn"}}
CausesTable = Annotated[Literal["causes", "points", "examples"], Query(description="Which table `format=csv` gives")]
BenefitTable = Annotated[
    Literal["policies", "regret", "assumptions"], Query(description="Which table `format=csv` gives")
]


@router.get("/api/causes", response_model=Causes, responses={**example(200, CAUSES), **_RANGE})
def get_causes(
    context: Context,
    since: WallNs = None,
    until: WallNs = None,
    bucket: Bucket = None,
    format: FormatQuery = "json",
    table: CausesTable = "causes",
) -> Causes | Response:
    """Why lookups ended where they did, and the tokens that it cost. The last 15 minutes if no range is given."""
    with context.snapshot() as conn:
        found = cause_queries.read_causes(conn, since, until, bucket, context.now_ns(), context.settings)
    if format == "json":
        return found
    if table == "points":
        return csv_answer(CausesPoint, found.points, "causes-points")
    if table == "examples":
        return csv_answer(CauseExample, found.examples, "causes-examples")
    return csv_answer(CauseRow, found.causes, "causes")


@router.get("/api/benefit", response_model=BenefitView, responses={**example(200, BENEFIT), **_RANGE})
def get_benefit(
    context: Context,
    since: WallNs = None,
    until: WallNs = None,
    format: FormatQuery = "json",
    table: BenefitTable = "policies",
) -> BenefitView | Response:
    """What evictions cost and what re-store gained and spent, in all and by version of the policy. From the log's begin
    to now if no range is given."""
    with context.snapshot() as conn:
        found = benefit_queries.read_benefit(conn, since, until, context.now_ns(), context.settings)
    if format == "json":
        return found
    if table == "regret":
        return csv_answer(Bin, found.total.regret.histogram, "regret")
    if table == "assumptions":
        return csv_answer(Assumption, found.assumptions, "assumptions")
    return csv_answer(PolicyBenefit, found.policies, "benefit")


@router.get("/api/glance", response_model=Glance, responses={**example(200, GLANCE), **_RANGE})
def get_glance(
    context: Context, since: WallNs = None, until: WallNs = None, format: FormatQuery = "json"
) -> Glance | Response:
    """What is going on, in one sentence whose numbers lead to the views behind them. The last 15 minutes if no range is
    given."""
    with context.snapshot() as conn:
        found = glance_queries.read_glance(
            conn, since, until, context.now_ns(), context.settings, context.shadows.double_tier
        )
    return found if format == "json" else csv_answer(GlanceNumber, found.numbers, "glance")
