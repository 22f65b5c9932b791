"""The timeline's shadow lines and the what-if page over a log whose shadows are worked out by hand (`shadow_log`): what
is shown is what the API answers, and that is what must come out."""

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from app.settings import Settings
from connector import log
from tests.browser.conftest import OpenPage, Server
from tests.browser.shadow_log import CPU_BLOCKS, FIRST, HIT_TOKENS, HITS, SECOND, rate, write_shadow_log

PINK = (204, 121, 167)
INK = (27, 27, 26)
NAMES = ("off", "tracked", "adaptive", "unlimited")
# Whether a colour stands within two pixels of a place in the plot, given as parts of its width and height.
HAS_COLOUR = """(canvas, [x, y, [r, g, b], box]) => {
  const ratio = canvas.width / canvas.getBoundingClientRect().width;
  const left = Math.round((box.left + x * box.width) * ratio), top = Math.round((box.top + y * box.height) * ratio);
  const { data } = canvas.getContext("2d").getImageData(left - 2, top - 2, 5, 5);
  for (let i = 0; i < data.length; i += 4) if (data[i] === r && data[i + 1] === g && data[i + 2] === b) return true;
  return false;
}"""
PLOT = """(canvas) => {
  const plot = canvas.parentElement.querySelector(".u-over").getBoundingClientRect();
  const whole = canvas.getBoundingClientRect();
  return { left: plot.left - whole.left, top: plot.top - whole.top, width: plot.width, height: plot.height };
}"""


@pytest.fixture(scope="module")
def shadowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = log.resolve_url(str(tmp_path_factory.mktemp("shadowed") / "log.db"))
    write_shadow_log(url, time.time_ns() - 60_000_000_000)
    server = Server(Settings(db=url.database)).start()
    yield server
    server.stop()


def answer(server: Server, path: str) -> Any:
    with urllib.request.urlopen(f"{server.url}api/{path}", timeout=30) as response:
        return json.load(response)


def shown(number: float) -> str:
    return f"{round(100 * number)}\u00a0%"


@pytest.fixture
def overview(open_page: OpenPage, shadowed: Server) -> Page:
    page = open_page(f"{shadowed.url}#/?range=all")
    keys = page.get_by_test_id("shadow-keys")
    expect(keys).to_contain_text("unlimited")
    expect(keys).not_to_contain_text("reading the log")
    return page


def test_keys_of_the_timeline_name_the_hit_rate_of_each_shadow(overview: Page, shadowed: Server) -> None:
    keys = overview.get_by_test_id("shadow-keys")
    for name in NAMES:
        expect(keys.get_by_role("link", name=re.compile(f"^{name} "))).to_contain_text(shown(rate(name)))
    # The shadow of what was obeyed, off and then tracked, gives what the engine gave, and says so.
    expect(keys.get_by_role("link", name=re.compile("^as obeyed"))).to_contain_text(shown(rate("engine")))
    expect(keys).to_contain_text("as the engine")
    # Four different numbers, so that none can stand for another; adaptive keeps here what tracked copies again.
    assert len({shown(rate(name)) for name in (*NAMES, "engine")}) == 4
    found = answer(shadowed, "shadows?since=0")
    assert {s["name"]: s["hit_rate"] for s in found["shadows"]} == {
        "active": pytest.approx(rate("engine")),
        **{name: pytest.approx(rate(name)) for name in NAMES},
    }


