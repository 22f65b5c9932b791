"""What clients send: requests with their arrival times, of open streams (traces) and closed loops (conversations).

Pure. A token here is a number that stands for content: equal numbers are equal content, and nothing else is asked of
it. A request's answer is written in numbers of its own (`answer_base` plus position), so it is the same under every
policy.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Play:
    """One request.

    Attributes:
        stream: the conversation, agent or trace that sends it. Requests of one stream are the same under every policy.
        number: which of its stream's requests it is, from 0 on.
        tokens: its prompt.
        num_output_tokens: how many tokens it decodes, at least 1.
        answer_base: the token that it decodes at position p (the prompt included) is `answer_base + p`.
        at_seconds: when it arrives, on the virtual clock.
    """

    stream: str
    number: int
    tokens: list[int]
    num_output_tokens: int
    answer_base: int
    at_seconds: float
    is_agent: bool = False

    @property
    def request_id(self) -> str:
        return f"{self.stream}-{self.number}"


@dataclass(frozen=True, slots=True)
class Longest:
    """The longest request there can be: its prompt and what it decodes, in tokens. `where` names it to a person."""

    num_prompt_tokens: int
    num_output_tokens: int
    where: str

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens


class Traffic(Protocol):
    """All clients of one run. A run asks in the order of the virtual clock."""

    has_agents: bool
    """Whether some of the requests are agents', whose own hit rate is told apart."""
    open_streams: frozenset[str]
    """Streams that end when others do: how many requests they send depends on the policy, but not which."""

    def next_at(self) -> float | None:
        """When the next request arrives; None where none does before another one is answered, or ever."""
        ...

    def take(self, now: float) -> list[Play]:
        """The requests that have arrived by `now` and were not taken yet, in order."""
        ...

    def answered(self, play: Play, now: float) -> None:
        """A request was answered in full."""
        ...

    @property
    def num_requests(self) -> int:
        """How many requests will be taken in all; those of open streams not counted."""
        ...

    @property
    def longest(self) -> Longest:
        """The longest request there can be."""
        ...

    @property
    def num_blocks_hint(self) -> int:
        """About how many blocks of distinct content the requests fill."""
        ...


class Agenda:
    """Requests that will arrive, in the order of their times and then in the order in which they were noted."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[float], Play | None]]] = []
        self._noted = 0

    def note(self, at_seconds: float, make: Callable[[float], Play | None]) -> None:
        """`make` builds the request when its time has come; None: it does not come after all."""
        heapq.heappush(self._heap, (at_seconds, self._noted, make))
        self._noted += 1

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Play]:
        while self._heap and self._heap[0][0] <= now:
            at_seconds, _, make = heapq.heappop(self._heap)
            if (play := make(at_seconds)) is not None:
                yield play
