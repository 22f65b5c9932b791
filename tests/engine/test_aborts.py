"""Clients that go away from the real engine: before their request is scheduled, with or without a hit, during its
prefill, during its load, while its blocks are copied again."""

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine import gate, load, tiny
from tests.engine.leaver import Leaver
from tests.engine.server import BLOCK, Server

pytestmark = pytest.mark.engine

MOST_WAVES = 60
KEPT_BLOCKS = 7
"""Full blocks of a leaver's prompt that the CPU tier can keep."""

# No request of these had a token yet.
NEVER_SCHEDULED = """
    SELECT 1 FROM request_finished AS f WHERE seq > :seq AND status = 'FINISHED_ABORTED' AND num_output_tokens = 0
    AND NOT EXISTS (SELECT 1 FROM lookup WHERE request_id = f.request_id)
"""
IN_PREFILL = """
    SELECT 1 FROM request_finished AS f WHERE seq > :seq AND status = 'FINISHED_ABORTED' AND num_output_tokens = 0
    AND EXISTS (SELECT 1 FROM lookup WHERE request_id = f.request_id AND cpu_hit_tokens = 0)
"""
# The copy ended after the request did.
IN_LOAD = """
    SELECT 1 FROM request_finished AS f JOIN blocks_loaded AS l ON l.request_id = f.request_id AND l.seq > f.seq
    WHERE f.seq > :seq AND f.status = 'FINISHED_ABORTED' AND f.num_output_tokens = 0
"""


def go_away(server: Server, prompt: list[int], wait_s: float) -> str:
    """Asks, waits so long at most, and closes the connection. Returns a part of the request's id."""
    leaver = Leaver(server, prompt, 60)
    # Not a wait for anything: the moment of the leave is drawn by chance, since no client can see where its request is.
    threading.Event().wait(wait_s)
    leaver.leave()
    return leaver.name


def assert_all_is_given_back(server: Server, short: list[int]) -> None:
    """Nobody holds a block of either tier, except a request of less than a block that is asked meanwhile."""
    start = server.newest_seq()
    # vLLM empties a pool only while nobody holds a block of it.
    server.empty_both_tiers()
    reset = server.rows("SELECT seq FROM cache_reset WHERE seq > :seq ORDER BY seq", seq=start)[-1]["seq"]
    # And a step after it, with one request that holds one block, finds all others free. Idle for a second, the engine
    # writes a row for a step that moves nothing, be it the step after an end.
    at_rest = "SELECT * FROM steps WHERE wall_ns > (SELECT wall_ns FROM events WHERE seq = :seq) AND num_running = 1"
    for _ in range(200):
        server.complete(short, 2, tiny.NAME)
        if server.rows(at_rest, seq=reset):
            break
    step = server.await_rows(at_rest, seq=reset)[-1]
    assert step["cpu_blocks_in_flight"] == 0
    assert step["cpu_blocks_free"] == load.CPU_BLOCKS
    assert step["gpu_blocks_free"] == load.GPU_BLOCKS - 1


def places(server: Server, view: str, since: int, request_id: str = "") -> list[tuple[int, int]]:
    """(index in its chain, CPU block) of the blocks that a view names, of one request or of all, in the log's order."""
    query = f"SELECT * FROM {view} WHERE seq > :seq AND coalesce(request_id, '') LIKE '%' || :id || '%' ORDER BY seq"
    return [
        (row["first_index"] + n, cpu_block)
        for row in server.rows(query, seq=since, id=request_id)
        for n, cpu_block in enumerate(json.loads(row["cpu_block_ids"]))
    ]


def pinned(server: Server) -> int:
    """Blocks of the CPU tier that are shown as pinned."""
    return server.api("GET", "/restore/api/tier").json()["states"].get("pinned", 0)


def test_requests_that_are_left_before_their_first_token_or_during_a_load_leave_nothing_behind(
    tiny_server: Server, expected_by_leavers: list[list[int]]
) -> None:
    draw = random.Random("moments")
    kept, long = load.make_leaver_prompts()
    tiny_server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)
    start = tiny_server.newest_seq()
    situations = {"never scheduled": NEVER_SCHEDULED, "in prefill": IN_PREFILL, "in load": IN_LOAD}

    for _ in range(MOST_WAVES):
        missing = [name for name, sql in situations.items() if not tiny_server.rows(sql + " LIMIT 1", seq=start)]
        if not missing:
            break
        # What the CPU tier has and the GPU has not.
        for prompt in kept:
            tiny_server.complete(prompt, 1, tiny.NAME)
        tiny_server.await_copies()
        tiny_server.empty_gpu_cache()
        prompts = [long[0], *kept, *long[1:]]
        with ThreadPoolExecutor(len(prompts)) as pool:
            names = list(pool.map(lambda prompt: go_away(tiny_server, prompt, draw.random() * 0.08), prompts))
        # One that the server never handed on leaves no trace; of all others the log tells the end.
        of_wave = " OR ".join(f"request_id LIKE '%{name}%'" for name in names)
        tiny_server.complete(kept[0][:8], 1, tiny.NAME)
        tiny_server.await_rows(
            f"SELECT 1 WHERE (SELECT count(*) FROM request_started WHERE {of_wave}) ="
            f" (SELECT count(*) FROM request_finished WHERE {of_wave})"
        )
    else:
        pytest.fail(f"in {MOST_WAVES} waves no request was left while {' or '.join(missing)}")

    # It answers, and rightly: from what the left ones have computed and from what was to be loaded.
    for prompt, answer in zip([*kept, *long], expected_by_leavers, strict=True):
        assert tiny_server.complete(prompt, 20, tiny.NAME)[1] == answer[:20]
    tiny_server.await_copies()
    assert_all_is_given_back(tiny_server, kept[0][:8])


