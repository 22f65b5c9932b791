"""How long each read of the API takes over a long log: median and worst of several calls, in milliseconds.

    python tests/bench/api_speed.py [--db PATH] [--events 1000000] [--calls 7] [--json]

Without `--db` it makes a log (`big_log.py`). The calls go through the whole app in this process, JSON included; the
first call after the start is named apart, since some reads remember what they read. No timed assertion.
"""

import argparse
import json
import logging
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastapi.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from connector import log
from tests.bench.big_log import write_big_log

WHOLE = "since={begin}&until={end}"
FIRST_SCREEN = (
    "engines", "policy", "glance", "summary", "timeline", "benefit", "requests?limit=20", "events?limit=100",
)  # fmt: skip
VIEWS = (
    f"glance?{WHOLE}",
    f"summary?{WHOLE}",
    f"timeline?{WHOLE}",
    f"timeline?{WHOLE}&bucket=12",
    "causes",
    f"causes?{WHOLE}",
    f"causes?{WHOLE}&bucket=12",
    f"benefit?{WHOLE}",
    "conversations",
    "conversations/{request}",
    "requests/{request}",
    "requests?state=finished&limit=50",
    "tier",
    "tier?seq={middle}",
    "events?kind=blocks_restored&limit=100",
)


def measure(client: TestClient, path: str, calls: int) -> dict[str, float]:
    """Milliseconds of the first call, and of those after it."""
    took: list[float] = []
    size = 0
    for _ in range(calls + 1):
        started = time.perf_counter()
        response = client.get(f"/restore/api/{path}")
        took.append(1000 * (time.perf_counter() - started))
        assert response.status_code == 200, (path, response.text)
        size = len(response.content)
    return {"first_ms": took[0], "median_ms": statistics.median(took[1:]), "worst_ms": max(took[1:]), "kB": size / 1000}


def main() -> None:
    logging.getLogger("httpx").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(description="How long the API's reads take.")
    parser.add_argument("--db", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.db or Path(folder) / "big.db"
        if options.db is None:
            write_big_log(log.resolve_url(str(path)), options.events)
        app = create_app(Settings(db=str(path)))
        with TestClient(app, base_url="http://127.0.0.1:8000", client=("127.0.0.1", 50000)) as client:
            engine = client.get("/restore/api/engines").json()[0]
            newest = client.get("/restore/api/requests?limit=1").json()["requests"][0]
            names = {
                "begin": engine["started_wall_ns"],
                "end": client.get("/restore/api/timeline").json()["until_wall_ns"],
                "request": newest["request_id"],
                "middle": newest["seq"] // 2,
            }
            paths = [p.format(**names) for p in (*FIRST_SCREEN, *VIEWS)]
            shown = (*FIRST_SCREEN, *VIEWS)
            results = {name: measure(client, p, options.calls) for name, p in zip(shown, paths, strict=True)}
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'':52}{'first':>10}{'median':>10}{'worst':>10}  ms{'kB':>9}")
    for name, r in results.items():
        print(f"{name:52}{r['first_ms']:10.1f}{r['median_ms']:10.1f}{r['worst_ms']:10.1f}    {r['kB']:9.1f}")
    first = sum(results[name]["median_ms"] for name in FIRST_SCREEN)
    print(f"{'the first screen, one call after the other':52}{first:20.1f}")


if __name__ == "__main__":
    main()
