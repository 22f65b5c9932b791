"""Greedy answers do not change by what the connector does, with blocks really loaded from the CPU tier."""

from typing import Any

import pytest

from tests.engine.server import BLOCK, Server
from tests.engine.talks import MUSEUM_TOKENS, Talks

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def reference(talks: Talks) -> list[list[int]]:
    """The answers of vLLM with no connector."""
    # With its GPU cache emptied and no other tier, vLLM computes everything again.
    assert talks.none.again == talks.none.first[: len(talks.museum)]
    assert talks.none.num_cached[0] == 0
    return talks.museum_answers


def test_answers_of_vllms_own_scheduler_half_over_the_host_copies_are_those_without_a_connector(
    talks: Talks, reference: list[list[int]]
) -> None:
    stock = talks.stock
    assert stock.first == reference
    assert stock.again == reference
    assert stock.num_cached[0] == (len(talks.museum[0]) - 1) // BLOCK * BLOCK


@pytest.mark.parametrize(
    "policy",
    [{"enabled": False}, {"enabled": True, "mode": "rescan"}, {"enabled": True, "mode": "tracked"}],
    ids=["off", "rescan", "tracked"],
)
def test_answers_with_blocks_from_the_cpu_tier_are_those_of_vllm_without_a_connector(
    live_server: Server, talks: Talks, reference: list[list[int]], policy: dict[str, Any]
) -> None:
    prompts = talks.museum
    live_server.set_policy(**policy)
    loaded = "SELECT coalesce(sum(num_blocks), 0) AS n FROM blocks_loaded"
    stored = "SELECT * FROM blocks_stored WHERE request_id LIKE :id || '%'"
    try:
        first: list[list[int]] = []
        for prompt in prompts:
            request_id, tokens, _ = live_server.complete(prompt, MUSEUM_TOKENS)
            first.append(tokens)
            # The copy is complete, so that the next lookup can find it. The answer's own blocks are new in every mode.
            if policy == {"enabled": False}:
                live_server.await_rows(stored, id=request_id)
        live_server.empty_gpu_cache()
        before = live_server.rows(loaded)[0]["n"]
        again = [live_server.complete(prompt, MUSEUM_TOKENS) for prompt in prompts]
    finally:
        live_server.set_policy(enabled=True, mode="tracked")

    assert first == reference
    assert [tokens for _, tokens, _ in again] == reference
    # All full blocks of the first prompt came over from the CPU; the others share its head, on the GPU by then.
    assert again[0][2] == (len(prompts[0]) - 1) // BLOCK * BLOCK
    live_server.await_rows("SELECT * FROM request_finished WHERE request_id LIKE :id || '%'", id=again[-1][0])
    assert live_server.rows(loaded)[0]["n"] - before >= len(prompts[0]) // BLOCK