def test_a_request_that_is_left_while_it_waits_with_a_cpu_hit_gives_its_pins_back(
    tiny_server: Server, expected_by_leavers: list[list[int]]
) -> None:
    server = tiny_server
    (prompt, other), long = load.make_leaver_prompts()
    server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)
    server.empty_both_tiers()
    start = server.newest_seq()
    first_id = server.complete(prompt, 1, tiny.NAME)[0]
    server.complete(other, 1, tiny.NAME)
    server.await_copies()
    server.empty_gpu_cache()
    stored = places(server, "blocks_stored", start, first_id)
    assert [index for index, _ in stored] == list(range(KEPT_BLOCKS))
    kept = {cpu_block for _, cpu_block in places(server, "blocks_stored", start)}
    assert len(kept) == 2 * KEPT_BLOCKS

    hit = f"gpu_hit_tokens = 0 AND cpu_hit_tokens = {KEPT_BLOCKS * BLOCK}"
    with ThreadPoolExecutor(3) as pool, gate.shut(server.folder):
        # What no load has brought yet cannot be found on the GPU: each of the three takes seven of its 24 blocks for
        # its own load, and keeps them. The next request finds its blocks in the CPU tier and no place for them.
        loads = [pool.submit(server.complete, other, 20, tiny.NAME) for _ in range(3)]
        server.await_rows(f"SELECT 1 WHERE (SELECT count(*) FROM lookup WHERE seq > :seq AND {hit}) = 3", seq=start)
        leaver = Leaver(server, prompt, 20)
        leaver.await_row("lookup_waits", hit)
        assert pinned(server) == 2 * KEPT_BLOCKS
        leaver.leave()
        end = leaver.await_row("request_finished")
        assert (end["status"], end["num_output_tokens"]) == ("FINISHED_ABORTED", 0)
        assert leaver.rows("lookup") == []
        assert places(server, "blocks_loaded", start) == []
        assert pinned(server) == KEPT_BLOCKS
    assert [load.result()[1] for load in loads] == [expected_by_leavers[1][:20]] * 3

    # The next one is given what the one that left had found, from the same blocks.
    next_id, answer, num_cached = server.complete(prompt, 20, tiny.NAME)
    assert (answer, num_cached) == (expected_by_leavers[0][:20], KEPT_BLOCKS * BLOCK)
    server.await_rows("SELECT 1 FROM blocks_loaded WHERE request_id LIKE :id || '%'", id=next_id)
    assert places(server, "blocks_loaded", start, next_id) == stored
    assert pinned(server) == 0
    # And nothing keeps them there: 24 blocks that pass through a tier of 20 take the place of all 14.
    for passer in long[:2]:
        server.complete(passer, 1, tiny.NAME)
    server.await_copies()
    assert kept <= {cpu_block for _, cpu_block in places(server, "blocks_evicted", start)}
    assert_all_is_given_back(server, prompt[:8])


def leave_during_a_restore(server: Server, prompt: list[int], passers: list[list[int]]) -> Leaver:
    """Asks, lets other content push the request's blocks out of the CPU tier, and leaves while they are copied again.

    `passers`: 12 blocks that are stored, so that they can give way to the request's own; then what pushes those out.
    """
    leaver = Leaver(server, prompt, tiny.MAX_MODEL_LEN - len(prompt))
    leaver.await_first_token()
    server.complete(passers[0], 1, tiny.NAME)
    server.await_copies()
    with gate.shut(server.folder):
        server.complete(passers[1], 1, tiny.NAME)
        server.await_rows(
            "SELECT 1 WHERE (SELECT sum(num_restored) FROM steps) >"
            " coalesce((SELECT sum(num_blocks) FROM blocks_restored), 0)"
            " OR EXISTS (SELECT 1 FROM request_finished WHERE request_id LIKE '%' || :name || '%')",
            name=leaver.name,
        )
        leaver.leave()
        leaver.await_row("request_finished")
    server.await_copies()
    return leaver


def test_a_request_that_is_left_while_its_blocks_are_copied_again_leaves_the_copies_and_no_reference(
    tiny_server: Server, expected_by_leavers: list[list[int]]
) -> None:
    server = tiny_server
    (prompt, _), long = load.make_leaver_prompts()
    server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)
    for _ in range(MOST_WAVES):
        server.empty_both_tiers()
        leaver = leave_during_a_restore(server, prompt, [long[0], long[1][: 9 * BLOCK + 1]])
        end = leaver.await_row("request_finished")
        in_flight = [
            row
            for row in leaver.rows("blocks_restored")
            if row["scheduled_step"] <= end["step"] and row["seq"] > end["seq"]
        ]
        if end["status"] == "FINISHED_ABORTED" and in_flight:
            break
    else:
        pytest.fail(f"in {MOST_WAVES} tries no request was left while its blocks were copied again")

    # Each of them came to its end once, and can be found.
    restored = places(server, "blocks_restored", end["seq"], leaver.name)
    assert len({index for index, _ in restored}) == len(restored)
    server.empty_gpu_cache()
    next_id, answer, num_cached = server.complete(prompt, 20, tiny.NAME)
    assert (answer, num_cached) == (expected_by_leavers[0][:20], KEPT_BLOCKS * BLOCK)
    server.await_rows("SELECT 1 FROM blocks_loaded WHERE request_id LIKE :id || '%'", id=next_id)
    loaded = places(server, "blocks_loaded", end["seq"], next_id)
    assert {place for place in restored if place[0] < KEPT_BLOCKS} <= set(loaded)
    assert_all_is_given_back(server, prompt[:8])
