"""What the API says: response and request models, one module a subject, and with them the OpenAPI schema that `web/`
takes its types from. Import them from here.
"""

from app.models.base import MAX_INTEGER, Budget, EventKind, Format, Health, Mode, Problem, RequestState
from app.models.conversations import ConversationDetail, ConversationPage, ConversationRow, Turn, TurnRate
from app.models.events import EventPage, EventRow, Gap
from app.models.evidence import (
    Assumption,
    Benefit,
    BenefitView,
    Bin,
    CauseExample,
    CauseRow,
    Causes,
    CausesPoint,
    Directory,
    Glance,
    GlanceNumber,
    PolicyBenefit,
    Prefill,
    Regret,
    RestoreCost,
)
from app.models.overview import Engine, PolicyMarker, Summary, TierFill, Timeline, TimelinePoint, TokenSplit
from app.models.policy import AppliedPolicy, PolicyBody, PolicyChange, PolicyHistoryEntry, PolicyState
from app.models.requests import (
    BlockMoment,
    ChainBlock,
    Cut,
    LaneRow,
    LaneSpan,
    LaneState,
    MissedRun,
    RequestDetail,
    RequestPage,
    RequestRow,
)
from app.models.retention import RetentionState, RetentionView, ReuseClass, RuleSwitch
from app.models.shadows import CurveRow, Shadow, ShadowError, ShadowPoint, Shadows, WhatIf, WhatIfRow
from app.models.tier import Tier, TierBlock, TierState

__all__ = [
    "MAX_INTEGER", "AppliedPolicy", "Assumption", "Benefit", "BenefitView", "Bin", "BlockMoment", "Budget",
    "CauseExample", "CauseRow", "Causes", "CausesPoint", "ChainBlock", "ConversationDetail", "ConversationPage",
    "ConversationRow", "CurveRow", "Cut", "Directory", "Engine",
    "EventKind", "EventPage", "EventRow", "Format", "Gap", "Glance",
    "GlanceNumber", "Health", "LaneRow", "LaneSpan", "LaneState", "MissedRun", "Mode", "PolicyBenefit", "PolicyBody",
    "PolicyChange", "PolicyHistoryEntry", "PolicyMarker", "PolicyState", "Prefill", "Problem", "Regret",
    "RequestDetail", "RequestPage", "RequestRow", "RequestState", "RestoreCost", "RetentionState", "RetentionView",
    "ReuseClass", "RuleSwitch", "Shadow", "ShadowError", "ShadowPoint",
    "Shadows", "Summary", "Tier", "TierBlock",
    "TierFill", "TierState", "Timeline", "TimelinePoint", "TokenSplit", "Turn", "TurnRate", "WhatIf", "WhatIfRow",
]  # fmt: skip
