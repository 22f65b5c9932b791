"""What the app is started with. Built at start from arguments and the environment, never at import.

Any module of `app` may import it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

STATIC = Path(__file__).resolve().parent / "static"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set about the app.

    Attributes:
        db: the log, as a person names it (SQLite URL or path); None: `RESTORE_DB`, else the default place.
        is_recorded: True over a recorded log with no vLLM around it; False inside vLLM's API server.
        api_keys: any of these opens the API; empty: only this machine may change anything.
        bound_host: what the server listens on, if it was told; a name that clients may use in `Host`.
        allowed_hosts: further names that clients may use in `Host`, where no key is set.
        static_dir: where the built dashboard lies.
        live_after_ns: an engine whose last sign of life is older, or so far in the future, is not live.
        policy_wait_seconds: how long a change of policy waits for the engines' word.
        poll_seconds: between two looks at the log while someone follows it.
        heartbeat_seconds: a stream that has nothing to say says so this often.
        max_client_lag: rows that a follower may be behind before it is told to read them by REST.
    """

    db: str | None = None
    is_recorded: bool = True
    api_keys: tuple[str, ...] = ()
    bound_host: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    static_dir: Path = STATIC
    live_after_ns: int = 5_000_000_000
    policy_wait_seconds: float = 2.0
    poll_seconds: float = 0.1
    heartbeat_seconds: float = 10.0
    max_client_lag: int = 1_000


def allowed_hosts_from_env() -> tuple[str, ...]:
    """The names in `RESTORE_ALLOWED_HOSTS`, separated by commas."""
    names = os.environ.get("RESTORE_ALLOWED_HOSTS", "").split(",")
    return tuple(n.strip().lower() for n in names if n.strip())
