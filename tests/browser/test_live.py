"""While an engine writes: the feed moves, the switch gets the engine's word, a lost connection leaves no hole."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, expect

from app.settings import Settings
from connector import log
from connector.events import Fault
from tests.browser.conftest import OpenPage, Server
from tests.browser.live_engine import LiveEngine


def feed_of(page: Page, kind: str) -> list[str]:
    rows = page.get_by_role("region", name="Feed").locator(".events li").filter(has_text=re.compile(kind))
    return [str(a.get_attribute("title")) for a in rows.locator(".who a").all()]


def started(page: Page, name: str) -> None:
    """Wait until the feed shows that the request started."""
    row = page.get_by_role("region", name="Feed").locator(f'.events a[title="{name}"]').first
    expect(row).to_be_visible()


def test_feed_and_table_move_while_the_engine_works(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    expect(page.get_by_role("status")).to_have_text("live")
    live_engine.request("first", 4)
    started(page, "first")
    expect(page.locator('table.requests a[title="first"]')).to_be_visible()
    expect(page.get_by_test_id("sentence")).to_contain_text("128 prompt tokens")
    expect(page.get_by_role("region", name="CPU tier")).to_contain_text("4 of 64\u00a0blocks")


def test_an_engine_without_traffic_shows_the_line_that_brings_some(open_page: OpenPage, live_dashboard: Server) -> None:
    page = open_page(live_dashboard.url)
    expect(page.get_by_text(re.compile(r"curl http://127\.0\.0\.1:\d+/v1/chat/completions"))).to_be_visible()


def test_switch_changes_the_policy_and_shows_the_engines_answer(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    toggle = page.get_by_role("switch", name="enabled")
    expect(toggle).to_have_attribute("aria-checked", "true")
    toggle.click()
    expect(toggle).to_have_attribute("aria-checked", "false")
    answers = page.get_by_role("list", name="What the engines answered")
    expect(answers).to_contain_text(re.compile(r"engine 0 obeys off, 64 a step \(v1\) (since|after) step"))

    page.get_by_role("radio", name="rescan").click()
    expect(answers).to_contain_text("(v2)")
    page.get_by_label("budget").fill("12")
    page.get_by_role("button", name="set").click()
    expect(answers).to_contain_text("12 a step (v3)")

    assert live_engine.url.database is not None
    with sqlite3.connect(live_engine.url.database) as conn:
        rows = conn.execute(
            "SELECT policy_version, enabled, mode, max_restore_blocks_per_step FROM policy_applied ORDER BY seq"
        ).fetchall()
    conn.close()
    assert rows == [(0, 1, "tracked", 64), (1, 0, "tracked", 64), (2, 0, "rescan", 64), (3, 0, "rescan", 12)]

    page.get_by_role("link", name="history").click()
    table = page.get_by_role("region", name="History")
    expect(table.get_by_role("row")).to_have_count(4)
    expect(table).to_contain_text("budget 64 a step → 12 a step")
    expect(table).to_contain_text("tracked → off")


def test_a_budget_out_of_bounds_is_not_sent(open_page: OpenPage, live_dashboard: Server) -> None:
    page = open_page(live_dashboard.url)
    page.get_by_label("budget").fill("-1")
    page.get_by_role("button", name="set").click()
    expect(page.get_by_role("list", name="What the engines answered")).to_contain_text("v0: the built-in default")


def test_paused_feed_stays_and_counts_what_it_holds_back(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    live_engine.request("before", 2)
    started(page, "before")
    page.get_by_role("button", name="pause").click()
    live_engine.request("during", 2)
    expect(page.get_by_role("button", name="resume, 4 new")).to_be_visible()
    assert "during" not in feed_of(page, "started")
    page.get_by_role("button", name="resume").click()
    started(page, "during")


def test_lost_connection_dims_with_its_age_and_resumes_without_a_hole(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    live_engine.request("before", 2)
    started(page, "before")
    live_dashboard.stop()
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"connection lost .* ago, trying again"))
    expect(page.locator(".stale")).to_have_count(1)
    assert "before" in feed_of(page, "started")
    live_engine.request("meanwhile", 2)
    live_dashboard.start()
    expect(page.get_by_role("status")).to_have_text("live")
    expect(page.locator(".stale")).to_have_count(0)
    started(page, "meanwhile")
    live_engine.request("after", 2)
    started(page, "after")
    assert feed_of(page, "started") == ["after", "meanwhile", "before"]


LOOK_AWAY = """(state) => {
  Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_tab_in_the_background_follows_nothing_and_catches_up_when_it_is_seen(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    live_engine.request("seen", 2)
    started(page, "seen")
    # What was there already is read by REST, beside the stream that begins.
    await_true(page, lambda: live_dashboard.num_followers == 1)
    page.evaluate(LOOK_AWAY, "hidden")
    live_engine.request("unseen", 2)
    # The server notices with its next heartbeat at the latest.
    await_true(page, lambda: live_dashboard.num_followers == 0)
    assert feed_of(page, "started") == ["seen"]
    page.evaluate(LOOK_AWAY, "visible")
    started(page, "unseen")
    assert feed_of(page, "started") == ["unseen", "seen"]


def test_rows_that_the_stream_skips_are_read_by_rest(
    open_page: OpenPage, live_engine: LiveEngine, serve: Callable[[Settings], Server]
) -> None:
    server = serve(Settings(db=live_engine.url.database, heartbeat_seconds=1.0, max_client_lag=3))
    page = open_page(server.url)
    live_engine.request("seen", 2)
    started(page, "seen")
    page.evaluate(LOOK_AWAY, "hidden")
    for name in ("one", "two", "three"):
        live_engine.request(name, 2)
    page.evaluate(LOOK_AWAY, "visible")
    for name in ("one", "two", "three"):
        started(page, name)
    assert feed_of(page, "started") == ["three", "two", "one", "seen"]


def test_log_that_was_replaced_while_nobody_looked_is_shown_without_the_old_ones_rows(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    for name in ("one", "two", "three"):
        live_engine.request(name, 2)
        started(page, name)
    page.evaluate(LOOK_AWAY, "hidden")
    path = Path(str(live_engine.url.database))
    for side in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        side.unlink(missing_ok=True)
    # The engine looks once a second, and begins a new log, whose numbers are smaller than those that the page knows.
    await_true(page, path.exists)
    live_engine.request("new", 2)
    await_true(page, lambda: started_in(live_engine) == ["new"])
    page.evaluate(LOOK_AWAY, "visible")
    started(page, "new")
    assert feed_of(page, "started") == ["new"]


def await_true(page: Page, is_so: Callable[[], bool]) -> None:
    for _ in range(300):
        if is_so():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not come true in half a minute")


def started_in(live_engine: LiveEngine) -> list[str]:
    """The requests of the log that lies there now."""
    try:
        reader = log.open_reader(live_engine.url)
    except log.LogError:
        return []  # it is being made
    with reader.connect() as conn:
        found = [name for (name,) in conn.exec_driver_sql("SELECT request_id FROM request_started")]
    reader.dispose()
    return found


def test_feed_names_the_engine_of_each_row_where_there_are_two(
    open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine
) -> None:
    page = open_page(live_dashboard.url)
    rows = page.get_by_role("region", name="Feed").locator(".events li")
    live_engine.request("alone", 2)
    started(page, "alone")
    expect(rows.locator(".engine")).to_have_count(0)
    with LiveEngine(live_engine.url, dp_index=1) as second:
        second.request("theirs", 2)
        started(page, "theirs")
        for name, engine in (("alone", "0"), ("theirs", "1")):
            mine = rows.filter(has=page.locator(f'a[title="{name}"]'))
            expect(mine.locator(".engine").first).to_have_text(engine)
            assert set(mine.locator(".engine").all_text_contents()) == {engine}
        expect(rows.locator(".engine").first).to_have_attribute("title", re.compile("engine 1, start 2"))


def test_a_fault_is_shown_with_its_words(open_page: OpenPage, live_dashboard: Server, live_engine: LiveEngine) -> None:
    page = open_page(live_dashboard.url)
    live_engine.tell(Fault("build_connector_meta", "the tier went away", 1))
    note = page.get_by_role("region", name="CPU tier").locator(".note")
    expect(note).to_contain_text("1\u00a0fault: build_connector_meta: the tier went away")


def test_key_is_asked_for_and_opens_the_dashboard(
    open_page: OpenPage, live_engine: LiveEngine, serve: Callable[[Settings], Server]
) -> None:
    server = serve(Settings(db=live_engine.url.database, api_keys=("open sesame",)))
    page = open_page(server.url)
    field = page.get_by_label("API key", exact=True)
    field.fill("wrong")
    field.press("Enter")
    expect(page.get_by_text("The key was not accepted")).to_be_visible()
    field.fill("open sesame")
    field.press("Enter")
    expect(page.get_by_role("status")).to_have_text("live")
    live_engine.request("keyed", 2)
    started(page, "keyed")
    page.reload()
    expect(page.get_by_role("status")).to_have_text("live")
