"""The views of the evidence over a recorded log: what they say is what its tables say, and each leads to the next."""

import csv
import re
import sqlite3
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from sqlalchemy import URL

from tests.browser.conftest import OpenPage, Server

COUNTED = "FROM lookup WHERE NOT is_resumed"


def query(url: URL, sql: str) -> list[tuple[int, ...]]:
    assert url.database is not None
    with sqlite3.connect(url.database) as conn:
        rows: list[tuple[int, ...]] = conn.execute(sql).fetchall()
    conn.close()
    return rows


def plain(text: str | None) -> str:
    """With ordinary spaces."""
    return re.sub(r"[\u202f\u00a0]", " ", text or "")


def digits(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def answer(page: Page) -> str:
    found = page.get_by_test_id("answer")
    expect(found).to_be_visible()
    return plain(found.text_content())


@pytest.fixture
def overview(open_page: OpenPage, dashboard_server: Server) -> Page:
    page = open_page(f"{dashboard_server.url}#/?range=all")
    expect(page.get_by_test_id("sentence")).to_contain_text("were lost to CPU evictions")
    return page


def test_sentence_says_what_evictions_cost_and_its_numbers_lead_to_the_proof(overview: Page, recorded_log: URL) -> None:
    [(tokens, lost, owned)] = query(
        recorded_log,
        f"SELECT sum(num_tokens), sum(lost_tokens * (cause = 'evicted')), "
        f"sum(lost_tokens * (cause = 'evicted' AND was_owned)) {COUNTED}",
    )
    assert lost > 0
    words = plain(overview.get_by_test_id("sentence").text_content())
    assert f"{round(lost / tokens * 100)} % were lost to CPU evictions" in words
    saved = "none of it" if owned == 0 else f"{round(owned / tokens * 100)} %" if owned / tokens >= 0.01 else "< 1 %"
    assert f"re-store could have saved {saved}" in words
    overview.locator(".sentence a", has_text=re.compile(rf"^{round(lost / tokens * 100)}\s%$")).last.click()
    expect(overview).to_have_url(re.compile(r"#/misses\?cause=evicted&range=all"))
    expect(overview.get_by_role("heading", level=1)).to_have_text("Why it missed")


def test_newest_lookups_name_their_cause(overview: Page, recorded_log: URL) -> None:
    table = overview.get_by_role("region", name="Lookups, newest first")
    row = table.locator("tbody tr", has_text="evicted").first
    request_id = row.locator("a").get_attribute("title")
    [(cut, since)] = query(
        recorded_log, f"SELECT cut_index, since_ns FROM lookup WHERE request_id = '{request_id}' AND cause = 'evicted'"
    )
    expect(row).to_contain_text(str(cut))
    assert since > 0


def test_causes_add_up_to_what_the_log_says(open_page: OpenPage, dashboard_server: Server, recorded_log: URL) -> None:
    page = open_page(f"{dashboard_server.url}#/misses?range=all")
    [(tokens, lost)] = query(recorded_log, f"SELECT sum(num_tokens), sum(lost_tokens) {COUNTED}")
    assert f"{round(lost / tokens * 100)} % of {digits(tokens)} prompt tokens" in answer(page)
    causes = query(recorded_log, f"SELECT cause, cause_detail, count(*), sum(lost_tokens) {COUNTED} GROUP BY 1, 2")
    rows = page.get_by_role("region", name="Causes").locator("tbody tr")
    expect(rows).to_have_count(len(causes))
    shown = {
        tuple(plain(cell.text_content()) for cell in row.locator("td").all()[:2])
        for row in rows.all()
        if row.locator("td").nth(1).text_content() != "—"
    }
    assert shown == {(digits(n), digits(t)) for cause, _, n, t in causes if cause is not None}


def test_one_cause_is_shown_alone_and_leads_to_a_request_that_it_cut(
    open_page: OpenPage, dashboard_server: Server
) -> None:
    page = open_page(f"{dashboard_server.url}#/misses?range=all")
    page.get_by_test_id("loss-readout").get_by_role("link", name=re.compile("^evicted")).click()
    expect(page).to_have_url(re.compile("cause=evicted"))
    rows = page.get_by_role("region", name="Causes").locator("tbody tr")
    expect(rows.filter(has_text="never seen")).to_have_count(0)
    example = rows.first.locator("td .hash").first
    request_id = example.get_attribute("title") or ""
    example.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(request_id)
    why = page.get_by_role("region", name="Why it ended there")
    expect(why).to_contain_text("evicted")
    expect(why.get_by_role("region", name="Evicted blocks that it wanted").get_by_role("row")).not_to_have_count(0)
    why.get_by_role("link", name=re.compile("^block ")).first.click()
    expect(page).to_have_url(re.compile(r"block=\d+"))


def test_loss_timeline_is_read_by_keyboard(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/misses?range=all")
    slider = page.get_by_role("slider", name="Time cursor")
    slider.focus()
    slider.press("End")
    slider.press("ArrowLeft")
    assert re.search(r"\d\d:\d\d:\d\d to ", slider.get_attribute("aria-valuetext") or "")
    slider.press("Escape")
    expect(slider).to_have_attribute("aria-valuetext", "whole range")


def test_benefit_is_what_restored_hits_and_copies_add_up_to(
    open_page: OpenPage, dashboard_server: Server, recorded_log: URL
) -> None:
    page = open_page(f"{dashboard_server.url}#/benefit?range=all")
    [(hit,)] = query(recorded_log, f"SELECT sum(restored_hit_tokens) {COUNTED}")
    [(blocks, copy_ns)] = query(recorded_log, "SELECT sum(num_blocks), sum(copy_ns) FROM blocks_restored")
    [(evicted,)] = query(recorded_log, "SELECT sum(num_blocks) FROM blocks_evicted")
    [(wanted,)] = query(recorded_log, "SELECT sum(num_blocks) FROM blocks_missed")
    assert f"{digits(hit)} prompt tokens" in answer(page)
    # The log was made with 150 µs of prefill a token: the slope finds it again.
    account = page.get_by_role("region", name="The account")
    expect(account).to_contain_text("Prefill takes 150\u00a0µs a token")
    assert f"{digits(blocks)} block" in plain(account.text_content())
    assert f"{round(copy_ns / 1e6)} ms" in plain(account.text_content())
    regret = plain(page.get_by_role("region", name="Evicted and wanted again").text_content())
    assert f"Of {digits(evicted)} evicted blocks, lookups wanted {digits(wanted)} again" in regret
    policies = page.get_by_role("region", name="Benefit by policy")
    expect(policies.get_by_role("row")).to_have_count(4)
    expect(page.get_by_role("table").filter(has_text="quoted")).to_contain_text("50×")


def test_histogram_can_be_read_without_seeing_it(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/benefit?range=all")
    bars = page.get_by_role("img", name=re.compile("wanted again (within|after)"))
    expect(bars.first).to_be_visible()
    assert bars.count() > 1


def test_conversation_tells_its_turns_and_where_it_lost_its_prefix(
    open_page: OpenPage, dashboard_server: Server, recorded_log: URL
) -> None:
    page = open_page(f"{dashboard_server.url}#/conversations")
    expect(page.get_by_role("region", name="Hit rate by turn").locator("tbody tr").first).to_be_visible()
    table = page.get_by_role("region", name="Table of conversations")
    row = table.locator("tbody tr").filter(has_text="×").first
    row.locator("a").click()
    expect(page).to_have_url(re.compile("#/conversations/chatcmpl"))
    assert "lost the prefix" in answer(page)
    turns = page.get_by_role("region", name="Turns").locator("tbody tr")
    ids = [str(link.get_attribute("title")) for link in turns.locator("td .hash").all()]
    names = ", ".join(f"'{request_id}'" for request_id in ids)
    sessions = query(recorded_log, f"SELECT DISTINCT session_id FROM request_started WHERE request_id IN ({names})")
    assert len(sessions) == 1
    assert len(ids) > 1
    expect(turns.locator(".cut-at").first).to_be_visible()


def test_an_unknown_conversation_says_so(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/conversations/nobody")
    expect(page.get_by_role("heading", name="No such conversation")).to_be_visible()


def test_tier_map_is_walked_and_pinned_by_keyboard(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/tier")
    tier = page.get_by_role("application")
    tier.focus()
    tier.press("ArrowRight")
    expect(page.locator("#grid-readout")).to_contain_text("block 1")
    tier.press("ArrowLeft")
    tier.press("Enter")
    expect(page).to_have_url(re.compile("block=0"))
    expect(page.get_by_label("Block 0", exact=True)).to_contain_text("stored by")
    tier.press("Escape")
    expect(page).not_to_have_url(re.compile("block="))


def test_tier_map_is_coloured_by_conversation_and_ordered_as_blocks_would_go(
    open_page: OpenPage, dashboard_server: Server
) -> None:
    page = open_page(f"{dashboard_server.url}#/tier")
    page.get_by_label("colour").select_option("conversation")
    page.get_by_label("order").select_option("eviction")
    expect(page).to_have_url(re.compile("by=conversation&order=eviction"))
    expect(page.locator(".lane-legend a").first).to_be_visible()
    tier = page.get_by_role("application")
    tier.focus()
    tier.press("Home")
    expect(page.locator("#grid-readout")).to_contain_text("goes next")


@pytest.mark.parametrize(
    ("view", "name", "column"),
    [
        ("misses?range=all", "Causes as CSV", "cause"),
        ("benefit?range=all", "Benefit by policy as CSV", "policy_version"),
        ("tier", "The tier's blocks as CSV", "id"),
        ("conversations", "Hit rate by turn as CSV", "turn"),
        ("requests", "These requests as CSV", "request_id"),
    ],
)
def test_what_a_view_shows_can_be_taken_away(
    open_page: OpenPage, dashboard_server: Server, tmp_path: Path, view: str, name: str, column: str
) -> None:
    page = open_page(f"{dashboard_server.url}#/{view}")
    with page.expect_download() as saved:
        page.get_by_role("link", name=name).click()
    assert saved.value.suggested_filename.endswith(".csv")
    path = tmp_path / "view.csv"
    saved.value.save_as(path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert column in rows[0]
