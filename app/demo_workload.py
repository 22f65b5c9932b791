"""What `vllm-restore demo` asks of the server: a round of chats, and one-shot prompts that pass by.

In each turn all chats ask at once and are answered at length. While they are answered, as many one-shot prompts pass by
as push the chats' blocks out of the CPU tier; once they are answered, as many more as push them out of the GPU. Then
the chats ask again: the case that re-store is for.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from openai import AsyncOpenAI

from app.remote import message, stream_chat

# Words that are one token each for most tokenizers, so that other words make prompts of the same length.
_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information
"""
WORDS = _WORDS.split()
FIRST_WORDS = 120
NEXT_WORDS = 30
ANSWER_TOKENS = 96
PASSER_WORDS = 360
PASSER_TOKENS = 390
PASSERS_AT_A_TIME = 2


@dataclass(slots=True)
class Round:
    """What one round measured. Token counts are of the chats' prompts, as the server reports them in `usage`."""

    label: str
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_s: list[float] = field(default_factory=list[float])
    seconds: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Size:
    """How much work a round is: the same for each.

    Attributes:
        num_during: one-shot prompts in each turn, while the chats are answered.
        num_between: one-shot prompts between two turns.
    """

    num_chats: int
    num_turns: int
    num_during: int
    num_between: int

    @property
    def num_requests(self) -> int:
        """All of one round's requests."""
        return self.num_turns * (self.num_chats + self.num_during) + (self.num_turns - 1) * self.num_between


class Workload:
    """One round's requests. The words come from `seed`: the same seed asks the same, another asks as much."""

    def __init__(self, client: AsyncOpenAI, model: str, size: Size, seed: str, tick: Callable[[], None]) -> None:
        self._client = client
        self._model = model
        self._size = size
        self._words = random.Random(seed)
        self._tick = tick

    async def play(self, label: str) -> Round:
        """Plays every turn of every chat, and what passes by."""
        played = Round(label)
        started = time.monotonic()
        chats = [[message("system", self._text(FIRST_WORDS))] for _ in range(self._size.num_chats)]
        for turn in range(self._size.num_turns):
            if turn:
                await self._pass_by(self._size.num_between)
            await self._turn(chats, played)
        played.seconds = time.monotonic() - started
        return played

    async def _turn(self, chats: list[list[dict[str, str]]], played: Round) -> None:
        are_answered = [asyncio.Event() for _ in chats]
        async with asyncio.TaskGroup() as group:
            for chat, is_answered in zip(chats, are_answered, strict=True):
                group.create_task(self._ask(chat, played, is_answered))
            # Only now, so that the time to the first token is the chats' own.
            for is_answered in are_answered:
                await is_answered.wait()
            await self._pass_by(self._size.num_during)

    async def _ask(self, chat: list[dict[str, str]], played: Round, is_answered: asyncio.Event) -> None:
        chat.append(message("user", self._text(NEXT_WORDS)))
        answer = await stream_chat(self._client, self._model, chat, ANSWER_TOKENS, is_answered.set)
        self._tick()
        chat.append(message("assistant", answer.text))
        played.ttft_s.append(answer.ttft_s)
        played.prompt_tokens += answer.num_prompt_tokens
        played.cached_tokens += answer.num_cached_tokens

    async def _pass_by(self, num_prompts: int) -> None:
        gate = asyncio.Semaphore(PASSERS_AT_A_TIME)

        async def one(text: str) -> None:
            async with gate:
                await stream_chat(self._client, self._model, [message("user", text)], 2)
            self._tick()

        async with asyncio.TaskGroup() as group:
            for _ in range(num_prompts):
                group.create_task(one(self._text(PASSER_WORDS)))

    def _text(self, num_words: int) -> str:
        return " ".join(self._words.choices(WORDS, k=num_words))
