"""The SQL in docs/log.md is run as it stands, over a log that a real scheduler has written."""

import re
import sqlite3
from pathlib import Path

import pytest
from harness import Engine, prompt

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


def test_the_page_has_five_queries() -> None:
    assert len(QUERIES) == 5


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
