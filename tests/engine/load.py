"""What the tests of the engine ask the tiny model; and a load that is more than its pools hold, kept up until the log
shows what is looked for.

Every answer is compared with that of vLLM without a connector. The tests of the engine import it.
"""

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.engine import tiny
from tests.engine.server import BLOCK, Server

CLIENTS = 10
SHARED_BLOCKS = 2
MAX_TOKENS = 160
GPU_BLOCKS = 24
CPU_BLOCKS = 20
"""Blocks that can be used. Ten requests of up to ten blocks, two of them shared, fit in neither tier."""


def make_prompts() -> list[list[int]]:
    """One for each client: a head of two blocks that all share, then one to three blocks of its own."""
    draw = random.Random("load")
    head = draw.choices(range(100, 40_000), k=SHARED_BLOCKS * BLOCK)
    return [head + draw.choices(range(100, 40_000), k=BLOCK + 7 * n) for n in range(CLIENTS)]


def make_leaver_prompts() -> tuple[list[list[int]], list[list[int]]]:
    """Two prompts of seven blocks and a token, which the CPU tier can keep, and four of twelve, which it cannot."""
    draw = random.Random("leavers")
    kept = [draw.choices(range(100, 40_000), k=7 * BLOCK + 1) for _ in range(2)]
    return kept, [draw.choices(range(100, 40_000), k=12 * BLOCK + 1) for _ in range(4)]


def steps_that_restored_while_off(server: Server, since: int) -> list[dict[str, Any]]:
    """Steps in which a re-store was ordered although re-store was off in them and in both steps before, by the log.

    `since`: a row of the log, so that only later policies are looked at. What was chosen at the end of a request leaves
    with the next step, and a policy that an idle engine obeys bears the number of the step before.
    """
    policy = "SELECT enabled FROM policy_applied WHERE seq > :seq AND step {} ORDER BY seq DESC LIMIT 1"
    off = " AND ".join(f"({policy.format(by)}) = 0" for by in ("< s.step - 1", "<= s.step"))
    return server.rows(f"SELECT * FROM steps AS s WHERE num_restored > 0 AND {off}", seq=since)


def keep_busy(
    server: Server,
    prompts: list[list[int]],
    expected: list[list[int]],
    is_seen: Callable[[], bool],
    num_requests: int = 400,
) -> bool:
    """Ten clients ask one thing after the other until `is_seen` says so or `num_requests` are answered.

    Returns whether it was seen; it is asked after every answer. A shorter answer to the same prompt is the beginning of
    the longer one, so `expected` holds the longest.
    """
    done = threading.Event()
    numbers = itertools.count()
    one_at_a_time = threading.Lock()

    def ask_on() -> None:
        try:
            while not done.is_set() and (number := next(numbers)) < num_requests:
                draw = random.Random(f"request {number}")
                which, length = draw.randrange(len(prompts)), draw.randrange(20, MAX_TOKENS)
                answer = server.complete(prompts[which], length, tiny.NAME)[1]
                assert answer == expected[which][:length], f"prompt {which}, {length} tokens"
                with one_at_a_time:
                    if not done.is_set() and is_seen():
                        seen.append(number)
                        done.set()
        except BaseException:
            done.set()
            raise

    seen: list[int] = []
    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(ask_on) for _ in range(CLIENTS)]
    for client in clients:
        client.result()
    return bool(seen)
