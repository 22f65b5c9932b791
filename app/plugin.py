"""The `vllm.endpoint_plugins` entry point: mounts the routes into vLLM's API server.

Opens no way into the engine: a switch is a row of the log. Nothing here may stop vLLM's server from serving.
"""

import asyncio
import logging
import os
from argparse import Namespace
from typing import TYPE_CHECKING, Any, cast

from fastapi import FastAPI

from app.context import AppContext, EngineClient
from app.main import attach
from app.ready import say_when_ready
from app.settings import Settings, allowed_hosts_from_env
from connector import log

if TYPE_CHECKING:
    from starlette.datastructures import State

logger = logging.getLogger("vllm.restore")


class ReStorePlugin:
    """vLLM's `EndpointPlugin` protocol."""

    name = "vllm_restore"
    required_tasks = None

    def __init__(self) -> None:
        self._context: AppContext | None = None
        self._ready: asyncio.Task[None] | None = None

    def attach_router(self, app: FastAPI) -> None:
        """Mount /restore. With a log that cannot be read, its routes say so with 503 and vLLM serves on."""
        args: Any = getattr(app.state, "args", None)
        context = AppContext(settings_from(args))
        attach(app, context)
        self._context = context
        try:
            log.check(context.url)
        except log.LogError as e:
            logger.warning("The dashboard at /restore/ has no log to show yet: %s", e)

    async def init_state(self, engine_client: EngineClient | None, state: "State", args: Namespace) -> None:
        """Keep the engine client (None on a server without an engine): /restore/healthz says whether it is well."""
        if self._context is not None:
            self._context.engine_client = engine_client
            state.vllm_restore = self._context
            self._ready = asyncio.create_task(self._say_when_ready(state, args), name="restore-ready")

    async def _say_when_ready(self, state: "State", args: Namespace) -> None:
        assert self._context is not None
        try:
            await say_when_ready(state, args, self._context.named_log())
        except Exception:
            logger.exception("The dashboard is at /restore/; its whole address cannot be told")


def log_named_in(transfer: Any) -> str | None:
    """`restore_db` of a `KVTransferConfig` (or None), also of a connector inside a `MultiConnector`.

    The engine goes by it before it looks at `RESTORE_DB`, so the app must.
    """
    is_dict = isinstance(transfer, dict)
    key = "kv_connector_extra_config"
    extra: Any = cast("dict[str, Any]", transfer).get(key) if is_dict else getattr(transfer, key, None)
    if not isinstance(extra, dict):
        return None
    given = cast("dict[str, Any]", extra)
    if isinstance(found := given.get("restore_db"), str) and found:
        return found
    inner: Any = given.get("connectors")
    names = [log_named_in(each) for each in cast("list[Any]", inner)] if isinstance(inner, list) else []
    return next((name for name in names if name), None)


def settings_from(args: Any) -> Settings:
    """Settings from vLLM's arguments and the environment, as they are when the server starts."""
    keys: list[str | None] = list(getattr(args, "api_key", None) or [os.environ.get("VLLM_API_KEY")])
    host: str | None = getattr(args, "host", None)
    return Settings(
        db=log_named_in(getattr(args, "kv_transfer_config", None)),
        is_recorded=False,
        # As vLLM: the option goes before the variable, and empty keys are none.
        api_keys=tuple(k for k in keys if k),
        bound_host=host.lower() if host else None,
        allowed_hosts=allowed_hosts_from_env(),
    )
