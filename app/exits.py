"""Does the server around us want to exit? Open streams notice by themselves, since lifespan ends only after them.

And the streams that cannot end: of a client that has stopped reading, whose connection uvicorn would wait for for ever.
"""

import signal
from typing import Any, Protocol

from fastapi import FastAPI


class Transport(Protocol):
    """What is used of a transport. uvloop's do not derive from asyncio's."""

    def abort(self) -> None:
        """Close at once, whatever was not sent."""
        ...


def _server_of(app: FastAPI) -> Any:
    """The uvicorn server that runs this app, or None.

    vLLM's launcher leaves it in `app.state.server`. Under plain uvicorn the handler of SIGTERM is a method of the
    server; reading it changes nothing, unlike wrapping it.
    """
    server = getattr(app.state, "server", None)
    return server if server is not None else getattr(signal.getsignal(signal.SIGTERM), "__self__", None)


def server_wants_to_exit(app: FastAPI) -> bool:
    """True from the moment that uvicorn, ours or vLLM's, was told to stop."""
    return getattr(_server_of(app), "should_exit", False) is True


def open_transports(app: FastAPI, path: str) -> list[Transport]:
    """The transports of the server's open connections that ask for this path."""
    connections = getattr(getattr(_server_of(app), "server_state", None), "connections", ())
    found: list[Transport] = []
    for connection in list(connections):
        scope: Any = getattr(connection, "scope", None)
        transport: Transport | None = getattr(connection, "transport", None)
        if transport is not None and scope and str(scope.get("path", "")).endswith(path):
            found.append(transport)
    return found
