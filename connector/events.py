"""What the engine says it did: one immutable dataclass a kind of event, in the past tense.

Pure: standard library only. An event carries no clock and no step; the recorder stamps them. Its fields are columns of
the log's `events` table, by name. Content is named by block hashes only: no token and no text ever enters an event.

A *run* is a stretch of one chain of block hashes: `num_blocks` blocks of group `kv_group`, the first at block index
`first_index` of its chain with the hash `head_hash`, the last with `tail_hash`; what lies between is found by walking
parents from the tail. A run touches a chain only if its head lies on that chain. Block indices count blocks of that
group's block size.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar, dataclass_transform

E = TypeVar("E")


@dataclass_transform(frozen_default=True)
def event(cls: type[E]) -> type[E]:
    """A dataclass that nobody changes. The type checker sees to that: a frozen one is made three times slower, and some
    are made for each block that is copied."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@event
class Event:
    """Base of every event. `kind` is the value of the `kind` column and the name of the kind's view."""

    kind: ClassVar[str]


@event
class RequestStarted(Event):
    """A request arrived at the scheduler. `num_blocks` counts its hashed blocks; `tail_hash` is the deepest of them."""

    kind: ClassVar[str] = "request_started"
    request_id: str
    num_tokens: int
    num_blocks: int
    tail_hash: bytes | None
    session_id: str | None


@event
class Lookup(Event):
    """A request was admitted with what both tiers had of its prefix. Retries before admission count in `num_attempts`.

    `cut_index` is the first block index that neither tier gave (in blocks of the hash block size) and `missing_hash`
    what would have been needed there; both are None where the whole prompt was found, up to the last token, which is
    always computed, and where the cache was not asked. `is_skipped`: the request asked not to read the prefix cache.
    `is_resumed`: after a preemption. `restored_hit_tokens`: of the CPU hits, tokens in blocks that are there thanks to
    a re-store.

    `cause` says why the lookup ended where it did (one of `causes.CAUSES`), `cause_detail` the sub-case; both are None
    where nothing was left to find. `lost_tokens`: what is computed now although it was computed before, so that a chain
    kept whole would have given it; `behind_tokens`: what of that the tiers had, of no use behind the cut.
    `sibling_hash` (`never_seen`): what followed the same prefix the last time, in `by_request_id`. Of an eviction:
    `evicted_step`, `since_ns` ago, by the store of `by_request_id`, `age_ns` after it had been stored; `was_owned`: a
    running request had it on the GPU then, so that a re-store could have kept it.
    """

    kind: ClassVar[str] = "lookup"
    request_id: str
    num_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    restored_hit_tokens: int
    num_blocks: int
    tail_hash: bytes | None
    cut_index: int | None
    missing_hash: bytes | None
    num_attempts: int
    is_resumed: bool
    is_skipped: bool
    cause: str | None = None
    cause_detail: str | None = None
    lost_tokens: int = 0
    behind_tokens: int = 0
    sibling_hash: bytes | None = None
    by_request_id: str | None = None
    evicted_step: int | None = None
    since_ns: int | None = None
    age_ns: int | None = None
    was_owned: bool | None = None


@event
class LookupWaits(Event):
    """A request was looked up and could not be admitted; what was found of it in the CPU tier stays pinned until it is
    asked for again. Told in the step of the first try, and whenever a later one finds something else."""

    kind: ClassVar[str] = "lookup_waits"
    request_id: str
    num_tokens: int
    gpu_hit_tokens: int
    cpu_hit_tokens: int
    num_blocks: int
    tail_hash: bytes | None
    num_attempts: int


@event
class BlocksMissed(Event):
    """A lookup wanted blocks that the CPU tier had held and evicted: its cut, or behind it. They were evicted together.

    `evicted_step` and `since_ns` (the time since) are the eviction's, `by_request_id` is whose store took their place;
    `is_by_restore`: that store was a re-store; `num_owned`: how many a running request owned then.
    """

    kind: ClassVar[str] = "blocks_missed"
    request_id: str
    by_request_id: str | None
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    evicted_step: int
    since_ns: int
    num_owned: int
    is_by_restore: bool


@event
class BlocksStored(Event):
    """A copy GPU to CPU was completed and its hashes can be found from now on. `scheduled_step`: when it was ordered;
    `copy_ns`: what the worker took for it, its share of the copy that it was part of; None where it is not measured."""

    kind: ClassVar[str] = "blocks_stored"
    request_id: str | None
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    cpu_block_ids: tuple[int, ...]
    num_bytes: int
    scheduled_step: int
    copy_ns: int | None = None


