"""Requests whose blocks were refused a place, and when in a step each of them is asked again.

Pure: standard library only. The log says whose cursor moved, in vLLM's order, and not who was asked in vain: in a
shadow those are asked between the others, at the place at which vLLM walks them. That is in the order in which they
began to run; who is new in a step, and was not preempted before, comes first.
"""

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass

Turn = tuple[tuple[bool, int, int], str]


@dataclass(slots=True)
class _Seat:
    """A request's place in the order. `step`: the one in which it began to run; None while it waits for a load: then it
    is the one in which it is first heard of."""

    number: int
    is_resumed: bool
    step: int | None


class Turns:
    """The order of one engine's running requests, and who of them waits."""

    def __init__(self) -> None:
        self._seats: dict[str, _Seat] = {}
        self._waiting: set[str] = set()
        self._ahead: list[Turn] = []
        self._step = 0

    def admitted(self, request_id: str, number: int, *, is_resumed: bool, has_load: bool) -> None:
        """The request runs from the next step on, or once its load is over. `number`: which admission it was."""
        self._seats[request_id] = _Seat(number, is_resumed, None if has_load else self._step + 1)
        self._waiting.discard(request_id)

    def stops(self, request_id: str) -> None:
        """It is over, or was preempted."""
        self._seats.pop(request_id, None)
        self._waiting.discard(request_id)

    def waits(self, request_id: str, *, is_waiting: bool) -> None:
        """Whether blocks of the request are ready that have no place yet."""
        if is_waiting:
            self._waiting.add(request_id)
        else:
            self._waiting.discard(request_id)

    def begin_step(self) -> None:
        """The step's first stores are about to be chosen."""
        self._step += 1
        self._ahead = sorted((self._turn(r), r) for r in self._waiting)

    def is_due(self, request_id: str) -> None:
        """The request has its turn in this step, whether or not it waited before."""
        turn = (self._turn(request_id), request_id)
        if turn not in self._ahead:
            insort(self._ahead, turn)

    def until(self, request_id: str) -> Iterator[str]:
        """Who has his turn before this request, which takes its own. Each once."""
        turn = (self._turn(request_id), request_id)
        while self._ahead and self._ahead[0] < turn:
            yield self._ahead.pop(0)[1]
        if self._ahead and self._ahead[0] == turn:
            self._ahead.pop(0)

    def rest(self) -> Iterator[str]:
        """Who has his turn still."""
        while self._ahead:
            yield self._ahead.pop(0)[1]

    def _turn(self, request_id: str) -> tuple[bool, int, int]:
        seat = self._seats.get(request_id)
        if seat is None:
            return True, self._step, 0
        if seat.step is None:
            seat.step = self._step
        return seat.is_resumed or seat.step < self._step, seat.step, seat.number
