"""Conversations: requests that go on where an earlier one ended."""

from pydantic import BaseModel, Field

from app.models.requests import RequestRow


class ConversationRow(BaseModel):
    id: str = Field(description="The id of its first request")
    engine_id: int
    session_id: str | None = Field(description="Where the client named one")
    num_turns: int
    first_wall_ns: int
    last_wall_ns: int = Field(description="When its newest turn began")
    last_seq: int = Field(description="Of its newest turn's request_started row: the order of the list")
    prompt_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    restored_hit_tokens: int
    lost_tokens: int
    hit_rate: float | None
    num_lost_prefixes: int = Field(description="Turns whose lookup was cut inside what an earlier turn had computed")


class TurnRate(BaseModel):
    """All turns of one number, over the conversations that were read."""

    turn: int = Field(description="1 is a conversation's first")
    num_turns: int
    prompt_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    restored_hit_tokens: int
    lost_tokens: int
    hit_rate: float | None


class ConversationPage(BaseModel):
    conversations: list[ConversationRow] = Field(description="The most recently active first")
    next_before: int | None = Field(description="Pass as `before` for older ones; null at the end")
    num_conversations: int = Field(description="That are known in all")
    by_turn: list[TurnRate] = Field(description="Of all that are known, not of this page")
    first_seq: int | None = Field(
        description="Requests before this row are not looked at, since there are too many; null: all are"
    )


class Turn(BaseModel):
    turn: int = Field(description="Its depth in the conversation, 1 is the first; two turns of one number are branches")
    request: RequestRow
    previous_request_id: str | None = Field(description="The turn that it goes on from")
    by_session: bool = Field(description="Grouped by the client's session id, not by its chain")
    shared_blocks: int = Field(description="Blocks of its prompt that the previous turn had, prompt and output")
    lost_from_index: int | None = Field(
        description="Where its lookup was cut inside the shared blocks: there it lost its prefix; null: it did not"
    )


class ConversationDetail(BaseModel):
    conversation: ConversationRow
    hash_block_size: int
    turns: list[Turn] = Field(description="In the order in which they began")