@event
class BlocksRestored(Event):
    """As `BlocksStored`, for blocks that the CPU tier had lost while their request was still running."""

    kind: ClassVar[str] = "blocks_restored"
    request_id: str | None
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    cpu_block_ids: tuple[int, ...]
    num_bytes: int
    scheduled_step: int
    copy_ns: int | None = None


@event
class BlocksEvicted(Event):
    """Hashes can no longer be found in the CPU tier. `request_id` is a running request that owns them, if any;
    `by_request_id` the one whose store took their place; `num_owned` how many of them a running request still owns;
    `age_ns` the time since the oldest of them was stored; `num_loaded` how many were hit since; `num_restored` how many
    were there thanks to a re-store; `is_by_restore`: it was a re-store that took their place. Where `adaptive` chose
    them by worth, `victim_worth` is what keeping them was worth, `incoming_worth` what keeping the chain that came in
    is, both from 0 to 1; else both are None: by last use nothing has a score."""

    kind: ClassVar[str] = "blocks_evicted"
    request_id: str | None
    by_request_id: str | None
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    cpu_block_ids: tuple[int, ...]
    num_owned: int
    age_ns: int | None
    num_loaded: int = 0
    num_restored: int = 0
    is_by_restore: bool = False
    victim_worth: float | None = None
    incoming_worth: float | None = None


@event
class BlocksLoaded(Event):
    """A copy CPU to GPU was completed for a request's lookup hit. `num_restored`: blocks of it that were there thanks
    to a re-store; `copy_ns` as of `BlocksStored`."""

    kind: ClassVar[str] = "blocks_loaded"
    request_id: str
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    cpu_block_ids: tuple[int, ...]
    num_bytes: int
    scheduled_step: int
    copy_ns: int | None = None
    num_restored: int = 0


@event
class BlocksDropped(Event):
    """Blocks that were ready on the GPU were not copied at a request's finish. `reason`: `cpu_full`, `budget`,
    `no_gain` (it would cost a running request a block nearer its head), `not_tried` (the step's looks for a victim were
    taken), `copy_failed` or `rehashed`."""

    kind: ClassVar[str] = "blocks_dropped"
    request_id: str | None
    kv_group: int
    first_index: int | None
    num_blocks: int
    reason: str
    tail_hash: bytes | None = None
    head_hash: bytes | None = None


@event
class StoresRefused(Event):
    """`adaptive` began to refuse a request's blocks, from `first_index` on: told once, and again only after one of them
    came in or one nearer the head was refused. `num_blocks` were ready then; more may wait behind them.

    `reason`: `worth` (no chain is worth less by the margin), `order` (a re-store, by last use: no chain stands before
    it), `no_victim` (nothing in the tier can leave) or `hole` (what lies before them is not in the tier).
    `incoming_worth` is what keeping their chain is worth, `victim_worth` the least that any chain which could give a
    block is worth, both from 0 to 1; both None by last use, the latter also where there was none or none was sought.
    """

    kind: ClassVar[str] = "stores_refused"
    request_id: str
    kv_group: int
    first_index: int
    num_blocks: int
    tail_hash: bytes
    head_hash: bytes
    reason: str
    is_restore: bool
    victim_worth: float | None
    incoming_worth: float | None


@event
class RuleSwitched(Event):
    """`adaptive` goes by another rule from now on: `lru` (by last use) or `worth`. `reason`: `learned` (enough chains
    came back), `guard_on` or `guard_off` (its two shadows), `reset` (the tier was emptied, and its guard begins anew).

    Of `asked_blocks` that requests asked for of late, the shadow by last use found `lru_hit_blocks` and the one by
    worth `worth_hit_blocks`: sums that fade with each request. `num_reuses`: chains that came back, in all.
    """

    kind: ClassVar[str] = "rule_switched"
    from_rule: str
    to_rule: str
    reason: str
    lru_hit_blocks: float
    worth_hit_blocks: float
    asked_blocks: float
    num_reuses: int


@event
class CursorMoved(Event):
    """`num_stored_blocks` of one group of one request moved: all before `to_index` has been stored or skipped."""

    kind: ClassVar[str] = "cursor_moved"
    request_id: str
    kv_group: int
    from_index: int
    to_index: int


@event
class RequestPreempted(Event):
    """The scheduler took a request's GPU blocks back. Its cursors restart at 0."""

    kind: ClassVar[str] = "request_preempted"
    request_id: str
    num_preemptions: int


