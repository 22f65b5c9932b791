"""Seeded random traffic: what clients and the engine do to each other, as a list of actions that can be played to any
number of engines.

Test support.
"""

import random
from dataclasses import dataclass
from typing import Any

from harness import BLOCK, Engine, Step
from vllm.lora.request import LoRARequest

HEADS = 4
ADAPTERS = (None, LoRARequest("first", 1, "/nowhere"), LoRARequest("second", 2, "/nowhere"))


@dataclass(frozen=True)
class Owner:
    """Whose content it is, and how urgent. `adapter`: 0 for none, else which."""

    salt: int = 0
    adapter: int = 0
    priority: int = 0

    def as_arguments(self) -> dict[str, Any]:
        """Of vLLM's `Request`."""
        return {
            "cache_salt": f"s{self.salt}" if self.salt else None,
            "lora_request": ADAPTERS[self.adapter],
            "priority": self.priority,
        }


@dataclass(frozen=True)
class Action:
    """One thing done between two steps. `kind` is a method of `Player`."""

    kind: str
    args: tuple[Any, ...] = ()


def actions(
    seed: int,
    count: int,
    *,
    resets: bool = True,
    preemptions: bool = True,
    owners: bool = False,
    sessions: bool = False,
) -> list[Action]:
    """`count` steps with arrivals, aborts, ends, resets and preemptions between them.

    `owners`: requests differ in salt, adapter and priority. `sessions`: some are sessions of streamed inputs.
    """
    rng = random.Random(seed)
    more = random.Random(seed + 1_000_000)
    streams: list[str] = []
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
            owner = Owner(more.randrange(2), more.randrange(3), more.randrange(3)) if owners else Owner()
            is_session = sessions and more.random() < 0.3
            if is_session:
                streams.append(request_id)
            done.append(Action("add", (*args, rng.randrange(1, 60), owner, is_session)))
        elif draw < 0.42:
            done.append(Action("abort", (live.pop(rng.randrange(len(live))),)))
        elif draw < 0.50:
            done.append(Action("finish", (live.pop(rng.randrange(len(live))),)))
        elif draw < 0.52 and resets:
            done.append(Action("reset_tier"))
        elif draw < 0.54 and preemptions:
            done.append(Action("preempt_all"))
        if streams and more.random() < 0.2:
            extended = more.choice(streams[-4:])
            done.append(Action("extend", (extended, more.randrange(90), more.randrange(1, 60), more.randrange(1, 30))))
        done.append(Action("step"))
        live = live[-8:]
    return done


def long_and_short(seed: int, count: int) -> list[Action]:
    """`count` steps of one request that runs long, with short ones that come and go: what the long one owns ages in the
    tier, and others' content takes its place. It is followed by another one a few times."""
    rng = random.Random(seed)
    done: list[Action] = []
    number = 0
    long: str | None = None

    def add(num_shared: int, num_own: int, max_tokens: int) -> str:
        nonlocal number
        number += 1
        args = (f"r{number}", rng.randrange(HEADS), num_shared, num_own, rng.randrange(BLOCK), max_tokens)
        done.append(Action("add", (*args, Owner(), False)))
        return f"r{number}"

    for _ in range(count):
        draw = rng.random()
        if long is None or draw < 0.03:
            if long is not None:
                done.append(Action("finish", (long,)))
            long = add(rng.randrange(4), rng.randrange(2, 8), 400)
        elif draw < 0.40:
            add(rng.randrange(3), rng.randrange(4), rng.randrange(1, 10))
        elif draw < 0.42:
            done.append(Action("preempt_all"))
        elif draw < 0.43:
            done.append(Action("reset_tier"))
        done.append(Action("step"))
    return done


class Player:
    """Plays actions to one engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def play(self, action: Action) -> Step | None:
        return getattr(self, f"_{action.kind}")(*action.args)

    def _add(
        self,
        request_id: str,
        head: int,
        shared: int,
        own: int,
        extra: int,
        max_tokens: int,
        owner: Owner,
        is_session: bool,
    ) -> None:
        number = int(request_id[1:])
        tokens = [1_000 + head * 100 + i // BLOCK for i in range(shared * BLOCK)]
        tokens += [20_000 + number * 7 + i // BLOCK for i in range(own * BLOCK + extra + 1)]
        self.engine.add(request_id, tokens, max_tokens=max_tokens, resumable=is_session, **owner.as_arguments())

    def _extend(self, request_id: str, tail: int, tokens: int, max_tokens: int) -> None:
        if not self.engine.requests[request_id].is_finished():
            self.engine.extend(request_id, [30_000 + tail * 7 + i // BLOCK for i in range(tokens)], max_tokens)

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
