"""What another policy, or another size of the CPU tier, would have given: a recorded log, played once more.

The command plays it where it runs; the server has it played in a process of its own.
"""

import math
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import cast

from sqlalchemy import Connection, text

from app.aside import start_aside
from app.errors import BadQueryError, ConflictError
from app.models import MAX_INTEGER, WhatIf
from app.queries.traffic import TierShape, read_shape
from app.shadow_feed import ShadowFeed
from app.shadow_told import state_of
from app.shadows import notes_of, row_of
from connector.log import LogError
from connector.shadow import POLICIES, ShadowPolicy, ShadowTier

GIB = 2**30
MAX_GIB = 2**20
CHUNK = 2_000
LOOK_SECONDS = 0.5
IS_QUERY, IS_LOG = 2, 3
"""Exit status of the process of `play_aside`: the question is wrong, or the log cannot be read."""
MAX_ROWS = 40
# The newest engine that has looked anything up: one that was only started answers nothing.
_NUM_HASHES = "SELECT count(*) FROM block_hashes WHERE engine_id = :engine_id"
_NEWEST = "SELECT max(engine_id) FROM rollups WHERE num_lookups > 0"

_playing = threading.Lock()


def parse_policies(given: str) -> list[ShadowPolicy]:
    """Policies from a list with commas.

    Raises:
        BadQueryError: none, or one that is not known.
    """
    names = [name.strip() for name in given.split(",") if name.strip()]
    if not names:
        raise BadQueryError(f"name at least one policy of {', '.join(POLICIES)}")
    for name in names:
        if name not in POLICIES:
            raise BadQueryError(f"there is no policy {name!r} to play; there are {', '.join(POLICIES)}")
    return [cast(ShadowPolicy, name) for name in dict.fromkeys(names)]


def parse_sizes(given: str) -> list[float]:
    """Sizes of the tier in GiB from a list with commas.

    Raises:
        BadQueryError: none, or one that is no size.
    """
    sizes: list[float] = []
    for part in (p.strip() for p in given.split(",") if p.strip()):
        try:
            size = float(part)
        except ValueError:
            size = math.nan
        if not math.isfinite(size) or size <= 0:
            raise BadQueryError(f"{part!r} is no size: give numbers of GiB greater than 0, with commas between")
        if size > MAX_GIB:
            raise BadQueryError(f"{part} GiB is more than can be played; {MAX_GIB:,} is the most")
        sizes.append(size)
    if not sizes:
        raise BadQueryError("name at least one size in GiB")
    return sizes


def play(
    snapshot: Callable[[], AbstractContextManager[Connection]],
    policies: Sequence[ShadowPolicy],
    sizes_gib: Sequence[float] | None,
    engine_id: int | None,
    on_progress: Callable[[int, int], None] = lambda seq, last: None,
) -> WhatIf:
    """Play one engine's log under each policy and size.

    Args:
        snapshot: gives a read transaction; each piece of the log is read in one of its own.
        sizes_gib: None for the engine's own.
        engine_id: None for the newest that has looked anything up.
        on_progress: told the row that was reached and the log's last.

    Raises:
        BadQueryError: no such engine, none that was asked anything, a tier that a shadow cannot follow, a size without
            a block, too many rows.
        LogError: the log cannot be read.
    """
    if engine_id is not None and engine_id > MAX_INTEGER:
        raise BadQueryError(f"there is no engine {engine_id} in this log; vllm-restore db stats names them")
    with snapshot() as conn:
        engine_id = conn.execute(text(_NEWEST)).scalar_one() if engine_id is None else engine_id
        last: int = conn.execute(text("SELECT coalesce(max(seq), 0) FROM events")).scalar_one()
        shape = read_shape(conn, engine_id) if engine_id is not None else None
        num_hashes: int = conn.execute(text(_NUM_HASHES), {"engine_id": engine_id}).scalar_one()
    if engine_id is None:
        raise BadQueryError("no engine in this log has looked anything up: there is nothing to play")
    if shape is None:
        raise BadQueryError(f"there is no engine {engine_id} in this log; vllm-restore db stats names them")
    if shape.unsupported is not None:
        raise BadQueryError(f"engine {engine_id} cannot be played: {shape.unsupported}")
    wanted = _tiers(shape, policies, sizes_gib)
    # A tier with room for all that was ever seen, twice (two requests may bring the same at once), never evicts: blocks
    # beyond that would only take memory.
    enough = 2 * num_hashes * len(shape.groups) + 1
    tiers = [ShadowTier(policy, min(count, enough), shape.groups) for policy, count in wanted]
    feed = ShadowFeed(shape, {str(n): tier for n, tier in enumerate(tiers)})
    while True:
        with snapshot() as conn:
            num_rows = feed.take(conn, CHUNK)
        on_progress(feed.last_seq, last)
        if num_rows < CHUNK:
            break
    if not feed.num_lookups:
        raise BadQueryError(f"engine {engine_id} has looked nothing up: there is nothing to play")
    everything = (0, 2**63)
    truth = feed.truth.total(*everything)
    return WhatIf(
        engine_id=engine_id,
        num_lookups=feed.num_lookups,
        prompt_tokens=truth.prompt_tokens,
        hit_rate=truth.hit_rate,
        rows=[
            row_of(state_of(tier, count), shape.block_bytes, feed.series[str(n)].total(*everything))
            for n, (tier, (_, count)) in enumerate(zip(tiers, wanted, strict=True))
        ],
        notes=notes_of(shape),
    )


