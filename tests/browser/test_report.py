"""The report as a file in a browser: it asks nobody for anything, can be read by all, and no label hides another."""

import base64
import json
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page
from sqlalchemy import URL

from app.report import write_report
from tests.browser.conftest import ROOT, OpenPage

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SIZES = {"light": (1280, 900, False), "dark": (1280, 900, True), "narrow": (390, 780, True)}

# Pairs of labels of one chart whose boxes overlap.
HIDDEN_LABELS = """() => [...document.querySelectorAll('svg[role="img"]')].flatMap((svg) => {
  const labels = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
  return labels.flatMap(([text, a], i) => labels.slice(i + 1)
    .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1)
    .map(([other]) => `${text} / ${other}`));
})"""
# The pixels of squares of an image, by a page that may look at it: red, green and blue of each.
PIXELS = """async ([png, squares, size]) => {
  const bytes = Uint8Array.from(atob(png), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const pen = new OffscreenCanvas(image.width, image.height).getContext("2d");
  pen.drawImage(image, 0, 0);
  return squares.map(([x, y]) => [...pen.getImageData(x, y, size, size).data].filter((_, i) => i % 4 !== 3));
}"""
SIGHTS = ("none", "protanopia", "deuteranopia", "tritanopia", "achromatopsia")
SWATCH = 12


@pytest.fixture(scope="module")
def report(recorded_log: URL, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the recorded log's report, a file."""
    path: Path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(recorded_log, path)
    return path.as_uri()


@pytest.mark.parametrize("size", SIZES)
def test_report_fits_its_window_and_has_no_serious_accessibility_violation(
    open_page: OpenPage, report: str, artifacts: Path, size: str
) -> None:
    width, height, dark = SIZES[size]
    page: Page = open_page(report, width=width, height=height, dark=dark)
    page.screenshot(path=artifacts / f"report-{size}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(HIDDEN_LABELS) == []
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci in web/")
    page.evaluate(AXE.read_text())
    found: list[dict[str, Any]] = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [
        {"rule": v["id"], "nodes": [n["html"][:200] for n in v["nodes"][:4]]}
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == [], json.dumps(serious, indent=2)


def test_report_asks_for_nothing_but_itself(browser: Browser, report: str) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report, wait_until="networkidle")
    page.close()
    assert asked == [report]


def test_sources_of_tokens_are_told_apart_by_every_sight(open_page: OpenPage, report: str) -> None:
    """By colour or by pattern: bright stripes, dark dots, or none."""
    page, reader = open_page(report), open_page("about:blank")
    session = page.context.new_cdp_session(page)
    legend = page.locator(".legend").first
    names = legend.locator("li").all_text_contents()
    assert names == ["GPU hit", "CPU hit", "CPU hit thanks to a re-store", "computed"]
    place = legend.bounding_box()
    assert place is not None
    boxes = [swatch.bounding_box() for swatch in legend.locator("svg").all()]
    squares = [(round(box["x"] - place["x"]) + 1, round(box["y"] - place["y"]) + 1) for box in boxes if box]
    alike: list[str] = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for sight in SIGHTS:
            session.send("Emulation.setEmulatedVisionDeficiency", {"type": sight})
            png = base64.b64encode(legend.screenshot()).decode()
            swatches: list[list[int]] = reader.evaluate(PIXELS, [png, squares, SWATCH])
            assert len(swatches) == len(names)
            alike += [
                f"{sight}, {scheme}: {names[a]} / {names[b]}"
                for a, b in combinations(range(len(names)), 2)
                if _are_alike(swatches[a], swatches[b])
            ]
    assert not alike, alike


def _are_alike(a: list[int], b: list[int]) -> bool:
    """Neither the ground of the swatches nor what their patterns do to it differs by a sixth of the whole scale."""
    (ground_a, pattern_a), (ground_b, pattern_b) = _look(a), _look(b)
    return max(abs(x - y) for x, y in zip(ground_a, ground_b, strict=True)) < 256 / 6 and (
        abs(pattern_a - pattern_b) < 256 / 6
    )


def _look(swatch: list[int]) -> tuple[tuple[int, ...], float]:
    """The most frequent colour, and how much brighter (or darker: less than 0) the most different one is."""
    pixels = list(zip(*[iter(swatch)] * 3, strict=True))
    ground = Counter(pixels).most_common(1)[0][0]
    furthest = max((sum(pixel) / 3 - sum(ground) / 3 for pixel in pixels), key=abs)
    return ground, furthest
