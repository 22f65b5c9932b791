"""Seeded random traffic: what clients and the engine do to each other, as a list of actions that can be played to any
number of engines.

Test support.
"""

import random
from dataclasses import dataclass
from typing import Any

from harness import BLOCK, Engine, Step

HEADS = 4


@dataclass(frozen=True)
class Action:
    """One thing done between two steps. `kind` is a method of `Player`."""

    kind: str
    args: tuple[Any, ...] = ()


def actions(seed: int, count: int, *, resets: bool = True, preemptions: bool = True) -> list[Action]:
    """`count` steps with arrivals, aborts, ends, resets and preemptions between them."""
    rng = random.Random(seed)
    done: list[Action] = []
    live: list[str] = []
    number = 0
    for _ in range(count):
        draw = rng.random()
        if draw < 0.35 or not live:
            number += 1
            request_id = f"r{number}"
            live.append(request_id)
            args = (request_id, rng.randrange(HEADS), rng.randrange(0, 5), rng.randrange(0, 5), rng.randrange(0, BLOCK))
            done.append(Action("add", (*args, rng.randrange(1, 60))))
        elif draw < 0.42:
            done.append(Action("abort", (live.pop(rng.randrange(len(live))),)))
        elif draw < 0.50:
            done.append(Action("finish", (live.pop(rng.randrange(len(live))),)))
        elif draw < 0.52 and resets:
            done.append(Action("reset_tier"))
        elif draw < 0.54 and preemptions:
            done.append(Action("preempt_all"))
        done.append(Action("step"))
        live = live[-8:]
    return done


class Player:
    """Plays actions to one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def play(self, action: Action) -> Step | None:
        return getattr(self, f"_{action.kind}")(*action.args)

    def _add(self, request_id: str, head: int, shared: int, own: int, extra: int, max_tokens: int) -> None:
        number = int(request_id[1:])
        tokens = [1_000 + head * 100 + i // BLOCK for i in range(shared * BLOCK)]
        tokens += [20_000 + number * 7 + i // BLOCK for i in range(own * BLOCK + extra + 1)]
        self.engine.add(request_id, tokens, max_tokens=max_tokens)

    def _abort(self, request_id: str) -> None:
        self.engine.abort(request_id)

    def _finish(self, request_id: str) -> None:
        self.engine.finish(request_id)

    def _reset_tier(self) -> None:
        self.engine.reset_tier()

    def _preempt_all(self) -> None:
        # vLLM refuses, by an exception, while copies or a step that is being computed hold GPU blocks.
        if not self.engine.is_busy:
            self.engine.preempt_all()

    def _step(self) -> Step:
        return self.engine.step()
