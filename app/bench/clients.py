"""The clients of a workload in real time: conversations that extend what the model itself answered, over HTTP.

What each client says and how long it waits comes from generators of its own, as in a replay; only the answers are the
model's. Words stand for tokens, about one each; a chat template adds a few a message.
"""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from app.demo_workload import WORDS
from app.remote import Answer, message
from connector.replay.chat import POLLUTION_OUTPUT_LEN, AgentsSpec, ChatSpec, Talk, agent_talk, chat_talk

Messages = list[dict[str, str]]
Ask = Callable[[Messages, int], Awaitable[Answer]]
"""Sends messages, wants so many tokens."""


@dataclass(slots=True)
class Played:
    """What the conversations got; one-shot prompts count in `num_others` alone.

    Attributes:
        digests: by conversation, a hash of all its answers: equal texts have equal ones.
    """

    answers: list[Answer] = field(default_factory=list[Answer])
    digests: dict[str, str] = field(default_factory=dict[str, str])
    num_others: int = 0


class Clients:
    """All clients of one workload, with the lengths and times that `seed` gives."""

    def __init__(self, spec: ChatSpec | AgentsSpec, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        if isinstance(spec, ChatSpec):
            self._talks = [chat_talk(spec, seed, n) for n in range(spec.total)]
            self._active = spec.active
        else:
            self._talks = [agent_talk(spec, seed, n) for n in range(spec.agents)]
            self._active = spec.agents

    @property
    def num_requests(self) -> int:
        """Requests of the conversations: the same in every run. One-shot prompts come on top."""
        return sum(len(talk.turns) for talk in self._talks)

    def longest(self, template_tokens: int) -> int:
        """Tokens of the longest request with its answer, where a template adds so many a message."""
        talks = [t.longest.num_tokens + template_tokens * (2 * len(t.turns) + 1) for t in self._talks]
        others = [] if isinstance(self._spec, ChatSpec) else [round(1.5 * self._spec.pollution_len) + template_tokens]
        return max(talks + others)

    async def play(self, ask: Ask, tick: Callable[[], None]) -> Played:
        """Play all conversations to their end. `tick` is called after each of their requests."""
        played = Played()
        gate = asyncio.Semaphore(self._active)
        async with asyncio.TaskGroup() as others:
            passing = others.create_task(self._pass_by(others, ask, played))
            async with asyncio.TaskGroup() as group:
                for talk in self._talks:
                    group.create_task(self._converse(talk, gate, ask, played, tick))
            # Nobody passes by any more; who has been asked is waited for.
            passing.cancel()
        return played

    async def _converse(
        self, talk: Talk, gate: asyncio.Semaphore, ask: Ask, played: Played, tick: Callable[[], None]
    ) -> None:
        said = hashlib.sha256()
        async with gate:
            chat = [message("system", _words(f"system/{self._seed}/{talk.system}", talk.system_len))]
            for number, turn in enumerate(talk.turns):
                chat.append(message("user", _words(f"{talk.name}/{self._seed}/{number}", turn.num_new)))
                answer = await ask(chat, turn.num_output)
                chat.append(message("assistant", answer.text))
                said.update(answer.text.encode() + b"\0")
                played.answers.append(answer)
                tick()
                if number + 1 < len(talk.turns):
                    await asyncio.sleep(turn.pause_seconds)
        played.digests[talk.name] = said.hexdigest()[:16]

    async def _pass_by(self, group: asyncio.TaskGroup, ask: Ask, played: Played) -> None:
        spec = self._spec
        if isinstance(spec, ChatSpec) or not spec.pollution_per_second:
            return
        rng = random.Random(f"one-shot/{self._seed}")
        while True:
            await asyncio.sleep(rng.expovariate(spec.pollution_per_second))
            length = max(1, round(spec.pollution_len * rng.uniform(0.5, 1.5)))
            text = _words(f"one-shot/{self._seed}/{played.num_others}", length)
            group.create_task(_once(partial(ask, [message("user", text)], POLLUTION_OUTPUT_LEN)))
            played.num_others += 1


async def _once(send: Callable[[], Awaitable[Answer]]) -> None:
    await send()


def _words(seed: str, count: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def differing(runs: Sequence[Played]) -> list[str]:
    """Conversations whose answers are not the same in all runs, by name."""
    names = sorted({name for run in runs for name in run.digests})
    return [name for name in names if len({run.digests.get(name) for run in runs}) > 1]
