"""Is the app well? The one API route that needs no key."""

from fastapi import APIRouter, Request, Response

from app.deps import Context
from app.examples import HEALTH, example
from app.models import Health
from app.protection import has_key
from app.queries import health as queries

router = APIRouter(tags=["health"])


@router.get(
    "/healthz", responses={**example(200, HEALTH), **example(503, HEALTH, "Degraded: `detail` says why", Health)}
)
def get_health(request: Request, response: Response, context: Context) -> Health:
    """`ok`, or `degraded` with the reason and status 503. Where the log lies is told only to those with the key."""
    keys = context.api_keys
    health = queries.read_health(context, is_private=bool(keys) and not has_key(request.headers, keys))
    if health.status != "ok":
        response.status_code = 503
    return health
