"""Turns what the scheduler half sees into events: blocks to runs, each hash told once, lookups paired with admissions.

Log ring: it knows requests only by the few attributes that it reads, and never decides anything.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from connector.causes import Finding
from connector.directory import Directory
from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    CacheReset,
    ChainExtended,
    CursorMoved,
    Event,
    Fault,
    Item,
    Lookup,
    LookupWaits,
    RequestFinished,
    RequestPreempted,
    RequestStarted,
    StepTaken,
)
from connector.reasons import Exchange
from connector.recorder import Pen

T = TypeVar("T")

STEP_SECONDS = 1.0
GROUP_BYTES = 4


def hash_of(key: bytes) -> bytes:
    """The block hash in a key: vLLM appends the group's number in four bytes."""
    return key[:-GROUP_BYTES]


def group_of(key: bytes) -> int:
    return int.from_bytes(key[-GROUP_BYTES:], "big")


class RequestView(Protocol):
    """What is read of vLLM's `Request`."""

    request_id: str
    arrival_time: float
    num_prompt_tokens: int
    skip_reading_prefix_cache: bool
    session_id: str | None
    num_preemptions: int

    @property
    def num_tokens(self) -> int: ...
    @property
    def num_output_tokens(self) -> int: ...
    @property
    def block_hashes(self) -> Sequence[bytes]: ...


@dataclass(slots=True)
class Copy:
    """One block on its way from the GPU to the CPU tier, and later what lies there. `parent` is the hash one block of
    this group nearer the head; None at the head or where it is not known."""

    request_id: str | None
    key: bytes
    group: int
    index: int
    parent: bytes | None
    is_restore: bool
    scheduled_step: int
    cpu_block_id: int = -1
    stored_ns: int = 0
    copy_ns: int | None = None
    num_loads: int = 0


@dataclass(slots=True)
class _Tried:
    """A lookup that is not admitted yet. `hits`: tokens on the GPU and in the CPU tier at the newest try; `told`: what
    of it the log knows."""

    request: RequestView
    num_attempts: int = 0
    hits: tuple[int, int] = (0, 0)
    told: tuple[int, int] | None = None


@dataclass(slots=True)
class Eviction:
    """One hash that left the CPU tier."""

    copy: Copy
    owner: str | None
    """A running request that owns it."""
    exchange: Exchange | None = None
    """Why it, where it was chosen by worth."""


