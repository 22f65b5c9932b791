"""Whether the app is well."""

from sqlalchemy.exc import SQLAlchemyError

from app.context import AppContext
from app.models import Health
from app.queries.engines import live_engines
from app.queries.events import newest_seq
from connector import log
from connector.log import LogError


def read_health(context: AppContext) -> Health:
    """`degraded` where the log cannot be read or vLLM's engine has died. Never raises for these."""
    where = context.settings.db or ""
    revision, live, newest, detail = "", 0, 0, context.engine_failure()
    try:
        where = str(context.url.database)
        revision = log.check(context.url)
        with context.snapshot() as conn:
            newest = newest_seq(conn)
            live = len(live_engines(conn, context.now_ns(), context.settings))
    except LogError as e:
        detail = detail or str(e)
    except SQLAlchemyError as e:
        detail = detail or f"the log cannot be read now: {getattr(e, 'orig', None) or e}"
    return Health(
        status="degraded" if detail else "ok",
        detail=detail,
        log=where,
        schema_revision=revision,
        num_live_engines=live,
        last_seq=newest,
    )
