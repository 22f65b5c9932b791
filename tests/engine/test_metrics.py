"""vLLM's own `/metrics` in a real server: ours are there, add up to the log, and leave vLLM's as they were."""

import json
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connector.metrics import INFO, METRICS, PREFIX
from tests.engine.server import BLOCK, Server

pytestmark = pytest.mark.engine

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


def scrape(server: Server) -> dict[str, float]:
    """Every sample's sum over its labels, and the prompt tokens by source as `source=…`."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(server.api("GET", "/metrics").text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
            if sample.name == f"{PREFIX}prompt_tokens_total":
                key = f"source={sample.labels['source']}"
                sums[key] = sums.get(key, 0) + sample.value
    return sums


def test_prometheus_is_told_what_the_log_is_told(live_server: Server) -> None:
    before = scrape(live_server)
    prompt = list(range(7_000, 7_000 + 5 * BLOCK + 1))  # no other test asks it
    first_id = live_server.complete(prompt, 2 * BLOCK)[0]
    stored = "SELECT sum(num_blocks) FROM blocks_stored WHERE request_id LIKE :id || '%'"
    live_server.await_rows(f"SELECT 1 WHERE ({stored}) >= 5", id=first_id)
    live_server.empty_gpu_cache()
    request_id, _, cached = live_server.complete(prompt, 2)
    assert cached == 5 * BLOCK
    [lookup] = live_server.await_rows("SELECT * FROM lookup WHERE request_id LIKE :r || '%'", r=request_id)

    # The stats of a step reach the server a moment after its tokens.
    deadline = time.monotonic() + 30
    wanted = before.get("source=computed", 0) + 5 * BLOCK + 1 + 1
    while scrape(live_server)["source=computed"] < wanted:
        assert time.monotonic() < deadline, scrape(live_server)
        time.sleep(0.05)
    now = scrape(live_server)

    assert now["source=computed"] == wanted
    found = now["source=cpu"] + now["source=restored"] - before.get("source=cpu", 0) - before.get("source=restored", 0)
    assert found == lookup["cpu_hit_tokens"] == 5 * BLOCK
    assert now[f"{PREFIX}lookups_total"] - before.get(f"{PREFIX}lookups_total", 0) == 2
    assert now[f"{PREFIX}faults_total"] == 0
    assert now[f"{PREFIX}policy"] == 1
    # 80 blocks of the CPU tier can be used: free, cached or in flight.
    assert now[f"{PREFIX}tier_blocks"] == 80
    assert now["vllm:simple_kv_offload_load_blocks_total"] >= 5


def test_every_metric_that_the_dashboard_reads_is_there(live_server: Server) -> None:
    live_server.complete(list(range(2_000, 2_000 + BLOCK)), 2)
    families = {f.name for f in text_string_to_metric_families(live_server.api("GET", "/metrics").text)}

    assert {PREFIX + m.name.removesuffix("_total") for m in (*METRICS, INFO)} <= families
    dashboard = json.dumps(json.loads(DASHBOARD.read_text("utf-8")))
    for name in ("vllm:request_prefill_time_seconds", "vllm:request_prefill_kv_computed_tokens"):
        assert f"{name}_sum" in dashboard
        assert name in families
