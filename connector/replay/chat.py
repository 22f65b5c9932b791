"""Closed-loop chats and agents, as `workloads.json` describes them. Pure.

Every conversation, agent and stream of one-shot prompts draws all its numbers from a generator of its own, before it
starts: so they are the same whatever the engine does.
"""

import random
from dataclasses import dataclass
from functools import partial

from connector.replay.traffic import Agenda, Longest, Play

STRIDE = 1 << 32
"""Tokens of one author are numbered from a multiple of this on."""
SYSTEM_BASE = 0
"""Authors from here on are the shared system prompts; conversations come after `MAX_SYSTEMS`."""
MAX_SYSTEMS = 16
POLLUTION = "one-shot"


@dataclass(frozen=True, slots=True)
class ChatSpec:
    """A chat workload. Lengths in tokens."""

    active: int
    total: int
    turns: tuple[int, int]
    system_len: int
    first_len: float
    user_len: float
    output_len: float
    think_seconds: float


@dataclass(frozen=True, slots=True)
class AgentsSpec:
    """A workload of agents among one-shot prompts. Lengths in tokens."""

    agents: int
    turns: int
    prompt: float
    observation: float
    output: float
    tool_seconds: float
    pollution_len: float
    pollution_per_second: float


CHAT_SYSTEMS = 4
AGENT_SYSTEMS = 2
AGENT_SYSTEM_LEN = 256
MIN_USER_LEN = 4
MIN_OUTPUT_LEN = 2
POLLUTION_OUTPUT_LEN = 2
STEP_SECONDS = 0.03
"""About what a decoded token takes, to guess how long agents are at work."""


@dataclass(slots=True)
class Turn:
    """`num_new`: tokens that the user (or a tool) adds. `pause_seconds`: from the answer to the next turn."""

    num_new: int
    num_output: int
    pause_seconds: float


class Talk:
    """One conversation: a shared head, and turns each of which extends all that was said before.

    Attributes:
        system: which of the shared heads it has; `system_len`: their length in tokens.
    """

    def __init__(self, name: str, author: int, system: int, system_len: int, turns: list[Turn], *, is_agent: bool):
        self.name = name
        self.turns = turns
        self.is_agent = is_agent
        self.system = system
        self.system_len = system_len
        self._base = (MAX_SYSTEMS + author) * STRIDE
        self._head = [(SYSTEM_BASE + system) * STRIDE + i for i in range(system_len)]
        self._length = system_len
        self._next = 0

    def send(self, at_seconds: float) -> Play:
        """The next turn's request."""
        turn = self.turns[self._next]
        self._length += turn.num_new
        tokens = self._head + list(range(self._base + len(self._head), self._base + self._length))
        play = Play(self.name, self._next, tokens, turn.num_output, self._base, at_seconds, self.is_agent)
        self._length += turn.num_output
        self._next += 1
        return play

    @property
    def is_over(self) -> bool:
        return self._next == len(self.turns)

    @property
    def longest(self) -> Longest:
        """Its last request."""
        said = len(self._head) + sum(t.num_new + t.num_output for t in self.turns)
        last = self.turns[-1].num_output
        return Longest(said - last, last, f"{self.name}, turn {len(self.turns)}")


def chat_talk(spec: ChatSpec, seed: int, number: int) -> Talk:
    """Conversation `number` of a chat workload."""
    rng = random.Random(f"chat/{seed}/{number}")
    system = rng.randrange(CHAT_SYSTEMS)
    turns: list[Turn] = []
    for turn in range(rng.randint(*spec.turns)):
        if turn == 0:
            new = max(1, round(spec.first_len * rng.lognormvariate(0, 0.8)))
        else:
            new = max(MIN_USER_LEN, round(spec.user_len * rng.lognormvariate(0, 0.7)))
        output = max(MIN_OUTPUT_LEN, round(spec.output_len * rng.lognormvariate(0, 0.6)))
        turns.append(Turn(new, output, rng.expovariate(1 / spec.think_seconds)))
    return Talk(f"chat{number}", number, system, spec.system_len, turns, is_agent=False)


