"""Conversations: the list, and one of them turn by turn."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from app.csv_answer import FormatQuery, csv_answer
from app.deps import Context
from app.examples import example
from app.examples_evidence import CONVERSATION_DETAIL, CONVERSATION_PAGE
from app.models import (
    MAX_INTEGER,
    ConversationDetail,
    ConversationPage,
    ConversationRow,
    Problem,
    Turn,
    TurnRate,
)
from app.queries import conversations as queries

router = APIRouter(tags=["conversations"])


@router.get("/api/conversations", response_model=ConversationPage, responses=example(200, CONVERSATION_PAGE))
def get_conversations(
    context: Context,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    before: Annotated[int | None, Query(ge=0, le=MAX_INTEGER, description="`next_before` of the page before")] = None,
    format: FormatQuery = "json",
    table: Annotated[
        Literal["conversations", "by_turn"], Query(description="Which table `format=csv` gives")
    ] = "conversations",
) -> ConversationPage | Response:
    """Requests by conversation, the most recently active first, and the hit rate by turn.

    A request goes on from another one if its prompt has all full blocks of that one's prompt and output, and that
    output filled at least one of them; or if both name the same session.
    """
    index = context.conversations()
    with context.snapshot() as conn:
        page = queries.read_page(conn, index, limit, before)
    if format == "json":
        return page
    if table == "by_turn":
        return csv_answer(TurnRate, page.by_turn, "turns")
    return csv_answer(ConversationRow, page.conversations, "conversations")


@router.get(
    "/api/conversations/{conversation_id:path}",
    response_model=ConversationDetail,
    responses={
        **example(200, CONVERSATION_DETAIL),
        404: {"model": Problem, "description": "No such conversation, or several"},
    },
)
def get_conversation(
    context: Context,
    conversation_id: Annotated[
        str,
        Path(min_length=1, max_length=500, description="The id of any request of it, or the start of just one"),
    ],
    format: FormatQuery = "json",
) -> ConversationDetail | Response:
    """One conversation, turn by turn: what each found, and where it lost its prefix."""
    index = context.conversations()
    with context.snapshot() as conn:
        found = queries.read_conversation(conn, index, context.now_ns(), context.settings, conversation_id)
    return found if format == "json" else csv_answer(Turn, found.turns, f"conversation-{found.conversation.id}")
