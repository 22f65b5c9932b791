"""Each view in light, dark and 360 pixels: a screenshot each, nothing wider than the window, nothing axe minds."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import URL

from tests.browser.conftest import ROOT, OpenPage, Server

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = (
    "overview",
    "misses",
    "benefit",
    "whatif",
    "tier",
    "conversations",
    "conversation",
    "requests",
    "request",
    "policy",
    "engines",
    "chat",
)
SIZES = {"light": (1440, 900, False), "dark": (1440, 900, True), "narrow": (360, 780, False)}


@pytest.fixture
def addresses(dashboard_server: Server, recorded_log: URL) -> dict[str, str]:
    assert recorded_log.database is not None
    with sqlite3.connect(recorded_log.database) as conn:
        [request_id] = conn.execute(
            "SELECT request_id FROM blocks_restored JOIN lookup USING (request_id) WHERE cpu_hit_tokens > 0 LIMIT 1"
        ).fetchone()
    conn.close()
    paths = {view: f"#/{view}" for view in VIEWS} | {
        "overview": "#/",
        "tier": "#/tier?by=conversation&order=eviction&block=3",
        "conversation": f"#/conversations/{request_id}",
        "request": f"#/requests/{request_id}?block=1",
    }
    return {view: dashboard_server.url + path for view, path in paths.items()}


def settled(page: Page) -> None:
    """Wait until the view has its data: no text says that it is still being read, and charts are drawn."""
    expect(page.locator("main")).to_be_visible()
    expect(page.get_by_text("Reading the")).to_have_count(0)
    expect(page.get_by_text("Asking for")).to_have_count(0)
    expect(page.get_by_role("status")).not_to_have_text("connecting")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("size", SIZES)
def test_view_fits_its_window_and_has_no_serious_accessibility_violation(
    open_page: OpenPage, addresses: dict[str, str], artifacts: Path, view: str, size: str
) -> None:
    width, height, dark = SIZES[size]
    page = open_page(addresses[view], width=width, height=height, dark=dark)
    settled(page)
    page.screenshot(path=artifacts / f"dashboard-{view}-{size}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in web/")
    # Evaluated, not added as a script element: the page's own policy forbids scripts that are not its own.
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        {"rule": v["id"], "help": v["help"], "nodes": [n["html"][:200] for n in v["nodes"][:4]]}
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == [], json.dumps(serious, indent=2)
