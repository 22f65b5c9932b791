"""One line, once vLLM's API server answers: where the dashboard is, as an address that can be clicked."""

import asyncio
import logging
import multiprocessing
from typing import Any

logger = logging.getLogger("vllm.restore")

LOOK_SECONDS = 0.1
EVERYWHERE = ("", "0.0.0.0", "::")
FURTHER_SERVER = "ApiServer_"
"""vLLM's further API servers are processes of such a name; all listen on one port."""


async def say_when_ready(state: Any, args: Any, where: str) -> None:
    """Wait until the server in `state.server`, where vLLM's launcher puts it, has started, and say its address.

    Args:
        args: vLLM's; they say where it listens if its sockets do not.
        where: the log's file.
    """
    name = multiprocessing.current_process().name
    if name.startswith(FURTHER_SERVER) and name != f"{FURTHER_SERVER}0":
        return
    while (server := getattr(state, "server", None)) is None or not server.started:
        if server is not None and server.should_exit:
            return
        await asyncio.sleep(LOOK_SECONDS)
    url = dashboard_url(server, args)
    logger.info("Ready: the dashboard is at %s, over the log %s", url or "/restore/", where)


def dashboard_url(server: Any, args: Any) -> str | None:
    """Where a browser on this machine finds the dashboard; None where the server listens on no address."""
    names: list[Any] = [sock.getsockname() for each in server.servers for sock in each.sockets]
    if not names and not getattr(args, "uds", None):
        names = [(args.host or "", args.port)]
    # Of a Unix socket it is a path.
    address: Any = next((name for name in names if not isinstance(name, str)), None)
    if address is None:
        return None
    host: str = address[0]
    port: int = address[1]
    shown = "127.0.0.1" if host in EVERYWHERE else f"[{host}]" if ":" in host else host
    scheme = "https" if server.config.is_ssl else "http"
    return f"{scheme}://{shown}:{port}/restore/"
