"""Requests whose blocks were refused a place, and when in a step each of them is asked again.

Pure: standard library only. The log says whose cursor moved, in vLLM's order, and not who was asked in vain: in a
shadow those are asked between the others, at the place at which vLLM walks them. That is in the order in which they
began to run; who is new in a step comes first.
"""

from bisect import insort
from collections.abc import Iterator

Turn = tuple[tuple[bool, int], str]


class Turns:
    """The order of one engine's running requests, and who of them waits."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._next_number = 1
        self._asked: set[str] = set()
        self._waiting: set[str] = set()
        self._ahead: list[Turn] = []

    def runs(self, request_id: str) -> None:
        """The request is scheduled from now on; nothing happens where it was."""
        if request_id not in self._numbers:
            self._numbers[request_id] = self._next_number
            self._next_number += 1

    def stops(self, request_id: str) -> None:
        """It is over, or was preempted."""
        self._numbers.pop(request_id, None)
        self._asked.discard(request_id)
        self._waiting.discard(request_id)

    def waits(self, request_id: str, *, is_waiting: bool) -> None:
        """Whether blocks of the request are ready that have no place yet."""
        if is_waiting:
            self._waiting.add(request_id)
        else:
            self._waiting.discard(request_id)

    def begin_step(self) -> None:
        """The step's first stores are about to be chosen."""
        self._ahead = sorted((self._turn(r), r) for r in self._waiting)

    def is_due(self, request_id: str) -> None:
        """The request has its turn in this step, whether or not it waited before."""
        turn = (self._turn(request_id), request_id)
        if turn not in self._ahead:
            insort(self._ahead, turn)

    def until(self, request_id: str) -> Iterator[str]:
        """Who has his turn before this request, which takes its own. Each once."""
        self.runs(request_id)
        turn = (self._turn(request_id), request_id)
        while self._ahead and self._ahead[0] < turn:
            yield self._take()
        if self._ahead and self._ahead[0] == turn:
            self._take()
        self._asked.add(request_id)

    def rest(self) -> Iterator[str]:
        """Who has his turn still."""
        while self._ahead:
            yield self._take()

    def _take(self) -> str:
        request_id = self._ahead.pop(0)[1]
        if request_id in self._numbers:
            self._asked.add(request_id)
        return request_id

    def _turn(self, request_id: str) -> tuple[bool, int]:
        return request_id in self._asked, self._numbers.get(request_id, 0)
