"""What the bench's clients send, seen from where it arrives."""

import asyncio
from collections import Counter
from itertools import pairwise

from app.bench.clients import Clients, Messages, Played, differing
from app.remote import Answer
from connector.replay.chat import AgentsSpec, ChatSpec

CHATS = ChatSpec(
    active=3, total=5, turns=(2, 4), system_len=10, first_len=20, user_len=6, output_len=4, think_seconds=0.001
)
AGENTS = AgentsSpec(
    agents=2, turns=4, prompt=20, observation=5, output=4, tool_seconds=0.01, pollution_len=30, pollution_per_second=400
)


class Listener:
    """Answers at once, and remembers what it was asked."""

    def __init__(self, answer: str = "fine") -> None:
        self.asked: list[tuple[Messages, int]] = []
        self.num_now = self.most_at_once = 0
        self._answer = answer

    async def ask(self, messages: Messages, num_tokens: int) -> Answer:
        self.num_now += 1
        self.most_at_once = max(self.most_at_once, self.num_now)
        self.asked.append(([dict(m) for m in messages], num_tokens))
        await asyncio.sleep(0)
        self.num_now -= 1
        return Answer(self._answer, 0.1, len(messages), 0, num_tokens)


def play(spec: ChatSpec | AgentsSpec, seed: int, listener: Listener) -> tuple[Clients, Played, int]:
    clients = Clients(spec, seed)
    ticks: list[None] = []
    played = asyncio.run(clients.play(listener.ask, lambda: ticks.append(None)))
    return clients, played, len(ticks)


def test_every_turn_extends_all_that_was_said_and_answered() -> None:
    listener = Listener()
    clients, played, num_ticks = play(CHATS, 1, listener)
    assert len(listener.asked) == len(played.answers) == num_ticks == clients.num_requests
    assert listener.most_at_once <= CHATS.active
    by_first: dict[str, list[Messages]] = {}
    for messages, _ in listener.asked:
        by_first.setdefault(messages[1]["content"], []).append(messages)
    assert len(by_first) == CHATS.total
    for turns in by_first.values():
        assert 2 <= len(turns) <= 4
        for before, after in pairwise(turns):
            assert after[:-2] == before
            assert after[-2] == {"role": "assistant", "content": "fine"}
            assert after[-1]["role"] == "user"
        assert len(turns[0][0]["content"].split()) == CHATS.system_len


def test_the_same_seed_asks_the_same_and_another_does_not() -> None:
    def all_asked(seed: int) -> Counter[str]:
        listener = Listener()
        play(CHATS, seed, listener)
        return Counter(str(asked) for asked in listener.asked)

    assert all_asked(7) == all_asked(7)
    assert all_asked(7) != all_asked(8)


def test_one_shot_prompts_pass_by_until_the_agents_end_and_count_apart() -> None:
    listener = Listener()
    clients, played, num_ticks = play(AGENTS, 1, listener)
    one_shots = [messages for messages, num_tokens in listener.asked if len(messages) == 1]
    assert len(one_shots) == played.num_others > 0
    assert len({messages[0]["content"] for messages in one_shots}) == len(one_shots)
    assert num_ticks == len(played.answers) == clients.num_requests == AGENTS.agents * AGENTS.turns
    assert set(played.digests) == {"agent0", "agent1"}


def test_other_answers_are_seen_and_named() -> None:
    _, one, _ = play(CHATS, 1, Listener("yes"))
    _, same, _ = play(CHATS, 1, Listener("yes"))
    _, other, _ = play(CHATS, 1, Listener("no"))
    assert differing([one, same]) == []
    assert differing([one, other]) == [f"chat{n}" for n in range(5)]