class Journal:
    """Writes one engine's story to its recorder. `hash_block_size` in tokens, `block_bytes` over all layers."""

    def __init__(
        self, recorder: Pen, directory: Directory, hash_block_size: int, block_bytes: int, memory: int
    ) -> None:
        self._recorder = recorder
        self.clock = recorder.clock
        self._directory = directory
        self._hash_block_size = hash_block_size
        self._block_bytes = block_bytes
        self._memory = memory
        self._told: set[bytes] = set()
        self._told_before: set[bytes] = set()
        self._gaps_seen = 0
        self._unfinished: set[str] = set()
        self._lookups: dict[str, _Tried] = {}
        self._awaiting_first_token: dict[str, RequestView] = {}
        self._ttft_ns: dict[str, int] = {}
        self._last_step_ns = 0
        self.num_faults = 0
        self.was_idle = True
        """Whether the engine had nothing to do at some time since this was set to False."""
        self.on_event: Callable[[Event], None] | None = None
        """Told of every event that is recorded."""

    # --- requests -------------------------------------------------------------------------------------------------

    def request_started(self, request: RequestView) -> None:
        self._unfinished.add(request.request_id)
        self._recorder.num_unfinished = len(self._unfinished)
        self.tell_chain(request)
        hashes = request.block_hashes
        self._record(
            RequestStarted(
                request_id=request.request_id,
                num_tokens=request.num_prompt_tokens,
                num_blocks=len(hashes),
                tail_hash=hashes[-1] if hashes else None,
                session_id=request.session_id,
            )
        )

    def lookup_tried(self, request: RequestView, gpu_hit_tokens: int, cpu_hit_tokens: int) -> None:
        """Both tiers were asked. It counts once the request is admitted: until then the scheduler may ask again."""
        tried = self._lookups.get(request.request_id)
        if tried is None:
            tried = self._lookups[request.request_id] = _Tried(request)
        tried.num_attempts += 1
        tried.hits = (gpu_hit_tokens, cpu_hit_tokens)

    def note_waiting(self) -> None:
        """The step is scheduled: who was looked up and not admitted waits."""
        for request_id, tried in self._lookups.items():
            if tried.hits == tried.told:
                continue
            tried.told = tried.hits
            hashes = tried.request.block_hashes
            self._record(
                LookupWaits(
                    request_id=request_id,
                    num_tokens=tried.request.num_tokens,
                    gpu_hit_tokens=tried.hits[0],
                    cpu_hit_tokens=tried.hits[1],
                    num_blocks=len(hashes),
                    tail_hash=hashes[-1] if hashes else None,
                    num_attempts=tried.num_attempts,
                )
            )

    def take_lookup(self, request_id: str) -> tuple[int, int] | None:
        """(tokens found on the GPU, attempts) of the lookup that a request is admitted with. None where it has none: a
        load has arrived, and the request is scheduled on."""
        tried = self._lookups.pop(request_id, None)
        return None if tried is None else (tried.hits[0], tried.num_attempts)

    def request_admitted(
        self,
        request: RequestView,
        lookup: tuple[int, int],
        cpu_hit_tokens: int,
        restored_hit_tokens: int,
        finding: Finding,
    ) -> None:
        """The lookup counts now. `finding` says why it ended where it did."""
        gpu_hit_tokens, attempts = lookup
        self.tell_chain(request)
        hashes = request.block_hashes
        cut = (gpu_hit_tokens + cpu_hit_tokens) // self._hash_block_size
        # The last token is always computed, so a last block that it completes could not have been used.
        usable = min((request.num_tokens - 1) // self._hash_block_size, len(hashes))
        gone, now = finding.eviction, self.clock.monotonic_ns()
        is_cut = cut < usable and not request.skip_reading_prefix_cache
        self._record(
            Lookup(
                request_id=request.request_id,
                num_tokens=request.num_tokens,
                gpu_hit_tokens=gpu_hit_tokens,
                cpu_hit_tokens=cpu_hit_tokens,
                restored_hit_tokens=restored_hit_tokens,
                num_blocks=len(hashes),
                tail_hash=hashes[-1] if hashes else None,
                cut_index=cut if is_cut else None,
                missing_hash=hashes[cut] if is_cut else None,
                num_attempts=attempts,
                is_resumed=request.num_preemptions > 0,
                is_skipped=request.skip_reading_prefix_cache,
                cause=finding.cause,
                cause_detail=finding.detail,
                lost_tokens=finding.lost_blocks * self._hash_block_size,
                behind_tokens=finding.behind_blocks * self._hash_block_size,
                sibling_hash=finding.sibling,
                by_request_id=finding.by_request_id,
                evicted_step=gone.step if gone else None,
                since_ns=now - gone.at_ns if gone else None,
                age_ns=gone.age_ns if gone else None,
                was_owned=gone.owner is not None if gone else None,
            )
        )
        for run in finding.missed:
            self._record(
                BlocksMissed(
                    request_id=request.request_id,
                    by_request_id=run.eviction.by_request_id,
                    kv_group=run.group,
                    first_index=run.first_index,
                    num_blocks=len(run.keys),
                    tail_hash=hash_of(run.keys[-1]),
                    head_hash=hash_of(run.keys[0]),
                    evicted_step=run.eviction.step,
                    since_ns=now - run.eviction.at_ns,
                    num_owned=run.num_owned,
                    is_by_restore=run.eviction.is_by_restore,
                )
            )
        if request.num_output_tokens == 0:
            self._awaiting_first_token[request.request_id] = request

    def note_first_tokens(self) -> None:
        """Look which admitted requests have produced their first token since the last call."""
        if not self._awaiting_first_token:
            return
        now = self.clock.wall_ns() / 1e9
        for request_id, request in list(self._awaiting_first_token.items()):
            if request.num_output_tokens:
                del self._awaiting_first_token[request_id]
                self._ttft_ns[request_id] = _since(request.arrival_time, now)

    def request_preempted(self, request: RequestView) -> None:
        self._record(RequestPreempted(request.request_id, request.num_preemptions))

    def request_finished(self, request: RequestView, status: str) -> None:
        request_id = request.request_id
        now = self.clock.wall_ns() / 1e9
        self._unfinished.discard(request_id)
        self._recorder.num_unfinished = len(self._unfinished)
        self.was_idle |= not self._unfinished
        self._lookups.pop(request_id, None)
        if self._awaiting_first_token.pop(request_id, None) is not None and request.num_output_tokens:
            self._ttft_ns[request_id] = _since(request.arrival_time, now)
        self.tell_chain(request)
        hashes = request.block_hashes
        self._record(
            RequestFinished(
                request_id=request_id,
                status=status,
                num_tokens=request.num_prompt_tokens,
                num_output_tokens=request.num_output_tokens,
                num_blocks=len(hashes),
                tail_hash=hashes[-1] if hashes else None,
                ttft_ns=self._ttft_ns.pop(request_id, None),
                duration_ns=_since(request.arrival_time, now),
            )
        )

    def cursor_moved(self, request_id: str, group: int, from_index: int, to_index: int) -> None:
        self._record(CursorMoved(request_id, group, from_index, to_index))

    def tell_chain(self, request: RequestView) -> None:
        """Tell the log the hashes of the request's chain that it was not told before, each with its parent."""
        hashes = request.block_hashes
        if self._recorder.num_gaps != self._gaps_seen:
            self._gaps_seen = self._recorder.num_gaps
            self._told, self._told_before = set(), set()
        new = len(hashes)
        # A hash that was told had its ancestors told with it.
        while new and hashes[new - 1] not in self._told and hashes[new - 1] not in self._told_before:
            new -= 1
        if new == len(hashes):
            return
        self._directory.tell(request.request_id, hashes)
        fresh = tuple(hashes[new:])
        if self._recorder.record(ChainExtended(hashes[new - 1] if new else None, new, fresh)):
            self._told.update(fresh)
            if len(self._told) > self._memory // 2:
                # The older half goes at once. A hash that comes again is told again, and the log ignores it.
                self._told, self._told_before = set(), self._told

    # --- blocks ---------------------------------------------------------------------------------------------------

    def copies_done(self, copies: Iterable[Copy]) -> None:
        """Copies to the CPU tier were completed; what they hold can be found from now on."""
        for run in _runs(copies, _same_copy_run):
            event_type = BlocksRestored if run[0].is_restore else BlocksStored
            self._record(
                event_type(
                    request_id=run[0].request_id,
                    kv_group=run[0].group,
                    first_index=run[0].index,
                    num_blocks=len(run),
                    tail_hash=hash_of(run[-1].key),
                    head_hash=hash_of(run[0].key),
                    cpu_block_ids=tuple(c.cpu_block_id for c in run),
                    num_bytes=len(run) * self._block_bytes,
                    scheduled_step=run[0].scheduled_step,
                    copy_ns=_sum_ns(c.copy_ns for c in run),
                )
            )

    def load_done(
        self, request_id: str, copies: Iterable[Copy], scheduled_step: int, copy_ns_per_block: float | None
    ) -> None:
        """A request's CPU hits were copied back to the GPU."""
        for run in _runs(copies, _same_chain):
            self._record(
                BlocksLoaded(
                    request_id=request_id,
                    kv_group=run[0].group,
                    first_index=run[0].index,
                    num_blocks=len(run),
                    tail_hash=hash_of(run[-1].key),
                    head_hash=hash_of(run[0].key),
                    cpu_block_ids=tuple(c.cpu_block_id for c in run),
                    num_bytes=len(run) * self._block_bytes,
                    scheduled_step=scheduled_step,
                    copy_ns=None if copy_ns_per_block is None else round(copy_ns_per_block * len(run)),
                    num_restored=sum(c.is_restore for c in run),
                )
            )

    def evicted(self, evictions: Iterable[Eviction], by_request_id: str | None, *, is_by_restore: bool) -> None:
        now = self.clock.monotonic_ns()
        for run in _runs(evictions, _same_eviction):
            exchange = run[0].exchange
            copies = [e.copy for e in run]
            oldest = min(c.stored_ns for c in copies)
            self._record(
                BlocksEvicted(
                    request_id=run[0].owner,
                    by_request_id=by_request_id,
                    kv_group=copies[0].group,
                    first_index=copies[0].index,
                    num_blocks=len(run),
                    tail_hash=hash_of(copies[-1].key),
                    head_hash=hash_of(copies[0].key),
                    cpu_block_ids=tuple(c.cpu_block_id for c in copies),
                    num_owned=sum(e.owner is not None for e in run),
                    age_ns=now - oldest if oldest else None,
                    num_loaded=sum(c.num_loads > 0 for c in copies),
                    num_restored=sum(c.is_restore for c in copies),
                    is_by_restore=is_by_restore,
                    victim_worth=None if exchange is None else exchange.victim_worth,
                    incoming_worth=None if exchange is None else exchange.incoming_worth,
                )
            )

    def reason(self, item: Item) -> None:
        """Why the retention did what it did, or what it has learned."""
        if isinstance(item, Event):
            self._record(item)
        else:
            self._recorder.record(item)

    def dropped(self, request_id: str | None, group: int, first_index: int, keys: Sequence[bytes], reason: str) -> None:
        """Neighbouring blocks of a chain have no copy."""
        head, tail = hash_of(keys[0]), hash_of(keys[-1])
        self._record(BlocksDropped(request_id, group, first_index, len(keys), reason, tail_hash=tail, head_hash=head))
        for key in keys:
            self._directory.dropped(key, reason)

    def cache_reset(self, num_blocks: int) -> None:
        self._record(CacheReset(num_blocks))

    # --- the rest -------------------------------------------------------------------------------------------------

    def fault(self, origin: str, message: str) -> None:
        self.num_faults += 1
        self._record(Fault(origin, message, self.num_faults))

    def wants_step(self, *, is_quiet: bool) -> bool:
        """Whether the current step gets a row: it moved a block, or no row was written for a second."""
        return not is_quiet or self.clock.monotonic_ns() - self._last_step_ns >= STEP_SECONDS * 1e9

    def step_taken(self, taken: StepTaken) -> None:
        self._last_step_ns = self.clock.monotonic_ns()
        self._recorder.end_step(taken)

    def _record(self, event: Event) -> None:
        self._recorder.record(event)
        if self.on_event is not None:
            self.on_event(event)


def _since(start: float, now: float) -> int:
    return max(0, int((now - start) * 1e9))


def _sum_ns(times: Iterable[int | None]) -> int | None:
    known = [t for t in times if t is not None]
    return sum(known) if known else None


def _same_chain(a: Copy, b: Copy) -> bool:
    return a.group == b.group and b.index == a.index + 1 and b.parent is not None and b.parent == hash_of(a.key)


def _same_eviction(a: Eviction, b: Eviction) -> bool:
    return a.owner == b.owner and a.exchange == b.exchange and _same_chain(a.copy, b.copy)


def _same_copy_run(a: Copy, b: Copy) -> bool:
    return (
        a.request_id == b.request_id
        and a.is_restore == b.is_restore
        and a.scheduled_step == b.scheduled_step
        and _same_chain(a, b)
    )


def _runs(items: Iterable[T], joins: Callable[[T, T], bool]) -> Iterator[list[T]]:
    run: list[T] = []
    for item in items:
        if run and not joins(run[-1], item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run
