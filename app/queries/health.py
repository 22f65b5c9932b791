"""Whether the app is well."""

from sqlalchemy.exc import SQLAlchemyError

from app.context import AppContext
from app.models import Health
from app.queries.engines import live_engines
from app.queries.events import newest_seq
from connector import log
from connector.log import LogError

HIDDEN = "the log cannot be read now; ask with the API key for the reason"


def read_health(context: AppContext, *, is_private: bool) -> Health:
    """`degraded` where the log cannot be read or vLLM's engine has died. Never raises for these.

    Args:
        is_private: say nothing of where the log lies, nor why it cannot be read, which would.
    """
    where = context.settings.db or ""
    revision, live, newest, detail = "", 0, 0, context.engine_failure()
    try:
        where = str(context.url.database)
        # First what tells a log that was deleted from one that never was.
        with context.snapshot() as conn:
            newest = newest_seq(conn)
            live = len(live_engines(conn, context.now_ns(), context.settings))
        revision = log.check(context.url)
    except LogError as e:
        detail = detail or (HIDDEN if is_private else str(e))
    except SQLAlchemyError as e:
        detail = detail or (HIDDEN if is_private else f"the log cannot be read now: {getattr(e, 'orig', None) or e}")
    return Health(
        status="degraded" if detail else "ok",
        detail=detail,
        log="" if is_private else where,
        schema_revision=revision,
        num_live_engines=live,
        last_seq=newest,
        is_recorded=context.settings.is_recorded,
    )
