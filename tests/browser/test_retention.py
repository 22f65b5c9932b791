"""What the tier goes by under `adaptive`, over a recorded log: the rule and why, the shadows, the curve by keyboard."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from sqlalchemy import URL

from app.settings import Settings
from connector import log
from connector.events import PolicyApplied, RetentionState, RuleSwitched, StoresRefused
from tests.browser.conftest import OpenPage
from tests.browser.sample_log import write_sample
from tests.browser.test_looks import AXE, SIZES

EDGES = (0.0, *(0.5 * 2 ** (n / 2) for n in range(25)))
ENGINE = 2


def falling(start: float) -> tuple[float, ...]:
    return tuple(start * 0.8**n for n in range(len(EDGES)))


@pytest.fixture(scope="module")
def kept_log(tmp_path_factory: pytest.TempPathFactory) -> URL:
    """The sample's log, whose engine went over to `adaptive`, learned, and refused something."""
    url = log.resolve_url(str(tmp_path_factory.mktemp("kept") / "log.db"))
    end = time.time_ns() - 60_000_000_000
    write_sample(url, end)
    items: list[Any] = [
        PolicyApplied(4, True, "tracked", 64, False, "toggle", "adaptive"),
        RuleSwitched("lru", "worth", "learned", 40.0, 40.0, 160.0, 8),
        StoresRefused("chatcmpl-r", 0, 4, 2, b"t" * 32, b"h" * 32, "worth", False, 0.5, 0.25),
        RetentionState(
            rule="worth", is_guard_on=False, lru_hit_blocks=30.0, worth_hit_blocks=50.0, asked_blocks=200.0,
            guard_lead=0.01, num_reuses=11, num_to_learn=8, horizon_s=60.0, edges_s=EDGES,
            worth=(falling(0.01), falling(0.4), falling(0.9), falling(0.95), falling(1.0), falling(0.5)),
            returns=(0.0, 30.0, 12.0, 4.0, 2.0, 50.0),
        ),
    ]  # fmt: skip
    with log.open_writer(url).begin() as conn:
        log.append(conn, ENGINE, [(9_000 + n, 0, end + n, item) for n, item in enumerate(items)])
    return url


@pytest.fixture
def panel(open_page: OpenPage, serve: Any, kept_log: URL) -> Any:
    def open_(**looks: Any) -> tuple[Page, Locator]:
        page = open_page(f"{serve(Settings(db=kept_log.database)).url}#/tier", **looks)
        found = page.get_by_role("region", name="Which block goes for a new one")
        expect(found.get_by_test_id("rule")).to_contain_text("Blocks go by worth since")
        return page, found

    return open_


def test_rule_shadows_and_curve_are_told_and_the_curve_is_walked_by_keyboard(panel: Any) -> None:
    page, found = panel()
    expect(found.get_by_test_id("rule")).to_contain_text(re.compile(r"11\schains come back.*15\.0\s%.*25\.0\s%"))
    expect(found.get_by_role("img", name=re.compile(r"shadow by last use: 15\s%"))).to_be_visible()
    expect(found.get_by_role("img", name=re.compile(r"shadow by worth: 25\s%"))).to_be_visible()
    expect(found).to_contain_text("too few of these came back to tell them apart: left behind")
    points = found.get_by_role("img", name=re.compile(r"^1st turn, idle for"))
    expect(points).to_have_count(14)  # at once, then at each doubling from 0.5 s to 2,048 s
    points.first.focus()
    expect(points.first).to_have_accessible_name(re.compile(r"^1st turn, idle for 0\ss: worth 40\.0\s%$"))
    page.keyboard.press("Tab")
    expect(points.nth(1)).to_be_focused()
    found.get_by_role("link", name=re.compile(r"^1\stime$")).click()
    expect(page).to_have_url(re.compile(r"#/\?.*kind=stores_refused"))
    feed = page.get_by_role("listitem").or_(page.get_by_role("row")).filter(has_text="refused")
    expect(feed.first).to_contain_text(re.compile(r"worth 25\.0\s%, the least in the tier 50\.0\s%"))


@pytest.mark.parametrize("size", SIZES)
def test_panel_fits_its_window_and_has_no_serious_accessibility_violation(
    panel: Any, artifacts: Path, size: str
) -> None:
    width, height, dark = SIZES[size]
    page, found = panel(width=width, height=height, dark=dark)
    expect(found.locator("svg.curve")).to_be_visible()
    page.screenshot(path=artifacts / f"dashboard-retention-{size}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in web/")
    page.evaluate(AXE.read_text())
    violations: list[dict[str, Any]] = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [{"rule": v["id"], "nodes": v["nodes"][:3]} for v in violations if v["impact"] in ("serious", "critical")]
    assert serious == [], json.dumps(serious, indent=2)