def agent_talk(spec: AgentsSpec, seed: int, number: int) -> Talk:
    """Agent `number` of an agents workload."""
    rng = random.Random(f"agent/{seed}/{number}")
    system = rng.randrange(AGENT_SYSTEMS)
    turns: list[Turn] = []
    for turn in range(spec.turns):
        if turn == 0:
            new = max(1, round(spec.prompt * rng.uniform(0.6, 1.4)))
        else:
            new = max(1, round(spec.observation * rng.lognormvariate(0, 0.7)))
        output = max(1, round(spec.output * rng.uniform(0.5, 1.5)))
        turns.append(Turn(new, output, rng.expovariate(1 / spec.tool_seconds)))
    return Talk(f"agent{number}", number, system, AGENT_SYSTEM_LEN, turns, is_agent=True)


class ClosedLoop:
    """Talks, some at a time, the next one beginning when one ends; and one-shot prompts beside them."""

    def __init__(self, talks: list[Talk], active: int, block_size: int) -> None:
        self.has_agents = any(t.is_agent for t in talks)
        self.open_streams: frozenset[str] = frozenset()
        self._block_size = block_size
        self._talks = talks
        self._by_name = {t.name: t for t in talks}
        self._agenda = Agenda()
        self._waiting = iter(talks[active:])
        self._num_left = len(talks)
        for talk in talks[:active]:
            self._agenda.note(0.0, talk.send)

    def next_at(self) -> float | None:
        return self._agenda.next_at()

    def take(self, now: float) -> list[Play]:
        return list(self._agenda.due(now))

    def answered(self, play: Play, now: float) -> None:
        talk = self._by_name.get(play.stream)
        if talk is None:
            return
        if not talk.is_over:
            self._agenda.note(now + talk.turns[play.number].pause_seconds, talk.send)
            return
        self._num_left -= 1
        if (fresh := next(self._waiting, None)) is not None:
            self._agenda.note(now, fresh.send)

    @property
    def num_requests(self) -> int:
        return sum(len(t.turns) for t in self._talks)

    @property
    def longest(self) -> Longest:
        return max((t.longest for t in self._talks), key=lambda longest: longest.num_tokens)

    @property
    def num_blocks_hint(self) -> int:
        return sum(t.longest.num_tokens // self._block_size + 1 for t in self._talks)


class AgentsAmongOthers(ClosedLoop):
    """Agents in closed loops, and a Poisson stream of prompts that nobody asks again until the agents end."""

    def __init__(self, talks: list[Talk], spec: AgentsSpec, seed: int, block_size: int) -> None:
        super().__init__(talks, len(talks), block_size)
        self.open_streams = frozenset({POLLUTION})
        self._spec = spec
        self._rng = random.Random(f"one-shot/{seed}")
        self._num_sent = 0
        self._note_next(0.0)

    def _note_next(self, now: float) -> None:
        if self._spec.pollution_per_second > 0:
            rng = self._rng
            at = now + rng.expovariate(self._spec.pollution_per_second)
            length = max(1, round(self._spec.pollution_len * rng.uniform(0.5, 1.5)))
            self._agenda.note(at, partial(self._pollute, length))

    def _pollute(self, length: int, at_seconds: float) -> Play | None:
        if not self._num_left:
            return None
        base = (MAX_SYSTEMS + len(self._talks) + self._num_sent) * STRIDE
        play = Play(POLLUTION, self._num_sent, list(range(base, base + length)), POLLUTION_OUTPUT_LEN, base, at_seconds)
        self._num_sent += 1
        self._note_next(at_seconds)
        return play

    def next_at(self) -> float | None:
        return self._agenda.next_at() if self._num_left else None

    @property
    def num_blocks_hint(self) -> int:
        seconds = max(sum(t.pause_seconds + STEP_SECONDS * t.num_output for t in talk.turns) for talk in self._talks)
        blocks = seconds * self._spec.pollution_per_second * self._spec.pollution_len / self._block_size
        return super().num_blocks_hint + round(blocks)

    @property
    def longest(self) -> Longest:
        other = Longest(round(self._spec.pollution_len * 1.5), POLLUTION_OUTPUT_LEN, "the longest one-shot prompt")
        return max(super().longest, other, key=lambda longest: longest.num_tokens)


def chats(spec: ChatSpec, seed: int, block_size: int) -> ClosedLoop:
    """The chat workload's clients."""
    return ClosedLoop([chat_talk(spec, seed, n) for n in range(spec.total)], spec.active, block_size)


def agents(spec: AgentsSpec, seed: int, block_size: int) -> AgentsAmongOthers:
    """The agents workload's clients."""
    return AgentsAmongOthers([agent_talk(spec, seed, n) for n in range(spec.agents)], spec, seed, block_size)
