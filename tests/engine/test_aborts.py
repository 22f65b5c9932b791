"""Clients that go away from the real engine: before their request is scheduled, during its prefill, during its load."""

import http.client
import json
import random
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine import load, tiny
from tests.engine.server import Server

pytestmark = pytest.mark.engine

MOST_WAVES = 60

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
    """Asks, waits so long at most, and closes the connection. Returns the request's id."""
    name = uuid.uuid4().hex
    body = {"model": tiny.NAME, "prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    headers = {"Content-Type": "application/json", "X-Request-Id": name}
    connection.request("POST", "/v1/completions", json.dumps(body), headers)
    # Not a wait for anything: the moment of the leave is drawn by chance, since no client can see where its request is.
    threading.Event().wait(wait_s)
    connection.close()
    return name


def test_requests_that_are_left_before_their_first_token_or_during_a_load_leave_nothing_behind(
    tiny_server: Server, expected_by_leavers: list[list[int]]
) -> None:
    draw = random.Random("moments")
    kept, long = load.make_leaver_prompts()
    tiny_server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)
    start = tiny_server.rows("SELECT max(seq) AS seq FROM events")[0]["seq"]
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
    # vLLM empties a pool only while nobody holds a block of it; then the log says so.
    tiny_server.empty_both_tiers()
    reset = tiny_server.await_rows("SELECT seq FROM cache_reset WHERE seq > :seq", seq=start)[-1]["seq"]
    # And a step after it, with one request that holds one block, finds all others free. Idle for a second, the engine
    # writes a row for a step that moves nothing.
    at_rest = "SELECT * FROM steps WHERE wall_ns > (SELECT wall_ns FROM events WHERE seq = :seq)"
    for _ in range(200):
        tiny_server.complete(kept[0][:8], 2, tiny.NAME)
        if tiny_server.rows(at_rest, seq=reset):
            break
    step = tiny_server.await_rows(at_rest, seq=reset)[-1]
    assert step["num_running"] == 1
    assert step["cpu_blocks_in_flight"] == 0
    assert step["cpu_blocks_free"] == load.CPU_BLOCKS
    assert step["gpu_blocks_free"] == load.GPU_BLOCKS - 1
