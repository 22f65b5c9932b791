"""How the dashboard feels on a large log: time to a usable first screen, and frame times while events arrive.

    python tests/bench/frames.py [--db big.db] [--events 1000000] [--rate 50] [--seconds 15] [--json]

Opens the log at --db, or makes one of --events events in a scratch folder, whose engine the shadows begin to follow;
serves it in a process of its own, writes --rate events a second to it through a real recorder, and looks at each view
with this machine's Chromium. A frame's time is the distance of two calls of requestAnimationFrame; the rest is what the
DevTools protocol measures. No timed assertion.
Needs the built dashboard (`make web`).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from playwright.sync_api import Page, sync_playwright

from connector import log
from tests.bench.big_log import write_big_log
from tests.browser.conftest import ARGS, find_browser, free_port
from tests.browser.live_engine import LiveEngine

ROOT = Path(__file__).resolve().parents[2]
EVENTS_A_REQUEST = 5
FRAME_MS = 1000 / 60
VIEWS = {
    "overview": "#/",
    "overview, whole log": "#/?range=all",
    "why it missed": "#/misses?range=all",
    "benefit": "#/benefit?range=all",
    "tier": "#/tier",
    "conversations": "#/conversations",
    "requests": "#/requests",
}

# The first screen can be used when its answer, its curve, its newest lookups and its feed stand there.
WATCH_FOR_USABLE = """
const usable = () => {
  const has = (selector) => document.querySelector(selector) !== null;
  const ready = has('[data-testid="sentence"] b') && has(".slider canvas") && has("table.requests tbody tr")
    && has(".events li");
  if (ready) window.usableMs = performance.now();
  else requestAnimationFrame(usable);
};
requestAnimationFrame(usable);
"""
COLLECT_FRAMES = """(seconds) => new Promise((resolve) => {
  const times = [];
  const begin = performance.now();
  const frame = (now) => {
    times.push(now);
    if (now - begin < seconds * 1000) requestAnimationFrame(frame);
    else resolve(times);
  };
  requestAnimationFrame(frame);
})"""
NEWEST_ROW = """() => Number(document.querySelector(".events li")?.title.match(/row (\\d+)/)?.[1] ?? NaN)"""
METRICS = ("TaskDuration", "ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "JSHeapUsedSize")


class Writer:
    """Appends events at a steady rate through a real recorder, as an engine does."""

    def __init__(self, db: Path, rate: float) -> None:
        self._engine = LiveEngine(log.resolve_url(str(db)))
        self._pause = EVENTS_A_REQUEST / rate
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bench-writer")

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._engine.close()

    def _run(self) -> None:
        number = 0
        due = time.monotonic()
        while not self._end.wait(max(0.0, due - time.monotonic())):
            self._engine.request(f"bench-{os.getpid()}-{number}", 3 + number % 5)
            number += 1
            due += self._pause


@contextmanager
def served(db: Path) -> Iterator[str]:
    """The dashboard over the log, in a process of its own."""
    port = free_port()
    command = [sys.executable, "-c", "import sys; from app.cli import main; sys.exit(main(sys.argv[1:]))"]
    process = subprocess.Popen(
        [*command, "dashboard", "--db", str(db), "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    url = f"http://127.0.0.1:{port}/restore/"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{url}healthz", timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the dashboard's server did not start") from None
                time.sleep(0.1)
        yield url
    finally:
        process.terminate()
        process.wait(20)


def metrics(cdp: Any) -> dict[str, float]:
    found = {m["name"]: m["value"] for m in cdp.send("Performance.getMetrics")["metrics"]}
    return {name: found.get(name, 0.0) for name in METRICS}


def summary(times: list[float]) -> dict[str, float]:
    """Frame times in milliseconds, and how many frames came later than the one before asked for."""
    gaps = sorted(b - a for a, b in pairwise(times))
    late = sum(max(0, round(gap / FRAME_MS) - 1) for gap in gaps)
    return {
        "fps": 1000 * len(gaps) / (times[-1] - times[0]),
        "median_ms": statistics.median(gaps),
        "p95_ms": gaps[int(len(gaps) * 0.95)],
        "p99_ms": gaps[int(len(gaps) * 0.99)],
        "worst_ms": gaps[-1],
        "missed_share": late / (len(gaps) + late),
    }


def look(page: Page, seconds: float) -> dict[str, float]:
    """Frame times of the page as it stands, and what its main thread did meanwhile."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    first_row = page.evaluate(NEWEST_ROW)
    before = metrics(cdp)
    still = page.evaluate(COLLECT_FRAMES, seconds)
    after = metrics(cdp)
    busy = (after["TaskDuration"] - before["TaskDuration"]) / seconds
    result = summary(still) | {
        "main_thread_busy": busy,
        "script_share": (after["ScriptDuration"] - before["ScriptDuration"]) / seconds,
        # Of the feed, where the view has one: that the log really moved meanwhile.
        "rows_a_second": (page.evaluate(NEWEST_ROW) - first_row) / seconds,
        "heap_mib": after["JSHeapUsedSize"] / 2**20,
    }
    cdp.detach()
    return result


