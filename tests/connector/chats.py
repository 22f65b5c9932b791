"""Chats in a closed loop, on an engine without a model: turns that extend one another, think time between them.

Test support.
"""

import random
from dataclasses import dataclass, field

from harness import BLOCK, Engine


@dataclass
class Chat:
    """One conversation, with a random generator of its own, so that every policy gets the same work."""

    number: int
    rng: random.Random
    tokens: list[int]
    wakes_at: int
    turn: int = 0
    request_id: str | None = None
    is_over: bool = False
    sent: list[str] = field(default_factory=list)


def drive(engine: Engine, *, seed: int, active: int, total: int, turns: int, think_steps: int = 30) -> None:
    """Play `total` chats, `active` at a time, of `turns` turns each, then let the engine come to rest."""
    systems = [[random.Random(9_000 + k).randrange(50_000) for _ in range(4 * BLOCK)] for k in range(2)]
    chats: list[Chat] = []
    step = 0
    while len(chats) < total or any(not chat.is_over for chat in chats):
        while len(chats) < total and sum(not chat.is_over for chat in chats) < active:
            n = len(chats)
            chats.append(Chat(n, random.Random(seed * 1_000 + n), list(systems[n % 2]), step))
        for chat in chats:
            if not chat.is_over:
                _go_on(engine, chat, step, turns, think_steps)
        engine.step()
        step += 1
    engine.settle(2_000)


def _go_on(engine: Engine, chat: Chat, step: int, turns: int, think_steps: int) -> None:
    rng = chat.rng
    if chat.request_id is None and step >= chat.wakes_at:
        chat.tokens += [rng.randrange(50_000) for _ in range(rng.randrange(20, 120))]
        chat.request_id = f"chat{chat.number}-{chat.turn}"
        engine.add(chat.request_id, chat.tokens, max_tokens=rng.randrange(5, 60))
    elif chat.request_id is not None and engine.requests[chat.request_id].is_finished():
        chat.tokens = list(engine.requests[chat.request_id].all_token_ids)
        chat.turn += 1
        chat.request_id = None
        chat.wakes_at = step + rng.randrange(5, think_steps)
        chat.is_over = chat.turn >= turns
