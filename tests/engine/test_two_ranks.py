"""Two ranks of the real engine: a block can be found only when both have copied it; with toggles under a load."""

import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest

from tests.engine import gate, load, tiny
from tests.engine.conftest import expected_of, serve
from tests.engine.server import BLOCK, Server

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two ranks of the engine need two cores"),
]

POLICIES = (
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 0},
    {"enabled": False},
    {"enabled": True, "mode": "rescan", "max_restore_blocks_per_step": 64},
    {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 1},
    {"enabled": True, "mode": "rescan", "max_restore_blocks_per_step": 1},
)
STEPS_UNDER_POLICY = "SELECT 1 FROM steps WHERE step > (SELECT max(step) FROM policy_applied) + 5 LIMIT 1"


@pytest.fixture(scope="module")
def two_ranks(
    tiny_model: Path, expected: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The tiny model on two ranks, with tiers that the load overflows."""
    yield from serve(tiny_model, tmp_path_factory.mktemp("two-ranks"), 2)


@pytest.fixture(scope="module")
def expected(
    tiny_model: Path, load_prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> list[list[int]]:
    """The longest answers of two ranks without a connector."""
    return expected_of(tiny_model, load_prompts, tmp_path_factory.mktemp("expected"), 2)


def test_what_both_ranks_have_copied_is_found_again(
    two_ranks: Server, load_prompts: list[list[int]], expected: list[list[int]]
) -> None:
    prompt, answer = load_prompts[-1], expected[-1]
    request_id, first, _ = two_ranks.complete(prompt, 40, tiny.NAME)
    two_ranks.await_rows("SELECT * FROM blocks_stored WHERE request_id LIKE :id || '%'", id=request_id)
    two_ranks.await_copies()
    two_ranks.empty_gpu_cache()
    again_id, again, cached = two_ranks.complete(prompt, 40, tiny.NAME)
    full = (len(prompt) - 1) // BLOCK
    assert (first, again, cached) == (answer[:40], answer[:40], full * BLOCK)
    loaded = two_ranks.await_rows("SELECT * FROM blocks_loaded WHERE request_id LIKE :id || '%'", id=again_id)
    assert sum(row["num_blocks"] for row in loaded) == full


def fill_gpu(server: Server, num_blocks: int) -> None:
    """Takes so many blocks of the GPU at once, which forgets what lay there; no block gets full, so none is stored."""
    draw = random.Random("filler")
    prompts = [draw.choices(range(100, 40_000), k=4) for _ in range(num_blocks)]
    server.client().completions.create(
        model=tiny.NAME, prompt=prompts, max_tokens=BLOCK - 5, temperature=0, extra_body={"ignore_eos": True}
    )


@pytest.mark.parametrize("late", [0, 1], ids=["first rank late", "second rank late"])
def test_a_block_is_found_only_when_the_later_rank_has_copied_it_too(
    two_ranks: Server, load_prompts: list[list[int]], expected: list[list[int]], late: int
) -> None:
    server, prompt = two_ranks, load_prompts[-1]
    full = (len(prompt) - 1) // BLOCK
    head = load.SHARED_BLOCKS
    server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)
    server.empty_both_tiers()
    # The head of the prompt is copied by both ranks.
    server.complete(load_prompts[0], 1, tiny.NAME)
    server.await_copies()
    passed = [gate.num_passed(server.folder, rank) for rank in (0, 1)]

    def stored_of(request_id: str) -> int:
        sql = "SELECT coalesce(sum(num_blocks), 0) AS n FROM blocks_stored WHERE request_id LIKE :id || '%'"
        return server.rows(sql, id=request_id)[0]["n"]

    with ThreadPoolExecutor(1) as pool, gate.shut(server.folder, late):
        request_id = server.complete(prompt, 1, tiny.NAME)[0]
        # Dozens of steps in which the other rank copies its half of the rest and says so.
        fill_gpu(server, load.GPU_BLOCKS - (full - head))
        done = [gate.num_passed(server.folder, rank) - before for rank, before in enumerate(passed)]
        assert done[late] == 0
        assert done[1 - late] > 0
        assert stored_of(request_id) == 0
        start = server.newest_seq()
        again = pool.submit(server.complete, prompt, 40, tiny.NAME)
        lookup = server.await_rows("SELECT * FROM lookup WHERE seq > :seq", seq=start)[0]
        assert (lookup["gpu_hit_tokens"], lookup["cpu_hit_tokens"]) == (0, head * BLOCK)
    assert again.result()[1:] == (expected[-1][:40], head * BLOCK)
    server.await_copies()
    assert stored_of(request_id) == full - head

    # Both have: all of it is found.
    server.empty_gpu_cache()
    assert server.complete(prompt, 40, tiny.NAME)[1:] == (expected[-1][:40], full * BLOCK)
    server.empty_both_tiers()


def test_answers_of_two_ranks_under_load_with_toggles_are_those_without_a_connector(
    two_ranks: Server, load_prompts: list[list[int]], expected: list[list[int]]
) -> None:
    before = two_ranks.newest_seq()
    asked: list[tuple[int, bool]] = []
    done = threading.Event()

    def toggle() -> None:
        for policy in cycle(POLICIES):
            if done.is_set():
                return
            # Answered, whatever the engine is at; and it obeys.
            state = two_ranks.set_policy(**policy)
            asked.append((state["version"], bool(policy["enabled"])))
            # And for some steps, so that something happens under it.
            while not done.wait(0.02) and not two_ranks.rows(STEPS_UNDER_POLICY):
                pass

    def is_seen() -> bool:
        """Each policy was in force twice, and all that can happen to a request has happened."""
        happened = "SELECT DISTINCT kind FROM events WHERE seq > :seq"
        kinds = {row["kind"] for row in two_ranks.rows(happened, seq=before)}
        wanted = {"blocks_stored", "blocks_restored", "blocks_loaded", "request_preempted"}
        return len(asked) >= 2 * len(POLICIES) and wanted <= kinds

    toggler = threading.Thread(target=toggle)
    toggler.start()
    try:
        assert load.keep_busy(two_ranks, load_prompts, expected, is_seen), asked
    finally:
        done.set()
        toggler.join()
    two_ranks.await_copies()
    restored = two_ranks.rows("SELECT sum(num_blocks) AS n FROM blocks_restored WHERE seq > :seq", seq=before)
    assert restored[0]["n"] > 0
    obeyed = "SELECT policy_version, enabled FROM policy_applied WHERE seq > :seq ORDER BY seq"
    assert [(row["policy_version"], bool(row["enabled"])) for row in two_ranks.rows(obeyed, seq=before)] == asked
    assert load.steps_that_restored_while_off(two_ranks, before) == []
    two_ranks.empty_both_tiers()