@event
class RequestFinished(Event):
    """A request ended. `status` is vLLM's (`FINISHED_STOPPED`, `FINISHED_ABORTED`, …); `num_tokens` its prompt;
    `ttft_ns` from arrival to the first output token, None if none came; `duration_ns` from arrival to now."""

    kind: ClassVar[str] = "request_finished"
    request_id: str
    status: str
    num_tokens: int
    num_output_tokens: int
    num_blocks: int
    tail_hash: bytes | None
    ttft_ns: int | None
    duration_ns: int


@event
class PolicyApplied(Event):
    """The engine obeys this policy from the event's step on. `is_idle`: no step was running, the next one will obey.
    `reason`: `start`, `toggle` or `fault` (the connector turned re-store off by itself)."""

    kind: ClassVar[str] = "policy_applied"
    policy_version: int
    enabled: bool
    mode: str
    max_restore_blocks_per_step: int
    is_idle: bool
    reason: str
    retention: str = "lru"


@event
class EventsDropped(Event):
    """The queue was full: this many events are missing from the log just before this one."""

    kind: ClassVar[str] = "events_dropped"
    num_events: int


@event
class Fault(Event):
    """Something of ours failed and vLLM's stock behaviour was used instead. `origin`: the hook; `num_faults`: so
    far."""

    kind: ClassVar[str] = "fault"
    origin: str
    message: str
    num_faults: int


@event
class CacheReset(Event):
    """The CPU tier was emptied. `num_blocks`: how many hashes could be found before."""

    kind: ClassVar[str] = "cache_reset"
    num_blocks: int


@event
class ChainExtended:
    """Block hashes seen for the first time, head first: `hashes[i]` is the parent of `hashes[i + 1]`.

    Not an event of its own: it fills the `block_hashes` table from which every run is spelled out. `first_depth` is the
    number of hash blocks before `hashes[0]`; `parent_hash` is None at the head of a chain.
    """

    parent_hash: bytes | None
    first_depth: int
    hashes: tuple[bytes, ...]


@event
class StepTaken:
    """What one scheduler step did and how full the tiers were after it: one row of the `steps` table.

    Counts are blocks. `num_stored`, `num_restored` and `num_loaded` were ordered in this step; `num_evicted` left the
    CPU tier in it. `num_restorable`: lost blocks of running requests that wait to be copied again. `hook_ns`: time
    spent in the connector's `build_connector_meta`, stock work included. `previous_ns`: time since the step before
    began, in which that one scheduled `previous_tokens` for `previous_running` requests; None where the engine had been
    idle meanwhile. `num_forgotten`: hashes that the directory of seen hashes has had to forget so far.
    """

    num_running: int
    num_scheduled_tokens: int
    num_stored: int
    num_restored: int
    num_loaded: int
    num_evicted: int
    num_restorable: int
    cpu_blocks_free: int
    cpu_blocks_cached: int
    cpu_blocks_in_flight: int
    gpu_blocks_free: int
    hook_ns: int
    previous_ns: int | None = None
    previous_tokens: int | None = None
    previous_running: int | None = None
    num_forgotten: int = 0


@event
class RetentionState:
    """What `adaptive` goes by and has learned: one row of the `retention_states` table.

    `rule`: `lru` or `worth`; hits and asked as of `RuleSwitched`. `num_to_learn`: chains that have to come back before
    the rule can be `worth`. `guard_lead`: by how much more of what was asked the shadow by last use has to lead for the
    guard to be on. `horizon_s`: seconds. `edges_s`: where each bucket of idle time starts, in seconds; the last has no
    end. `worth`: by class of chains and bucket, from 0 to 1; `returns`: chains of the class that came back, fading.
    The classes: left behind by a turn that went on otherwise, asked for once, twice, three times, more often; heads
    that prompts share.
    """

    rule: str
    is_guard_on: bool
    lru_hit_blocks: float
    worth_hit_blocks: float
    asked_blocks: float
    guard_lead: float
    num_reuses: int
    num_to_learn: int
    horizon_s: float
    edges_s: tuple[float, ...]
    worth: tuple[tuple[float, ...], ...]
    returns: tuple[float, ...]


Item = Event | ChainExtended | RetentionState
"""What is recorded at any time of a step; a step's row ends it."""

EVENT_TYPES: tuple[type[Event], ...] = (
    RequestStarted,
    Lookup,
    LookupWaits,
    BlocksStored,
    BlocksRestored,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksDropped,
    StoresRefused,
    RuleSwitched,
    CursorMoved,
    RequestPreempted,
    RequestFinished,
    PolicyApplied,
    EventsDropped,
    Fault,
    CacheReset,
)
