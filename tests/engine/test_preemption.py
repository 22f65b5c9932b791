"""A request is preempted in the real engine while blocks of its own are being copied again to the CPU tier."""

import pytest

from tests.engine.load import SHARED_BLOCKS, keep_busy
from tests.engine.server import Server

pytestmark = pytest.mark.engine

# A copy that was ordered in one step, over after the request was preempted in a later one. Every request of the load
# owns the shared blocks at the head.
PREEMPTED_MEANWHILE = f"""
    SELECT p.request_id, p.step, r.scheduled_step, r.step AS over_step
    FROM request_preempted AS p
    JOIN blocks_restored AS r ON r.engine_id = p.engine_id
    WHERE p.seq > :seq AND r.seq > p.seq AND r.scheduled_step < p.step
      AND (r.request_id = p.request_id OR r.first_index < {SHARED_BLOCKS})
"""


# Budgets in blocks a step: `rescan` copies in every step while the tier is too small; what `tracked` has lost in one
# step is then on its way for several.
@pytest.mark.parametrize(("mode", "budget"), [("rescan", 0), ("tracked", 1)], ids=["rescan", "tracked"])
def test_answers_are_right_where_requests_are_preempted_with_restores_of_their_blocks_in_flight(
    tiny_server: Server, load_prompts: list[list[int]], expected: list[list[int]], mode: str, budget: int
) -> None:
    tiny_server.set_policy(enabled=True, mode=mode, max_restore_blocks_per_step=budget)
    before = tiny_server.rows("SELECT max(seq) AS seq FROM events")[0]["seq"]

    def is_seen() -> bool:
        return bool(tiny_server.rows(PREEMPTED_MEANWHILE + "LIMIT 1", seq=before))

    assert keep_busy(tiny_server, load_prompts, expected, is_seen), "no preemption fell into a re-store"

    # The copies in flight came to their end, counted once, and nothing is held for them any more.
    tiny_server.await_copies()
    for found in tiny_server.rows(PREEMPTED_MEANWHILE, seq=before):
        assert found["scheduled_step"] < found["step"] <= found["over_step"]
    resumed = "SELECT * FROM lookup WHERE is_resumed AND seq > :seq"
    assert tiny_server.rows(resumed, seq=before)
    tiny_server.empty_both_tiers()
