"""The dependencies of the routes, as `Annotated` types."""

from typing import Annotated, cast

from fastapi import Depends, Request

from app.context import AppContext


def get_context(request: Request) -> AppContext:
    """The context of the app that this request came to."""
    return cast(AppContext, request.app.state.context)


Context = Annotated[AppContext, Depends(get_context)]
