"""The first screen over a recorded log: what it says is what the log holds, and everything on it has an address."""

import re
import sqlite3

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import URL

from tests.browser.conftest import OpenPage, Server

GPU_GREEN = (0, 158, 115)
CPU_BLUE = (0, 114, 178)

COUNT_PIXELS = """(canvas, [r, g, b]) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) count += data[i] === r && data[i + 1] === g && data[i + 2] === b;
  return count;
}"""


@pytest.fixture
def page(open_page: OpenPage, dashboard_server: Server) -> Page:
    page = open_page(dashboard_server.url)
    expect(page.get_by_test_id("sentence")).to_contain_text("prompt tokens")
    return page


def query(url: URL, sql: str) -> tuple[int, ...]:
    assert url.database is not None
    with sqlite3.connect(url.database) as conn:
        row: tuple[int, ...] = conn.execute(sql).fetchone()
    conn.close()
    return row


def plain(text: str | None) -> str:
    """With ordinary spaces."""
    return re.sub(r"[\u202f\u00a0]", " ", text or "")


def digits(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def test_sentence_says_what_the_log_holds(page: Page, recorded_log: URL) -> None:
    tokens, gpu, cpu = query(
        recorded_log,
        "SELECT sum(num_tokens), sum(gpu_hit_tokens), sum(cpu_hit_tokens) FROM lookup WHERE NOT is_resumed",
    )
    sentence = plain(page.get_by_test_id("sentence").text_content())
    assert f"{round((gpu + cpu) / tokens * 100)} % of {digits(tokens)} prompt tokens" in sentence
    assert f"{round(gpu / tokens * 100)} % from the GPU, {round(cpu / tokens * 100)} % from the CPU tier" in sentence


def test_timeline_draws_both_tiers(page: Page) -> None:
    canvas = page.locator(".slider canvas")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(COUNT_PIXELS, GPU_GREEN) > 200
    assert canvas.evaluate(COUNT_PIXELS, CPU_BLUE) > 200
    expect(page.locator(".strips canvas")).to_have_count(6)


def test_time_without_an_engine_is_named_and_not_drawn_as_zero(page: Page) -> None:
    expect(page.get_by_test_id("readout")).to_contain_text("the engine was down")


def test_strips_count_the_blocks_of_the_log(page: Page, recorded_log: URL) -> None:
    for kind, name in (("blocks_stored", "stores"), ("blocks_restored", "re-stores"), ("blocks_evicted", "evictions")):
        (blocks,) = query(recorded_log, f"SELECT sum(num_blocks) FROM {kind}")
        strip = page.locator(".strip-name", has_text=re.compile(f"^{name}"))
        assert plain(strip.text_content()) == name + digits(blocks)


def test_cursor_moves_by_keyboard_and_reads_one_bucket(page: Page) -> None:
    readout = page.get_by_test_id("readout")
    whole = readout.text_content()
    slider = page.get_by_role("slider", name="Time cursor")
    slider.focus()
    slider.press("End")
    slider.press("ArrowLeft")
    expect(readout).to_contain_text(re.compile(r"\d\d:\d\d:\d\d – \d\d:\d\d:\d\d"))
    assert re.search(r"\d\d:\d\d:\d\d", slider.get_attribute("aria-valuetext") or "")
    slider.press("Escape")
    expect(readout).to_have_text(whole or "")


def test_dragging_over_the_timeline_makes_that_piece_the_range(page: Page, recorded_log: URL) -> None:
    box = page.locator(".slider .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    with page.expect_response(lambda response: "/api/summary" in response.url and "until=" in response.url) as answer:
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"range=\d{13}-\d{13}"))
    since, until = (int(re.findall(rf"{name}=(\d+)", answer.value.url)[0]) for name in ("since", "until"))
    span = f"wall_ns >= {since} AND wall_ns < {until}"
    (requests,) = query(recorded_log, f"SELECT count(*) FROM request_started WHERE {span}")
    (timed,) = query(recorded_log, f"SELECT count(ttft_ns) FROM request_finished WHERE {span}")
    assert requests > 1
    assert timed > 0
    sentence = page.get_by_test_id("sentence")
    expect(sentence).to_contain_text("in this piece of time")
    expect(sentence).to_contain_text(f"{requests} requests, TTFT")
    page.get_by_role("button", name="back to now").click()
    expect(page).not_to_have_url(re.compile("range="))


def test_range_of_the_picker_stands_in_the_address(page: Page) -> None:
    page.get_by_label("Time range").select_option("all")
    expect(page).to_have_url(re.compile(r"#/\?range=all$"))
    expect(page.get_by_test_id("sentence")).to_contain_text("in the whole log")
    page.go_back()
    expect(page.get_by_test_id("sentence")).to_contain_text("of the log")


def test_feed_filter_and_search_stand_in_the_address_and_are_read_from_it(
    page: Page, open_page: OpenPage, dashboard_server: Server
) -> None:
    feed = page.get_by_role("region", name="Feed")
    feed.locator("summary").click()
    feed.get_by_label("re-stored").check()
    expect(page).to_have_url(re.compile("kind=blocks_restored"))
    rows = feed.locator(".events li .kind")
    expect(rows.first).to_have_text("re-stored")
    assert set(rows.all_text_contents()) == {"re-stored"}
    who = feed.locator(".events li .who a").first.get_attribute("title")
    assert who is not None

    other = open_page(f"{dashboard_server.url}#/?kind=blocks_restored,blocks_evicted&find={who[:20]}")
    found = other.get_by_role("region", name="Feed").locator(".events li")
    expect(found.first).to_be_visible()
    assert {"re-stored"} <= set(found.locator(".kind").all_text_contents()) <= {"re-stored", "evicted"}


def test_a_recorded_log_says_that_nothing_listens(page: Page) -> None:
    expect(page.get_by_role("status")).to_contain_text("no engine, log ends")
    expect(page.get_by_role("switch", name="enabled")).to_be_disabled()
    expect(page.get_by_role("region", name="Re-store")).to_contain_text("no engine listens")


def test_theme_switch_turns_and_is_kept(page: Page) -> None:
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Switch to dark").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")
