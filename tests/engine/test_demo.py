"""`vllm-restore demo` against the real server: it measures, prints, and puts the policy back, even when interrupted."""

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.engine.server import PROGRAM, Server

pytestmark = pytest.mark.engine

MINE = {"enabled": True, "mode": "rescan", "max_restore_blocks_per_step": 9, "retention": "lru"}


@pytest.fixture(autouse=True)
def _a_policy_of_the_persons_own(live_server: Server) -> Iterator[None]:
    live_server.set_policy(**MINE)
    yield
    live_server.set_policy(enabled=True, mode="tracked", max_restore_blocks_per_step=64)


def start(server: Server, *sizes: str) -> "subprocess.Popen[str]":
    """A demo that runs. Its table is 100 columns wide."""
    command = [PROGRAM, "demo", "--url", server.url, *sizes]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def policy_of(server: Server) -> dict[str, Any]:
    return server.api("GET", "/restore/api/policy").json()["policy"]


def test_it_prints_both_rounds_and_puts_the_policy_back(live_server: Server) -> None:
    before = live_server.rows("SELECT max(version) AS v FROM policies")[0]["v"]
    demo = start(live_server, "--conversations", "1", "--turns", "1")
    said = demo.communicate(timeout=240)[0]
    assert demo.returncode == 0, said
    header = next(line for line in said.splitlines() if "re-store off" in line and "re-store tracked" in line)
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:4]]
        for cells in (line.split("│") for line in said.splitlines())
        if len(cells) == 5
    }
    assert header.index("off") < header.index("tracked")
    # One turn that nobody has asked before: nothing can come from a cache, and with re-store off none happens.
    assert rows["chats: prompt tokens from cache"] == ["0.0 %", "0.0 %"]
    assert rows["blocks re-stored"][0] == "0"
    assert all(value.endswith(" ms") for value in rows["chats: TTFT p50"])
    changes = live_server.rows("SELECT enabled, mode FROM policies WHERE version > :v ORDER BY version", v=before)
    assert [(row["enabled"], row["mode"]) for row in changes] == [(0, "rescan"), (1, "tracked"), (1, "rescan")]
    assert policy_of(live_server) == MINE


def test_interrupted_it_puts_the_policy_back(live_server: Server) -> None:
    before = live_server.rows("SELECT max(version) AS v FROM policies")[0]["v"]
    demo = start(live_server, "--conversations", "2", "--turns", "5")
    live_server.await_rows("SELECT * FROM policy_applied WHERE policy_version > :v AND NOT enabled", v=before)
    demo.send_signal(signal.SIGINT)
    said = demo.communicate(timeout=60)[0]
    assert demo.returncode == 130, said
    assert policy_of(live_server) == MINE
