"""The SQL in docs/log.md is run as it stands, over a log that a real scheduler has written."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from harness import Engine, prompt

from app.main import create_app
from app.settings import Settings
from connector import log

PAGE = Path(__file__).parents[2] / "docs" / "log.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A request of 10 blocks that runs while others push its blocks out, and comes again."""
    engine = Engine(tmp_path_factory.mktemp("log"), gpu_blocks=64, cpu_blocks=16)
    engine.add("first", prompt(0, 10), max_tokens=40)
    engine.steps(4)
    engine.add("pusher", prompt(1, 10), max_tokens=2)
    engine.steps(4)
    engine.set_policy(enabled=False)
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("again", prompt(0, 10), max_tokens=2)
    engine.settle()
    engine.close()
    return log.path_of(engine.url), engine.keys("first")[-1][:-4].hex()


def test_the_page_has_eight_queries() -> None:
    assert len(QUERIES) == 8


@pytest.mark.parametrize("query", QUERIES)
def test_query_on_the_page_runs_and_finds_something(query: str, recorded: tuple[Path, str]) -> None:
    path, _ = recorded
    conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    rows = conn.execute(query, {"request_id": "first"} if ":request_id" in query else {}).fetchall()
    conn.close()
    assert rows


def test_chain_query_rebuilds_the_chain_head_first(recorded: tuple[Path, str]) -> None:
    path, tail = recorded
    query = next(q for q in QUERIES if "RECURSIVE" in q)
    conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    rows = conn.execute(query, {"request_id": "first"}).fetchall()
    conn.close()
    # 161 prompt tokens and 40 decoded ones: the last is sampled and never computed, so 200 tokens, 12 blocks of 16.
    assert [depth for depth, _ in rows] == list(range(12))
    assert rows[-1][1] == tail


def test_policy_query_tells_the_two_versions_apart(recorded: tuple[Path, str]) -> None:
    path, _ = recorded
    query = next(q for q in QUERIES if "spans" in q)
    conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    rows = conn.execute(query).fetchall()
    conn.close()
    assert [(version, policy) for _, version, policy, *_ in rows] == [(0, "tracked"), (1, "off")]
    assert [lookups for _, _, _, lookups, *_ in rows] == [2, 1]


def ask(path: Path, part: str) -> list[tuple[Any, ...]]:
    """The rows of the query that has this text."""
    (query,) = (q for q in QUERIES if part in q)
    conn = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return conn.execute(query).fetchall()
    finally:
        conn.close()


def view(path: Path, name: str) -> Any:
    """What the API says of the whole log."""
    with TestClient(create_app(Settings(db=str(path))), base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        begin = client.get("/restore/api/engines").json()[-1]["started_wall_ns"]
        return client.get(f"/restore/api/{name}", params={"since": begin}).json()


def test_causes_query_says_what_the_view_says(recorded: tuple[Path, str]) -> None:
    path, _ = recorded
    said = {(r["cause"], r["detail"]): (r["num_lookups"], r["lost_tokens"]) for r in view(path, "causes")["causes"]}
    found = {
        (c if c != "nothing left to find" else None, d): (n, lost) for c, d, n, lost, *_ in ask(path, "cause_detail")
    }
    assert found == said
    # The second prompt is new; the first one comes again when its blocks have been pushed out.
    assert {cause for cause, _ in said} >= {"never_seen", "evicted"}


def test_regret_query_says_what_the_view_says(recorded: tuple[Path, str]) -> None:
    path, _ = recorded
    total = view(path, "benefit")["total"]
    rows = ask(path, "FROM blocks_missed")
    assert sum(blocks for _, blocks, *_ in rows) == total["regret"]["wanted_blocks"] > 0
    assert sum(owned for _, _, owned, *_ in rows) == total["regret"]["wanted_owned_blocks"]
    assert sum(displaced for _, _, _, displaced, _ in rows) == total["restore"]["displaced_wanted_blocks"]


def test_benefit_query_says_what_the_view_says(recorded: tuple[Path, str]) -> None:
    path, _ = recorded
    total = view(path, "benefit")["total"]
    ((blocks, tokens, speed, r_squared, saved, spent, roi),) = ask(path, "roi")
    assert (blocks, tokens) == (total["restore"]["restored_blocks"], total["restore"]["hit_tokens"])
    assert blocks > 0
    for found, name in ((saved, "saved_s"), (spent, "spent_s"), (roi, "roi")):
        assert found == (None if total[name] is None else pytest.approx(total[name])), name
    if total["prefill"]["r_squared"] is not None:
        assert r_squared == pytest.approx(total["prefill"]["r_squared"], abs=1e-6)
    assert speed == (None if total["prefill"]["seconds_per_token"] is None
                     else pytest.approx(total["prefill"]["seconds_per_token"]))  # fmt: skip
