"""The outermost layer of the mounted app: no exception gets past it into the server around us.

vLLM's own handler of unforeseen errors looks for arguments that our app's state has not, and would fail in turn. Only
`main` imports it.
"""

import logging
from typing import cast

from anyio import BrokenResourceError, ClosedResourceError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.errors import fault

logger = logging.getLogger("vllm.restore")

CLIENT_LEFT = (BrokenResourceError, ClosedResourceError, ClientDisconnect)


def client_left(error: BaseException) -> bool:
    """Whether this says only that the client has gone: FastAPI's streams fail so, in a group, at what was not sent."""
    if isinstance(error, BaseExceptionGroup):
        return all(client_left(e) for e in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, CLIENT_LEFT)


async def contain(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Run `app`. What it raises ends here: in silence where the client left, else in the server's log."""
    has_started = False

    async def watched(message: Message) -> None:
        nonlocal has_started
        has_started = has_started or message["type"] == "http.response.start"
        await send(message)

    try:
        await app(scope, receive, watched)
    except Exception as error:
        if scope["type"] != "http":
            raise
        if client_left(error):
            return
        logger.exception("A fault in vllm-restore, at %s %s", scope["method"], scope["path"])
        if not has_started:
            await fault(error)(scope, receive, send)
