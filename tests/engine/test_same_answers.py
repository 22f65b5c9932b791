"""Greedy answers do not change by what the connector does, with blocks really loaded from the CPU tier."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.references import answers_of
from tests.engine.server import BLOCK, MODEL, Server

pytestmark = pytest.mark.engine

MAX_TOKENS = 40
SYSTEM = (
    "You are a patient guide in a museum of the history of science. You explain in plain words, name dates and places, "
    "and never speak of more than one thing at a time. Visitors come from many countries, so avoid idioms. "
)
QUESTIONS = (
    "Who was the first person to see the moons of Jupiter, and with what instrument did he see them?",
    "Why did ships carry more than one clock when they sailed around the world two hundred years ago?",
    "What did people believe about heat before they knew about atoms, and who changed their minds?",
)


@pytest.fixture(scope="module")
def prompts(live_server: Server) -> list[list[int]]:
    """Real conversations as tokens, each of several full blocks with a shared head."""
    found: list[list[int]] = []
    for question in QUESTIONS:
        messages = [{"role": "system", "content": SYSTEM * 2}, {"role": "user", "content": question}]
        answer = live_server.api("POST", "/tokenize", json={"model": MODEL, "messages": messages})
        found.append(answer.json()["tokens"])
    assert all(len(prompt) > 3 * BLOCK for prompt in found)
    return found


@pytest.fixture(scope="module")
def reference(prompts: list[list[int]], tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    """The answers of vLLM with no connector."""
    answers = answers_of("none", prompts, MAX_TOKENS, tmp_path_factory.mktemp("reference"))
    # With its GPU cache emptied and no other tier, vLLM computes everything again.
    assert answers.again == answers.first
    assert answers.num_cached[0] == 0
    return answers.first


def test_answers_of_vllms_own_scheduler_half_over_the_host_copies_are_those_without_a_connector(
    prompts: list[list[int]], reference: list[list[int]], tmp_path: Path
) -> None:
    stock = answers_of("stock", prompts, MAX_TOKENS, tmp_path)
    assert stock.first == reference
    assert stock.again == reference
    assert stock.num_cached[0] == (len(prompts[0]) - 1) // BLOCK * BLOCK


@pytest.mark.parametrize(
    "policy",
    [{"enabled": False}, {"enabled": True, "mode": "rescan"}, {"enabled": True, "mode": "tracked"}],
    ids=["off", "rescan", "tracked"],
)
def test_answers_with_blocks_from_the_cpu_tier_are_those_of_vllm_without_a_connector(
    live_server: Server, prompts: list[list[int]], reference: list[list[int]], policy: dict[str, Any]
) -> None:
    live_server.set_policy(**policy)
    loaded = "SELECT coalesce(sum(num_blocks), 0) AS n FROM blocks_loaded"
    stored = "SELECT * FROM blocks_stored WHERE request_id LIKE :id || '%'"
    try:
        first: list[list[int]] = []
        for prompt in prompts:
            request_id, tokens, _ = live_server.complete(prompt, MAX_TOKENS)
            first.append(tokens)
            # The copy is complete, so that the next lookup can find it. The answer's own blocks are new in every mode.
            if policy == {"enabled": False}:
                live_server.await_rows(stored, id=request_id)
        live_server.empty_gpu_cache()
        before = live_server.rows(loaded)[0]["n"]
        again = [live_server.complete(prompt, MAX_TOKENS) for prompt in prompts]
    finally:
        live_server.set_policy(enabled=True, mode="tracked")

    assert first == reference
    assert [tokens for _, tokens, _ in again] == reference
    # All full blocks of the first prompt came over from the CPU; the others share its head, on the GPU by then.
    assert again[0][2] == (len(prompts[0]) - 1) // BLOCK * BLOCK
    live_server.await_rows("SELECT * FROM request_finished WHERE request_id LIKE :id || '%'", id=again[-1][0])
    assert live_server.rows(loaded)[0]["n"] - before >= len(prompts[0]) // BLOCK
