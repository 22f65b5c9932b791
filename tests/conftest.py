"""Fixtures that more than one folder of tests needs. The engine is only started when a test asks for it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.engine.server import Server


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
