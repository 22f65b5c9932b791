"""Nothing recorded, no log, no model: each says what is so and what to do."""

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import expect

from app.settings import Settings
from connector import log
from tests.browser.conftest import OpenPage, Server
from tests.browser.live_engine import LiveEngine
from tests.browser.sample_log import CPU_BLOCKS

Serve = Callable[[Settings], Server]


def test_an_empty_log_says_how_to_fill_it(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    url = log.resolve_url(str(tmp_path / "empty.db"))
    log.upgrade(url)
    page = open_page(serve(Settings(db=url.database)).url)
    expect(page.get_by_text("No engine has written to this log yet.")).to_be_visible()
    expect(page.get_by_text("make serve")).to_be_visible()


def test_a_missing_log_is_an_error_in_the_servers_words(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    page = open_page(serve(Settings(db=str(tmp_path / "none.db"))).url)
    expect(page.get_by_role("alert").first).to_contain_text("there is no log at")


def test_page_comes_to_life_when_the_log_does(open_page: OpenPage, serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "later.db"
    page = open_page(serve(Settings(db=str(path))).url)
    expect(page.get_by_role("alert").first).to_be_visible()
    with LiveEngine(log.resolve_url(str(path))):
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.get_by_test_id("sentence")).to_be_visible()


def test_chat_over_a_recorded_log_says_that_there_is_no_model(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/chat")
    expect(page.get_by_text(re.compile("recorded log: it has no /v1 routes"))).to_be_visible()
    expect(page.get_by_role("textbox")).to_have_count(0)


def test_chat_is_offered_where_there_is_a_model_and_nowhere_else(
    open_page: OpenPage, dashboard_server: Server, serve: Serve
) -> None:
    page = open_page(dashboard_server.url)
    views = page.get_by_role("navigation", name="Views").get_by_role("link")
    expect(views.filter(has_text="Engines")).to_be_visible()
    expect(views.filter(has_text="Chat")).to_have_count(0)
    inside = open_page(serve(Settings(db=dashboard_server.settings.db, is_recorded=False)).url)
    expect(inside.get_by_role("navigation", name="Views").get_by_role("link", name="Chat")).to_be_visible()


def test_engines_view_tells_each_start_and_how_it_ended(open_page: OpenPage, dashboard_server: Server) -> None:
    page = open_page(f"{dashboard_server.url}#/engines")
    expect(page.get_by_role("region", name="Engine 0, start 2")).to_contain_text("stopped")
    expect(page.get_by_role("region", name="Engine 0, start 1")).to_contain_text(f"{CPU_BLOCKS}\u00a0blocks")
