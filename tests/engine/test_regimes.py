"""What vLLM's scheduler does to requests, in the real engine: all at once, with the embedded model under load."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest

from tests.engine.load import steps_that_restored_while_off
from tests.engine.server import BLOCK, MODEL, Server
from tests.engine.talks import LESSON_TOKENS, Talks

pytestmark = pytest.mark.engine

POLICIES = (
    {"enabled": False},
    {"enabled": True, "mode": "rescan"},
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 1},
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 0},
)


def leave_early(server: Server, prompt: list[int]) -> None:
    """A client that goes away after the first token."""
    stream: Any = server.client().completions.create(
        model=MODEL, prompt=prompt, max_tokens=400, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()


def test_answers_under_load_with_toggles_preemptions_and_aborts_are_those_without_a_connector(
    live_server: Server, talks: Talks
) -> None:
    prompts, expected = talks.lessons, talks.lesson_answers
    before = live_server.newest_seq()
    done = threading.Event()

    def toggle() -> int:
        changes = 0
        for policy in cycle(POLICIES):
            if done.is_set():
                return changes
            live_server.set_policy(**policy)
            changes += 1
        return changes

    with ThreadPoolExecutor(len(prompts) + 3) as pool:
        toggler = pool.submit(toggle)
        try:
            for _ in range(2):
                leavers = [pool.submit(leave_early, live_server, prompt[: 4 * BLOCK + 1]) for prompt in prompts[:2]]
                answers = list(pool.map(lambda p: live_server.complete(p, LESSON_TOKENS)[1], prompts))
                for leaver in leavers:
                    leaver.result()
                assert answers == expected
                live_server.await_copies()
                live_server.empty_gpu_cache()
        finally:
            done.set()
        assert toggler.result() >= len(POLICIES)
    live_server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)

    assert live_server.rows("SELECT 1 FROM request_preempted WHERE seq > :seq", seq=before)
    assert live_server.rows(
        "SELECT 1 FROM request_finished WHERE status = 'FINISHED_ABORTED' AND seq > :seq", seq=before
    )
    assert live_server.rows("SELECT 1 FROM blocks_loaded WHERE seq > :seq", seq=before)
    assert steps_that_restored_while_off(live_server, before) == []
    assert live_server.rows("SELECT * FROM fault") == []
    assert live_server.rows("SELECT * FROM events_dropped") == []
