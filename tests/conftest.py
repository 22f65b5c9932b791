"""Fixtures that more than one folder of tests needs, and the order of all tests. The engine is only started when a test
asks for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests import workers

if TYPE_CHECKING:
    from tests.engine.server import Server


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    workers.put_last(items)


# xdist asks its own implementation first, and only where it is there.
@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> workers.AloneAtTheEnd:
    return workers.AloneAtTheEnd(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    workers.name_files(config)


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Server]":
    """A real vLLM with the embedded model, the connector and small tiers: one for the whole run.

    Its end is a check as well: it exits by itself and with 0 when asked to, has marked its engine as stopped in the
    log, and leaves no process behind.
    """
    # Here, so that a run of other tests does not load what the engine needs.
    from tests.engine.server import SMALL_TIERS, Server

    server = Server(tmp_path_factory.mktemp("live"), *SMALL_TIERS)
    try:
        yield server
        status = server.process.poll()
        assert status is None, f"the server ended by itself with {status}:\n{server.tail()}"
        assert server.stop() == 0, server.tail()
        assert [row for row in server.rows("SELECT * FROM engines") if row["stopped_wall_ns"] is None] == []
        server.await_no_survivor()
    finally:
        server.kill()
