"""`vllm-restore bench` against real engines: one that runs, and one that it starts for itself as stock."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine.server import PROGRAM, Server

pytestmark = pytest.mark.engine

# Five chats of about 250 tokens over 24 blocks of the GPU: what a chat said before has left it when it asks again.
WORKLOAD = {
    "engine": {"block_size": 32, "max_num_batched_tokens": 512, "max_num_seqs": 4},
    "chat": {
        "few": {
            "gpu_blocks": 24, "cpu_blocks": 80, "active": 5, "total": 5, "turns": [2, 2], "system_len": 32,
            "first_len": 120, "user_len": 20, "output_len": 8, "think_seconds": 0.3,
        }
    },
}  # fmt: skip


def bench(folder: Path, *arguments: str) -> dict[str, Any]:
    """Runs it and returns its `bench.json`."""
    file = folder / "workload.json"
    file.write_text(json.dumps(WORKLOAD))
    out = folder / "out"
    done = subprocess.run(
        [PROGRAM, "bench", "--workload", f"{file}#few", "--repeats", "1", "--out", str(out), *arguments],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert (out / "bench.png").stat().st_size > 10_000
    assert (out / "bench.html").exists()
    return json.loads((out / "bench.json").read_text())


def test_a_running_server_gives_the_same_answers_under_each_policy_and_has_its_own_policy_again(
    live_server: Server, tmp_path: Path
) -> None:
    live_server.set_policy(enabled=True, mode="rescan", retention="lru")
    result = bench(tmp_path, "--url", live_server.url, "--policies", "off,adaptive")
    assert [p["policy"] for p in result["policies"]] == ["off", "adaptive"]
    assert result["texts"] == {"conversations": 5, "differing": []}
    for policy in result["policies"]:
        assert policy["num_requests"] == 10
        assert policy["hit_rate"] == pytest.approx(policy["talk_hit_rate"])
        assert policy["gpu_hit_tokens"] + policy["cpu_hit_tokens"] > 0
        assert policy["stored_bytes"] > 0
    obeyed = live_server.api("GET", "/restore/api/policy").json()["policy"]
    assert (obeyed["enabled"], obeyed["mode"], obeyed["retention"]) == (True, "rescan", "lru")


def test_stock_is_started_by_itself_and_counts_its_copies(tmp_path: Path) -> None:
    result = bench(tmp_path, "--policies", "stock")
    (stock,) = result["policies"]
    assert stock["policy"] == "stock"
    assert stock["num_requests"] == 10
    # More than the GPU holds was said, so second turns find what the CPU tier kept.
    assert stock["cpu_hit_tokens"] > 0
    assert stock["loaded_bytes"] > 0
    assert stock["stored_bytes"] > stock["loaded_bytes"]
    assert stock["restored_bytes"] == 0
