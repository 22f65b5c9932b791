"""Real Chromium against the real app: over a recorded log, and over one that a real recorder writes meanwhile.

The browser is the machine's own (Playwright brings none); without one, or without a built dashboard, these tests are
skipped and say so.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from sqlalchemy import URL

from app.main import create_app
from app.settings import Settings
from connector import log
from tests.browser.live_engine import LiveEngine
from tests.browser.sample_log import write_sample

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-browser")
ARGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
)

expect.set_options(timeout=15_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def find_browser() -> str | None:
    """The machine's Chromium or Chrome; `CHROME` names another."""
    return os.environ.get("CHROME") or next((path for name in NAMES if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or name a Chrome with CHROME=/path")
    if not (ROOT / "app" / "static" / "index.html").is_file():
        pytest.skip("the dashboard is not built: make web")
    args = [*ARGS, "--no-sandbox"] if os.geteuid() == 0 else list(ARGS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=args)
        yield chromium
        chromium.close()


@dataclass
class Server:
    """The app under uvicorn in a thread, on a port that stays the same when it is stopped and started again."""

    settings: Settings
    port: int = field(default_factory=lambda: free_port())
    _running: tuple[uvicorn.Server, threading.Thread] | None = None
    _app: FastAPI | None = None

    @property
    def num_followers(self) -> int:
        """How many clients follow the stream."""
        assert self._app is not None
        followers: int = self._app.state.context.tailer.num_followers
        return followers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/restore/"

    def start(self) -> "Server":
        self._app = app = create_app(self.settings)
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=self.port,
            log_level="warning",
            ws="none",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        # As the command line does: open streams look there whether the server wants to exit.
        app.state.server = server
        thread = threading.Thread(target=server.run, name="dashboard-server")
        thread.start()
        deadline = time.monotonic() + 20
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("the server did not start")
            thread.join(0.02)
        self._running = (server, thread)
        return self

    def stop(self) -> None:
        if self._running is not None:
            server, thread = self._running
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server did not exit"
            self._running = None


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def recorded_log(tmp_path_factory: pytest.TempPathFactory) -> URL:
    """A log that ended a minute ago; see `sample_log`."""
    url = log.resolve_url(str(tmp_path_factory.mktemp("recorded") / "log.db"))
    write_sample(url, time.time_ns() - 60_000_000_000)
    return url


@pytest.fixture(scope="session")
def dashboard_server(recorded_log: URL) -> Iterator[Server]:
    """The app over the recorded log."""
    server = Server(Settings(db=recorded_log.database)).start()
    yield server
    server.stop()


@pytest.fixture
def live_engine(tmp_path: Path) -> Iterator[LiveEngine]:
    """A real recorder that takes a step now and then and writes what a test tells it to."""
    engine = LiveEngine(log.resolve_url(str(tmp_path / "live.db")))
    yield engine
    engine.close()


@pytest.fixture
def live_dashboard(live_engine: LiveEngine) -> Iterator[Server]:
    """The app over the log that `live_engine` writes."""
    server = Server(Settings(db=live_engine.url.database, heartbeat_seconds=1.0)).start()
    yield server
    server.stop()


@pytest.fixture
def serve() -> Iterator[Callable[[Settings], Server]]:
    """Start the app with settings of the test's own."""
    servers: list[Server] = []

    def start(settings: Settings) -> Server:
        servers.append(Server(settings).start())
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


OpenPage = Callable[..., Page]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open an address in a fresh profile. A script error, or one that the page logs, fails the test at its end.

    Messages of the browser itself about an answer that is no 2xx are not the page's and are passed over.
    """
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    def open_(address: str, *, width: int = 1440, height: int = 900, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", note)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept. Git ignores it."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS
