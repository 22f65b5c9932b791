"""The case that re-store is for, in the real engine over HTTP; the switch, read back from the API and by plain SQL."""

import itertools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.server import BLOCK, CPU_BLOCKS, MODEL, Server

pytestmark = pytest.mark.engine

PROMPT_BLOCKS = 10
# Ten full blocks and one token, since the last token of a prompt is always computed.
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK + 1
_seeds = itertools.count(1)


def new_prompt() -> list[int]:
    """Tokens that no other prompt shares a block with."""
    return random.Random(f"prompt {next(_seeds)}").choices(range(100, 40_000), k=PROMPT_TOKENS)


@pytest.fixture
def ask(live_server: Server) -> Callable[[list[int]], Any]:
    """Asks for one token and returns the usage."""

    def call(prompt: list[int]) -> Any:
        return live_server.client().completions.create(model=MODEL, prompt=prompt, max_tokens=1, temperature=0).usage

    return call


@pytest.fixture(autouse=True)
def _policy_as_before(live_server: Server) -> Iterator[None]:
    yield
    live_server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)


def lookup_of(server: Server, request_id: str) -> dict[str, Any]:
    """The lookup that the engine logged for a request of the API."""
    query = "SELECT * FROM lookup WHERE request_id LIKE :id || '%' ORDER BY seq"
    return server.await_rows(query, id=request_id)[0]


def lose_while_running(server: Server, ask: Callable[[list[int]], Any], prompt: list[int]) -> None:
    """Runs `prompt` at length and, while it runs, has so much pass by that the CPU tier loses all of its blocks."""
    client = server.client()
    stream: Any = client.completions.create(
        model=MODEL,
        prompt=prompt,
        max_tokens=600,
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    first = next(chunk for chunk in stream)
    stored = "SELECT * FROM blocks_stored WHERE request_id LIKE :id || '%' AND first_index = 0"
    server.await_rows(stored, id=first.id)
    # One more than fills the tier.
    for _ in range(CPU_BLOCKS // PROMPT_BLOCKS + 1):
        ask(new_prompt())
    # Its hash at index 0 has been lost while the request was running.
    lost = "SELECT * FROM blocks_evicted WHERE request_id LIKE :id || '%' AND first_index = 0"
    server.await_rows(lost, id=first.id)
    assert server.rows("SELECT * FROM request_finished WHERE request_id LIKE :id || '%'", id=first.id) == []
    if server.rows("SELECT enabled FROM policies ORDER BY version DESC LIMIT 1")[0]["enabled"]:
        restored = "SELECT sum(num_blocks) AS n FROM blocks_restored WHERE request_id LIKE :id || '%'"
        deadline = time.monotonic() + 60
        while (server.rows(restored, id=first.id)[0]["n"] or 0) < PROMPT_BLOCKS:
            assert time.monotonic() < deadline, server.rows(restored, id=first.id)
            time.sleep(0.05)
    # Its answer is of no interest: leaving ends the request, which is then a finish like any other.
    stream.close()
    server.await_rows("SELECT * FROM request_finished WHERE request_id LIKE :id || '%'", id=first.id)


@pytest.mark.parametrize(
    ("policy", "expected_blocks"),
    [
        ({"enabled": False}, 0),
        ({"enabled": True, "mode": "rescan"}, PROMPT_BLOCKS),
        ({"enabled": True, "mode": "tracked"}, PROMPT_BLOCKS),
    ],
    ids=["off", "rescan", "tracked"],
)
def test_a_prompt_lost_from_the_cpu_tier_while_it_ran_is_found_again_only_with_restore(
    live_server: Server, ask: Callable[[list[int]], Any], policy: dict[str, Any], expected_blocks: int
) -> None:
    live_server.set_policy(**policy)
    prompt = new_prompt()
    lose_while_running(live_server, ask, prompt)
    live_server.empty_gpu_cache()

    client = live_server.client()
    again = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1, temperature=0)

    assert again.usage is not None
    assert again.usage.prompt_tokens_details is not None
    assert again.usage.prompt_tokens_details.cached_tokens == expected_blocks * BLOCK
    lookup = lookup_of(live_server, again.id)
    assert (lookup["num_tokens"], lookup["gpu_hit_tokens"]) == (PROMPT_TOKENS, 0)
    assert lookup["cpu_hit_tokens"] == expected_blocks * BLOCK


def test_a_toggle_is_applied_by_the_engine_and_readable_everywhere(
    live_server: Server, ask: Callable[[list[int]], Any]
) -> None:
    state = live_server.set_policy(enabled=False, max_restore_blocks_per_step=7)

    assert state["policy"] == {
        "enabled": False,
        "mode": "tracked",
        "max_restore_blocks_per_step": 7,
        "retention": "lru",
    }
    assert [engine["applied_version"] for engine in state["engines"]] == [state["version"]]
    newest = live_server.rows("SELECT * FROM policies ORDER BY version DESC LIMIT 1")[0]
    assert (newest["version"], newest["enabled"], newest["mode"]) == (state["version"], 0, "tracked")
    assert newest["max_restore_blocks_per_step"] == 7
    applied = live_server.await_rows("SELECT * FROM policy_applied WHERE policy_version = :v", v=state["version"])[-1]
    assert (applied["enabled"], applied["max_restore_blocks_per_step"], applied["reason"]) == (0, 7, "toggle")
    assert applied["step"] == state["engines"][0]["applied_step"]
    history = live_server.api("GET", "/restore/api/policy/history").json()
    assert history[0]["version"] == state["version"]
    assert history[0]["before"]["enabled"] is True
    assert history[0]["after"]["enabled"] is False


def test_a_change_with_a_mistake_in_it_changes_nothing(live_server: Server) -> None:
    before = live_server.api("GET", "/restore/api/policy").json()["version"]
    answer = live_server.api("PUT", "/restore/api/policy", json={"enabled": False, "mode": "sometimes"})
    assert answer.status_code == 422
    assert live_server.api("GET", "/restore/api/policy").json()["version"] == before


def test_the_engine_that_runs_is_live_and_can_restore(live_server: Server) -> None:
    engines = live_server.api("GET", "/restore/api/engines").json()
    assert len(engines) == 1
    assert engines[0]["is_live"] is True
    assert engines[0]["restore_support"] == "yes"
    assert engines[0]["model"] == MODEL
    assert engines[0]["hash_block_size"] == BLOCK
    # vLLM keeps one block of each pool for itself.
    assert engines[0]["num_cpu_blocks"] == CPU_BLOCKS - 1


def test_the_dashboard_is_served_beside_vllms_own_routes(live_server: Server) -> None:
    page = live_server.api("GET", "/restore/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert live_server.api("GET", "/restore/healthz").json()["status"] == "ok"