def test_lines_run_through_what_each_shadow_gave_in_its_second(overview: Page) -> None:
    canvas = overview.locator(".slider canvas")
    box = canvas.evaluate(PLOT)
    bucket_s = int(re.sub(r"\D", "", overview.locator(".readout .when").first.text_content() or ""))
    # Ten minutes and the bucket that the log's end lies in; the traffic in the bucket that begins the third minute, and
    # in the one that begins the ninth.
    places = [(minute * 60 + bucket_s / 2) / (600 + bucket_s) for minute in (2, 8)]

    def between(name: str, part: float) -> tuple[float, float]:
        """Part of the way from the first second's rate to the second's: nobody asks anything there, so there is no bar
        and the line goes straight."""
        rates = [HITS[name][which] * HIT_TOKENS / (FIRST, SECOND)[which] for which in (0, 1)]
        return places[0] + part * (places[1] - places[0]), 1 - rates[0] - part * (rates[1] - rates[0])

    expect(overview.locator(".slider")).to_be_visible()
    # Two places of a straight line say where both its ends are.
    for part in (0.2, 0.8):
        x, y = between("tracked", part)
        assert canvas.evaluate(HAS_COLOUR, [x, y, PINK, box]), "no line of tracked"
        assert not canvas.evaluate(HAS_COLOUR, [x, y + 0.05, PINK, box])
        # Dotted and dashed lines have gaps: one of a few neighbours has ink.
        for name in ("unlimited", "off"):
            near = [between(name, part + i / 200) for i in range(6)]
            assert any(canvas.evaluate(HAS_COLOUR, [x, y, INK, box]) for x, y in near), f"no line of {name}"
    overview.get_by_test_id("shadow-keys").get_by_role("link", name=re.compile("^tracked ")).click()
    expect(overview).to_have_url(re.compile("hide=active%2Ctracked"))
    # The canvas is drawn anew with the next frame, and says so to nobody.
    for _ in range(100):
        if not canvas.evaluate(HAS_COLOUR, [*between("tracked", 0.5), PINK, box]):
            return
        overview.wait_for_timeout(50)
    pytest.fail("a line that was hidden is still there")


def test_what_if_says_what_the_other_policy_and_size_would_have_given(open_page: OpenPage, shadowed: Server) -> None:
    page = open_page(f"{shadowed.url}#/whatif?range=all")
    said = page.get_by_test_id("answer")
    expect(said).to_contain_text(f"The engine found {shown(rate('engine'))} of its prompt tokens")
    expect(said).to_contain_text(
        f"Without re-store a tier of this size would give {shown(rate('off'))}, with it {shown(rate('tracked'))}; "
        f"a tier twice as large {shown(rate('unlimited'))}, an endless one {shown(rate('unlimited'))}"
    )
    expect(page.get_by_test_id("trust")).to_contain_text("0.00 percentage points")
    curve = answer(shadowed, "shadows?since=0")["curve"]
    wide = {(r["policy"], r["cpu_blocks"]): r["hit_rate"] for r in curve if r["cpu_blocks"] >= CPU_BLOCKS}
    assert wide == {
        (policy, CPU_BLOCKS * factor): pytest.approx(rate(policy if factor == 1 else "unlimited"))
        for policy in ("off", "tracked")
        for factor in (1, 2, 4)
    }
    points = page.get_by_role("group", name=re.compile("Hit rate over the size")).get_by_role("img")
    for row in curve:
        size = row["cpu_bytes"] / 2**20
        words = f"{size:.0f}\u00a0MiB" if size < 1024 else f"{size / 1024:.0f}\u00a0GiB"
        expect(points.and_(page.get_by_label(f"{row['policy']}, {words}: {shown(row['hit_rate'])} hit"))).to_have_count(
            1
        )


def test_form_of_the_what_if_plays_the_log_and_shows_what_the_api_answers(
    open_page: OpenPage, shadowed: Server
) -> None:
    page = open_page(f"{shadowed.url}#/whatif?range=all")
    form = page.locator("form")
    form.get_by_label("sizes in GiB").fill("1, 2")
    form.get_by_role("button", name="compute").click()
    table = page.get_by_role("region", name="What the form asked for")
    expected = {
        ("off", "1"): rate("off"),
        ("off", "2"): rate("unlimited"),
        ("tracked", "1"): rate("tracked"),
        ("tracked", "2"): rate("unlimited"),
        ("adaptive", "1"): rate("adaptive"),
        ("adaptive", "2"): rate("unlimited"),
        ("unlimited", ""): rate("unlimited"),
    }
    for (policy, gib), value in expected.items():
        size = f"{gib}\u00a0GiB, {8 * int(gib)}\u00a0blocks" if gib else "no bound"
        expect(table.get_by_role("row").filter(has_text=policy).filter(has_text=size)).to_contain_text(shown(value))
    # Only now: one is computed at a time, and whoever asks meanwhile is told to wait.
    played = answer(shadowed, "whatif?policies=off,tracked,adaptive,unlimited&cpu_gib=1,2")["rows"]
    assert {(r["policy"], str(r["cpu_bytes"] // 2**30) if r["cpu_bytes"] else ""): r["hit_rate"] for r in played} == {
        key: pytest.approx(value) for key, value in expected.items()
    }
    expect(page).to_have_url(re.compile("gib=1%2C2"))
