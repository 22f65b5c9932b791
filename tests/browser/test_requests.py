"""Requests: the paged table, and a request's page with its lane."""

import re
import sqlite3

import pytest
from playwright.sync_api import expect
from sqlalchemy import URL

from tests.browser.conftest import OpenPage, Server


def rows_of(url: URL, sql: str, *args: object) -> list[tuple[str, ...]]:
    assert url.database is not None
    with sqlite3.connect(url.database) as conn:
        rows: list[tuple[str, ...]] = conn.execute(sql, args).fetchall()
    conn.close()
    return rows


@pytest.fixture
def restored_request(recorded_log: URL) -> str:
    """A request with a CPU hit whose first blocks were lost and re-stored while it ran."""
    rows = rows_of(
        recorded_log,
        "SELECT r.request_id FROM blocks_restored r JOIN lookup l USING (request_id) "
        "WHERE l.cpu_hit_tokens > 0 AND r.first_index = 0 ORDER BY r.seq LIMIT 1",
    )
    return rows[0][0]


def test_table_pages_through_all_requests_newest_first(
    open_page: OpenPage, dashboard_server: Server, recorded_log: URL
) -> None:
    page = open_page(f"{dashboard_server.url}#/requests")
    links = page.locator("table.requests tbody th a")
    seen: list[str] = []
    for _ in range(20):
        expect(links.first).to_be_visible()
        seen += [str(link.get_attribute("title")) for link in links.all()]
        older = page.get_by_role("link", name="older", exact=True)
        if older.count() == 0:
            break
        first = links.first.get_attribute("title") or ""
        older.click()
        expect(links.first).not_to_have_attribute("title", first)
    expected = rows_of(recorded_log, "SELECT request_id FROM request_started ORDER BY seq DESC")
    assert seen == [row[0] for row in expected]


def test_search_and_state_narrow_the_table(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/requests?search=conv-3&state=finished")
    sessions = page.locator("table.requests tbody td.clip")
    expect(sessions.first).to_have_text("conv-3")
    assert set(sessions.all_text_contents()) == {"conv-3"}
    page.get_by_label("Search by request or session id").fill("nobody")
    expect(page.get_by_text("No request matches.")).to_be_visible()


def test_a_click_in_the_table_opens_the_request(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(dashboard_server.url)
    link = page.locator("table.requests tbody th a").first
    request_id = link.get_attribute("title") or ""
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(request_id)
    expect(page.get_by_role("region", name="Block chain").locator("canvas")).to_be_visible()


def test_page_says_what_the_lookup_found(
    open_page: OpenPage, dashboard_server: Server, recorded_log: URL, restored_request: str
) -> None:
    page = open_page(f"{dashboard_server.url}#/requests/{restored_request}")
    [(tokens, gpu, cpu, cut)] = rows_of(
        recorded_log,
        "SELECT num_tokens, gpu_hit_tokens, cpu_hit_tokens, cut_index FROM lookup WHERE request_id = ?",
        restored_request,
    )
    sentence = page.locator("p.sentence")
    expect(sentence).to_contain_text(f"{round((int(gpu) + int(cpu)) / int(tokens) * 100)}\u00a0%")
    expect(sentence).to_contain_text(f"block {cut}")
    lane = page.get_by_role("application")
    expect(lane).to_have_attribute("aria-label", re.compile(rf"{int(cpu) // 32} in the CPU tier, cut at block {cut}"))


def test_lane_is_walked_and_pinned_by_keyboard_and_shows_the_blocks_history(
    open_page: OpenPage, dashboard_server: Server, restored_request: str
) -> None:
    page = open_page(f"{dashboard_server.url}#/requests/{restored_request}")
    lane = page.get_by_role("application")
    lane.focus()
    lane.press("ArrowRight")
    expect(page.locator("#lane-readout")).to_contain_text("block 1")
    lane.press("ArrowLeft")
    lane.press("Enter")
    expect(page).to_have_url(re.compile("block=0"))
    history = page.get_by_role("region", name="Block 0", exact=True)
    expect(history.get_by_role("row").filter(has_text="re-stored")).not_to_have_count(0)
    expect(history.get_by_role("row").filter(has_text="evicted")).not_to_have_count(0)
    expect(page.get_by_role("region", name="Events of this request on block 0")).to_be_visible()
    lane.press("Escape")
    expect(page).not_to_have_url(re.compile("block="))


def test_lane_names_what_is_pointed_at_and_a_click_pins_it(
    open_page: OpenPage, dashboard_server: Server, restored_request: str
) -> None:
    page = open_page(f"{dashboard_server.url}#/requests/{restored_request}")
    lane = page.get_by_role("application")
    lane.hover(position={"x": 150, "y": 32})
    expect(page.locator("#lane-readout")).to_contain_text("block 0")
    lane.click(position={"x": 150, "y": 32})
    expect(page.get_by_role("region", name="Block 0", exact=True)).to_be_visible()


def test_lane_tells_who_took_the_block_that_was_missing(
    open_page: OpenPage, dashboard_server: Server, recorded_log: URL
) -> None:
    [(request_id, cut, missing, step, by)] = rows_of(
        recorded_log,
        "SELECT request_id, cut_index, lower(hex(missing_hash)), evicted_step, by_request_id FROM lookup "
        "WHERE cause = 'evicted' AND cut_index > 0 ORDER BY seq LIMIT 1",
    )
    page = open_page(f"{dashboard_server.url}#/requests/{request_id}")
    lane = page.get_by_role("application")
    # The keys begin in the row of the lookup.
    lane.focus()
    for _ in range(int(cut)):
        lane.press("ArrowRight")
    readout = page.locator("#lane-readout")
    expect(readout).to_contain_text(f"block {cut} · {missing[:8]}")
    expect(readout).to_contain_text("missing: here the lookup was cut")
    digits = f"{int(step):,}".replace(",", "\u202f")
    expect(readout).to_contain_text(f"evicted at step {digits} by the store of {by.removeprefix('chatcmpl-')[:8]}")
    # It was gone in the row above, too; further up, where it went, the row says when that was.
    lane.press("ArrowUp")
    expect(readout).to_contain_text(re.compile(rf"evicted at step {digits} by the store of"))
    lane.press("Enter")
    expect(page).to_have_url(re.compile(rf"block={cut}$"))
    history = page.get_by_role("region", name=f"Block {cut}", exact=True)
    expect(history.get_by_role("row").filter(has_text="evicted").filter(has_text=by[9:17])).not_to_have_count(0)


def test_lane_shows_what_came_long_before_the_lookup_on_demand(
    open_page: OpenPage, dashboard_server: Server, restored_request: str
) -> None:
    page = open_page(f"{dashboard_server.url}#/requests/{restored_request}")
    lane = page.get_by_role("application")
    expect(lane).to_be_visible()
    few = lane.bounding_box()
    page.get_by_role("button", name=re.compile(r"show \d+.earlier moments?")).click()
    expect(page.get_by_role("button", name=re.compile("earlier moment"))).to_have_count(0)
    every = lane.bounding_box()
    assert few
    assert every
    assert every["height"] > few["height"]


def test_an_unknown_request_says_so(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/requests/nobody")
    expect(page.get_by_role("heading", name="No such request")).to_be_visible()
    expect(page.get_by_text("nobody").last).to_be_visible()
