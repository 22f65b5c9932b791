"""What vLLM's scheduler does to requests, in the real engine: all at once, with the embedded model under load."""

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.engine.load import steps_that_restored_while_off
from tests.engine.references import answers_of
from tests.engine.server import BLOCK, GPU_BLOCKS, MODEL, Server

pytestmark = pytest.mark.engine

MAX_TOKENS = 48
SUBJECTS = ("tides", "volcanoes", "printing", "glass", "salt", "clocks", "maps", "bridges")
POLICIES = (
    {"enabled": False},
    {"enabled": True, "mode": "rescan"},
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 1},
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 0},
)


@pytest.fixture(scope="module")
def prompts(live_server: Server) -> list[list[int]]:
    """Eight conversations of nine blocks and a few tokens each, with a shared head."""
    found: list[list[int]] = []
    for subject in SUBJECTS:
        text = f"Please explain the history of {subject} to a curious child, step by step, with dates. " * 14
        messages = [{"role": "system", "content": "You are a kind teacher."}, {"role": "user", "content": text}]
        found.append(live_server.api("POST", "/tokenize", json={"model": MODEL, "messages": messages}).json()["tokens"])
    needed = sum(-(-(len(p) + MAX_TOKENS) // BLOCK) for p in found)
    assert needed > GPU_BLOCKS, "all of them together must not fit, so that some are preempted"
    return found


def leave_early(server: Server, prompt: list[int]) -> None:
    """A client that goes away after the first token."""
    stream: Any = server.client().completions.create(
        model=MODEL, prompt=prompt, max_tokens=400, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()


def test_answers_under_load_with_toggles_preemptions_and_aborts_are_those_without_a_connector(
    live_server: Server, prompts: list[list[int]], tmp_path: Path
) -> None:
    expected = answers_of("none", prompts, MAX_TOKENS, tmp_path).first
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
                answers = list(pool.map(lambda p: live_server.complete(p, MAX_TOKENS)[1], prompts))
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