def play_aside(
    named_log: str,
    policies: str,
    sizes_gib: str | None,
    engine_id: int | None,
    is_over: Callable[[], bool] = lambda: False,
) -> WhatIf:
    """`play`, in a process of its own that takes nothing from the engine or from this server. All as a person names it.

    Args:
        is_over: nobody waits any more, since the server wants to exit; asked while it is played.

    Raises:
        BadQueryError, LogError: as `play`; also where there is no memory or no process for it.
        ConflictError: another is being played, or it is over.
    """
    # What is wrong at first sight needs no process.
    parse_policies(policies)
    if sizes_gib is not None:
        parse_sizes(sizes_gib)
    if not _playing.acquire(blocking=False):
        raise ConflictError("another what-if is being computed; ask again when it is done")
    try:
        engine = "" if engine_id is None else str(engine_id)
        with start_aside("app.whatif_process", named_log, policies, sizes_gib or "", engine) as process:
            # What it says is less than a pipe holds, so it can be read when it is over.
            while not _has_ended(process):
                if is_over():
                    process.kill()
                    raise ConflictError("the server ends")
            assert process.stdout is not None
            said = process.stdout.read()
    except OSError as e:
        raise LogError(f"the what-if's process cannot be started: {e}") from e
    finally:
        _playing.release()
    if process.returncode == IS_QUERY:
        raise BadQueryError(said)
    if process.returncode == IS_LOG:
        raise LogError(said)
    if process.returncode:
        reason = f"the what-if's process ended with status {process.returncode}"
        raise LogError(f"{reason}; the server's own log may say why, and no memory left is one cause")
    return WhatIf.model_validate_json(said)


def _has_ended(process: subprocess.Popen[str]) -> bool:
    try:
        process.wait(LOOK_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return True


def _tiers(
    shape: TierShape, policies: Sequence[ShadowPolicy], sizes_gib: Sequence[float] | None
) -> list[tuple[ShadowPolicy, int]]:
    """What is to be played: a policy and a number of blocks each."""
    blocks = [shape.num_blocks]
    if sizes_gib is not None:
        blocks = [int(size * GIB // shape.block_bytes) for size in sizes_gib]
        for size, count in zip(sizes_gib, blocks, strict=True):
            if count < 1:
                raise BadQueryError(f"{size:g} GiB hold no block: one takes {shape.block_bytes:,} bytes")
    tiers: list[tuple[ShadowPolicy, int]] = []
    for policy in policies:
        # An endless tier has no size.
        tiers.extend((policy, count) for count in dict.fromkeys(blocks[:1] if policy == "unlimited" else blocks))
    if len(tiers) > MAX_ROWS:
        raise BadQueryError(f"that would be {len(tiers)} tiers, and {MAX_ROWS} is the most: name fewer sizes")
    return tiers
