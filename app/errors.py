"""The one map from exceptions to HTTP. Every error has the shape `{"detail": "one line"}`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from connector.log import LogError
from connector.policy import PolicyError


class NotFoundError(Exception):
    """What was asked for is not in the log. The message says what was looked for."""


class ConflictError(Exception):
    """It cannot be done in the state that things are in. The message says why."""


class BadQueryError(Exception):
    """The parameters do not go together. The message says which and what they may be."""


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error's response."""
    # JSON may name half a character (`"\ud800"`), which no answer can be encoded with.
    shown = detail.encode(errors="backslashreplace").decode()
    return JSONResponse({"detail": shown}, status, headers=dict(headers or {}))


def fault(e: Exception) -> JSONResponse:
    """The answer to what nobody foresaw. It names the kind of error and none of its innards."""
    return problem(500, f"a fault in vllm-restore ({type(e).__name__}); the server's own log has the details")


def describe(errors: Sequence[Any]) -> str:
    """Pydantic's errors as one line: where, what was wrong, and what was given."""
    parts: list[str] = []
    for error in cast(Sequence[Mapping[str, Any]], errors):
        if error["type"] == "json_invalid":
            parts.append(f"the body is not JSON: {error['ctx']['error']} at character {error['loc'][-1]}")
            continue
        # The first part of the place says `body` or `query`; the rest names the field.
        where = ".".join(str(p) for p in error["loc"][1:]) or str(error["loc"][0])
        message = str(error["msg"]).removeprefix("Value error, ")
        given = error.get("input")
        shown = f", not {given!r:.80}" if isinstance(given, str | int | float | bool) else ""
        parts.append(f"{where}: {message}{shown}")
    return "; ".join(parts)


def install_handlers(app: FastAPI) -> None:
    """Make `app` answer every exception that a route may raise."""

    def http(_: Request, e: Exception) -> JSONResponse:
        assert isinstance(e, HTTPException)
        detail = "nothing is here; /restore/openapi.json names every path" if e.status_code == 404 else str(e.detail)
        return problem(e.status_code, detail, e.headers)

    def validation(_: Request, e: Exception) -> JSONResponse:
        assert isinstance(e, RequestValidationError)
        return problem(422, describe(e.errors()))

    def said(status: int) -> Callable[[Request, Exception], JSONResponse]:
        def handler(_: Request, e: Exception) -> JSONResponse:
            return problem(status, str(e))

        return handler

    def database(_: Request, e: Exception) -> JSONResponse:
        return problem(503, f"the log cannot be read now: {getattr(e, 'orig', None) or e}")

    def unforeseen(_: Request, e: Exception) -> JSONResponse:
        return fault(e)

    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
    for kind, status in (
        (PolicyError, 422),
        (BadQueryError, 422),
        (NotFoundError, 404),
        (ConflictError, 409),
        (LogError, 503),
    ):
        app.add_exception_handler(kind, said(status))
    app.add_exception_handler(SQLAlchemyError, database)
    app.add_exception_handler(Exception, unforeseen)
