"""Requests are preempted in the real engine while blocks of their own are being copied again to the CPU tier."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine import gate
from tests.engine.load import keep_busy
from tests.engine.server import Server

pytestmark = pytest.mark.engine

# A copy of a block of the preempted request itself, that was ordered in a step before it was preempted and was over
# only after it was.
PREEMPTED_MEANWHILE = """
    SELECT 1 FROM request_preempted AS p JOIN blocks_restored AS r ON r.request_id = p.request_id
    WHERE p.seq > :seq AND r.seq > p.seq AND r.scheduled_step < p.step
"""
PREEMPTED_TWICE = "SELECT 1 FROM request_preempted WHERE seq > :seq AND num_preemptions = 2"
# An answer that was computed from what a re-store had kept.
LOADED_AGAIN = "SELECT 1 FROM blocks_loaded WHERE seq > :seq AND num_restored > 0"
OF_TIER = ("blocks_stored", "blocks_restored", "blocks_evicted")
OF_REQUEST = ("request_preempted", "lookup", "cursor_moved", "request_finished")


def shut_until_preemptions(server: Server, done: threading.Event) -> None:
    """Again and again, keeps all copies in flight until a request is preempted. The worker must wait for them then, and
    `gated_worker` sees to it that it does."""
    while not done.is_set():
        with gate.shut(server.folder):
            start = server.newest_seq()
            # In vain where all requests wait for a load: then they go on.
            for _ in range(40):
                preempted = server.rows("SELECT 1 FROM request_preempted WHERE seq > :seq LIMIT 1", seq=start)
                if preempted or done.wait(0.02):
                    break
        done.wait(0.1)


def assert_each_copy_counted_once(events: list[dict[str, Any]], num_cached: int) -> None:
    """From an empty tier on: no copy is registered on a block that holds one, none is lost that was not there, and at
    the end the tier holds what they leave."""
    held: set[int] = set()
    for event in events:
        if event["kind"] in OF_TIER:
            blocks = set(json.loads(event["cpu_block_ids"]))
            assert len(blocks) == event["num_blocks"]
            if event["kind"] == "blocks_evicted":
                assert blocks <= held, event
                held -= blocks
            else:
                assert not blocks & held, event
                held |= blocks
    assert len(held) == num_cached


def assert_all_start_again(events: list[dict[str, Any]]) -> None:
    """Each preempted request is looked up anew as a resumed one, its cursor starts again, and it comes to its end."""
    stories: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        if event["kind"] in OF_REQUEST:
            stories.setdefault(event["request_id"], []).append(event)
    num_preempted = 0
    for request_id, story in stories.items():
        cursor = num_preemptions = 0
        has_to_be_admitted = True
        for event in story:
            match event["kind"]:
                case "request_preempted":
                    num_preemptions += 1
                    assert event["num_preemptions"] == num_preemptions, request_id
                    cursor, has_to_be_admitted = 0, True
                case "lookup":
                    assert has_to_be_admitted, request_id
                    assert event["is_resumed"] == (num_preemptions > 0), request_id
                    has_to_be_admitted = False
                case "cursor_moved":
                    assert not has_to_be_admitted, request_id
                    assert event["from_index"] == cursor, request_id
                    cursor = event["to_index"]
                case _:
                    assert event["status"] == "FINISHED_LENGTH_CAPPED", request_id
        assert story[-1]["kind"] == "request_finished", request_id
        num_preempted += num_preemptions
    assert num_preempted


# Budgets in blocks a step: `rescan` copies in every step while the tier is too small; what `tracked` has lost in one
# step is then on its way for several.
@pytest.mark.parametrize(("mode", "budget"), [("rescan", 0), ("tracked", 1)], ids=["rescan", "tracked"])
def test_answers_are_right_where_requests_are_preempted_with_restores_of_their_blocks_in_flight(
    tiny_server: Server, load_prompts: list[list[int]], expected: list[list[int]], mode: str, budget: int
) -> None:
    server = tiny_server
    server.empty_both_tiers()
    server.set_policy(enabled=True, mode=mode, max_restore_blocks_per_step=budget)
    before = server.newest_seq()

    def is_seen() -> bool:
        wanted = (PREEMPTED_MEANWHILE, PREEMPTED_TWICE, LOADED_AGAIN)
        return all(server.rows(sql + " LIMIT 1", seq=before) for sql in wanted)

    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        keeper = pool.submit(shut_until_preemptions, server, done)
        try:
            assert keep_busy(server, load_prompts, expected, is_seen), "not all was seen that is looked for"
        finally:
            done.set()
    keeper.result()
    server.await_copies()
    # vLLM empties a pool only while nobody holds a block of it.
    server.empty_both_tiers()
    reset = server.rows("SELECT * FROM cache_reset WHERE seq > :seq ORDER BY seq", seq=before)[0]
    events = server.rows(
        "SELECT * FROM events WHERE seq > :seq AND seq < :end ORDER BY seq", seq=before, end=reset["seq"]
    )
    assert_all_start_again(events)
    assert_each_copy_counted_once(events, reset["num_blocks"])
