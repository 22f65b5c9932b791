"""An engine in the log: what it says of itself when it signs in, that it lives or ends, and which policy it obeys.

Log ring. The recorder calls this on its own connection.
"""

import json
import os
import socket
import sqlite3
from dataclasses import asdict, dataclass

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from connector import log, tables
from connector.clock import MACHINE_CLOCK, Clock
from connector.events import PolicyApplied
from connector.policy import PolicyError, VersionedPolicy


@dataclass(frozen=True, slots=True)
class KVGroup:
    """One KV-cache group, as the `kv_groups` column says it. `block_size` in tokens."""

    block_size: int
    kind: str
    is_prefix_cacheable: bool
    window: int | None = None
    """Tokens that it looks back; None: all."""
    drops_last_block: bool = False
    """A draft head (EAGLE, MTP) has the last block of a hit computed again."""
    num_draft_tokens: int = 0
    """Tokens that may be proposed a step, by whatever means: what they fill when a request ends is never cached."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Who writes: the columns of the `engines` table that the engine knows at its start."""

    engine_uid: str
    dp_index: int
    model: str
    vllm_version: str
    restore_version: str
    hash_block_size: int
    num_gpu_blocks: int
    num_cpu_blocks: int
    block_bytes: int
    kv_groups: tuple[KVGroup, ...]
    restore_support: str
    directory_capacity: int | None = None


def sign_in(writer: Engine, info: EngineInfo, clock: Clock = MACHINE_CLOCK) -> tuple[int, VersionedPolicy]:
    """Write the engine's row and say which policy it starts with. Returns the row's id and that policy.

    Raises:
        log.LogError: the log cannot be written, or its newest policy cannot be obeyed.
    """
    now = clock.wall_ns()
    row = {k: v for k, v in asdict(info).items() if k != "kv_groups"}
    row |= {
        "kv_groups": json.dumps([asdict(g) for g in info.kv_groups]),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "sqlite_version": sqlite3.sqlite_version,
        "started_wall_ns": now,
        "started_monotonic_ns": clock.monotonic_ns(),
        "heartbeat_wall_ns": now,
    }
    path = writer.url.database
    try:
        with writer.begin() as conn:
            key = conn.execute(tables.engines.insert().values(row)).inserted_primary_key
            assert key is not None
            policy = log.read_policy(conn)
            start = policy_applied(policy, is_idle=True, reason="start")
            log.append(conn, key[0], [(0, clock.monotonic_ns(), now, start)])
    except SQLAlchemyError as e:
        raise log.LogError(f"cannot write the log {path}: {getattr(e, 'orig', None) or e}") from e
    except PolicyError as e:
        raise log.LogError(f"the newest row of policies in {path} cannot be obeyed: {e}; delete that row") from e
    return key[0], policy


def beat(conn: Connection, engine_id: int, clock: Clock, *, is_final: bool) -> None:
    """Say that the engine lives, or that it ends."""
    now = clock.wall_ns()
    values: dict[str, int] = {"heartbeat_wall_ns": now}
    if is_final:
        values["stopped_wall_ns"] = now
    conn.execute(tables.engines.update().where(tables.engines.c.id == engine_id).values(values))


def policy_applied(versioned: VersionedPolicy, *, is_idle: bool, reason: str) -> PolicyApplied:
    """The event that says that a policy holds."""
    p = versioned.policy
    return PolicyApplied(
        policy_version=versioned.version,
        enabled=p.enabled,
        mode=p.mode,
        max_restore_blocks_per_step=p.max_restore_blocks_per_step,
        is_idle=is_idle,
        reason=reason,
        retention=p.retention,
    )
