"""The app: `create_app` over a recorded log with no vLLM; `attach` is how the plugin mounts it into vLLM's server.

The routes live in an app of their own, mounted at /restore, so that our errors, protection and schema are ours and
vLLM's stay vLLM's.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import RedirectResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from app import errors
from app.context import AppContext
from app.exits import open_transports, server_wants_to_exit
from app.last_resort import contain
from app.models import Gap, Problem
from app.protection import Protection
from app.routes import (
    conversations,
    dashboard,
    events,
    evidence,
    export,
    health,
    overview,
    policy,
    requests,
    retention,
    shadows,
    tier,
)
from app.settings import Settings

PREFIX = "/restore"
STREAM = f"{PREFIX}/api/events/stream"
ROUTERS = (
    policy.router,
    overview.router,
    evidence.router,
    requests.router,
    conversations.router,
    tier.router,
    retention.router,
    shadows.router,
    events.router,
    export.router,
    health.router,
)
"""Everything that the API has, in the order of its schema."""


def _version() -> str:
    try:
        return version("vllm-restore")
    except PackageNotFoundError:
        return "0"  # run from a folder that nobody installed


class RestoreApp(FastAPI):
    """The mounted app. Its schema names the paths as a client sees them, with the prefix."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As FastAPI, also with vLLM's `--root-path`, whose prefix a proxy cuts off, so that no path has it."""
        if scope["type"] == "http" and not scope["path"].startswith(scope.get("root_path", "")):
            scope = {**scope, "root_path": PREFIX}
        await contain(super().__call__, scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI schema, built once."""
        if self.openapi_schema is None:
            schema = get_openapi(
                title=self.title, version=self.version, description=self.description, routes=self.routes
            )
            schema["paths"] = {PREFIX + path: item for path, item in schema["paths"].items()}
            # FastAPI lists the errors of a stream or a page under its own type; they are JSON as all are.
            for item in schema["paths"].values():
                for operation in item.values():
                    for status, response in operation["responses"].items():
                        if status != "200":
                            [content] = response["content"].values()
                            response["content"] = {"application/json": content}
            # What the stream sends stands in text events, which the schema of a response cannot name.
            schema["components"]["schemas"]["Gap"] = Gap.model_json_schema()
            self.openapi_schema = schema
        return self.openapi_schema


def build_restore_app(context: AppContext) -> FastAPI:
    """The app with everything under /restore, to be mounted there."""
    app = RestoreApp(
        title="vllm-restore",
        version=_version(),
        description="What the KV cache's CPU tier does, step by step, and the switch for re-store.",
        # Their pages load scripts from elsewhere; the schema itself is at /restore/openapi.json.
        docs_url=None,
        redoc_url=None,
        root_path_in_servers=False,
        responses={
            401: {"model": Problem, "description": "A key is set and was not given"},
            403: {"model": Problem, "description": "A client, a host name or a page that may not do this"},
            422: {"model": Problem, "description": "A parameter that is not as it should be"},
            503: {"model": Problem, "description": "The log cannot be read now"},
        },
    )
    app.state.context = context
    errors.install_handlers(app)
    app.add_middleware(Protection, context=context)
    for router in ROUTERS:
        app.include_router(router)
    dashboard.mount_static(app, context.settings.static_dir)
    return app


def attach(app: FastAPI, context: AppContext) -> None:
    """Mount the routes into `app`, which is vLLM's or our own."""
    context.tailer.exit_signalled = lambda: server_wants_to_exit(app)
    context.tailer.open_transports = lambda: open_transports(app, STREAM)

    @app.get(PREFIX, include_in_schema=False)
    def redirect() -> RedirectResponse:  # pyright: ignore[reportUnusedFunction]
        # Relative, so that it holds behind a proxy that adds a prefix.
        return RedirectResponse("restore/", 307)

    app.mount(PREFIX, build_restore_app(context), name="vllm-restore")


def create_app(settings: Settings) -> FastAPI:
    """The app alone, over a log that an engine writes or wrote.

    Never fails for the log's sake: routes answer 503, with the reason, until it can be read.
    """
    context = AppContext(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await context.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None, docs_url=None, redoc_url=None)
    app.state.context = context
    attach(app, context)

    @app.get("/", include_in_schema=False)
    def root() -> RedirectResponse:  # pyright: ignore[reportUnusedFunction]
        return RedirectResponse("restore/", 307)

    errors.install_handlers(app)
    return app


def restore_app_of(app: FastAPI) -> FastAPI:
    """The mounted app inside one that `attach` was called on."""
    for route in app.routes:
        if isinstance(route, Mount) and route.path == PREFIX and isinstance(route.app, FastAPI):
            return route.app
    raise LookupError(f"nothing is mounted at {PREFIX}")