def first_screens(page: Page, url: str, times: int) -> list[float]:
    """Milliseconds from the navigation to a first screen that can be used, with nothing in the browser's cache."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.send("Network.setCacheDisabled", {"cacheDisabled": True})
    page.add_init_script(WATCH_FOR_USABLE)
    found: list[float] = []
    for _ in range(times):
        page.goto("about:blank")
        page.goto(url)
        page.wait_for_function("window.usableMs !== undefined", timeout=60_000)
        found.append(page.evaluate("window.usableMs"))
    cdp.detach()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", type=Path, help="a large log; written to while this runs")
    parser.add_argument("--events", type=int, default=1_000_000, help="of the log that is made (%(default)s)")
    parser.add_argument("--rate", type=float, default=50, help="events a second that arrive (%(default)s)")
    parser.add_argument("--seconds", type=float, default=15, help="that each view is watched (%(default)s)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chromium = find_browser()
    if chromium is None:
        raise SystemExit("no Chromium on this machine: apt-get install chromium, or name a Chrome with CHROME=/path")
    with tempfile.TemporaryDirectory() as scratch:
        db: Path = args.db or Path(scratch) / "big.db"
        result: dict[str, Any] = {"views": {}}
        flags = [*ARGS, "--no-sandbox"] if os.geteuid() == 0 else list(ARGS)
        writer = Writer(db, args.rate)
        if args.db is None:
            # The newest engine is that of the long log: the shadows have all of it to follow while frames are counted.
            write_big_log(log.resolve_url(str(db)), args.events, is_live=True)
        with writer, served(db) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=flags)
            # The page forbids scripts that are not its own, and waiting for a condition is one.
            page = browser.new_page(viewport={"width": 1440, "height": 900}, bypass_csp=True)
            result["first_screen_ms"] = first_screens(page, url, 5)
            for name, address in VIEWS.items():
                page.goto("about:blank")
                page.goto(url + address)
                page.wait_for_function("document.querySelector('main') && !document.body.innerText.includes('Reading')")
                if name.startswith("overview"):
                    page.wait_for_selector(".events li")
                result["views"][name] = look(page, args.seconds)
            browser.close()
    if args.json:
        print(json.dumps(result, indent=2))
        return
    screens = ", ".join(f"{ms:.0f}" for ms in result["first_screen_ms"])
    print(f"first screen usable after {screens} ms")
    head = (
        "fps",
        "median_ms",
        "p95_ms",
        "p99_ms",
        "worst_ms",
        "missed_share",
        "main_thread_busy",
        "rows_a_second",
        "heap_mib",
    )
    print(f"{'view':22}" + "".join(f"{name:>17}" for name in head))
    for name, row in result["views"].items():
        print(f"{name:22}" + "".join(f"{row[key]:17.3f}" for key in head))


if __name__ == "__main__":
    main()
