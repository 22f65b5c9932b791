"""The simulated machine: memories whose rows are blocks, and copies between them that take as long as a test says.

Test support: it knows nothing of scheduling. A row of memory holds the bytes of a key (block hash and group), or bytes
that say what half-done thing lies there, so that wrong bytes can be told from right ones.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata

WIDTH = 36
"""Bytes a row: a SHA-256 and the group's number in four."""


class Memory:
    """`num_blocks` rows of `WIDTH` bytes in one small tensor."""

    def __init__(self, num_blocks: int) -> None:
        self.rows = torch.zeros((num_blocks, WIDTH), dtype=torch.uint8)
        self._bytes = self.rows.numpy()

    def read(self, block: int) -> bytes:
        return self._bytes[block].tobytes()

    def write(self, block: int, content: bytes) -> None:
        self._bytes[block] = memoryview(content)


def unfinished(*what: object) -> bytes:
    """The bytes of a block that is being written: never those of a key."""
    return hashlib.sha256(repr(what).encode()).digest() + b"half"


@dataclass
class CopyTask:
    """One event's copies on one rank. They are over `due` steps from now; `error` makes them fail."""

    event: int
    rank: int
    is_store: bool
    sources: list[int]
    targets: list[int]
    requests: list[str]
    due: int
    error: str | None = None
    seen: list[bytes] = field(default_factory=list)
    """A store: its source rows when it was ordered. Nobody may write to them until it is over."""


@dataclass
class Over:
    """What the copies that have ended on one rank amount to."""

    stored: dict[int, int] = field(default_factory=dict)
    failed_stores: dict[int, str] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    failed_loads: set[str] = field(default_factory=set)
    failed_load_blocks: set[int] = field(default_factory=set)


@dataclass
class Conditions:
    """What a test chooses about the machine. It may be changed between any two steps.

    Attributes:
        copy_steps: after how many further steps a copy is over (0: within its own step), by (rank, is_store).
        fails: the error of a copy that is to fail, or None, by (rank, is_store); asked when the copy is ordered.
        order: the order in which copies that are due end.
        is_excused: whether a copy to this CPU block may read what is still being computed, as vLLM's own choice.
    """

    copy_steps: Callable[[int, bool], int] = lambda rank, is_store: 0
    fails: Callable[[int, bool], str | None] = lambda rank, is_store: None
    order: Callable[[list[CopyTask]], list[CopyTask]] = lambda tasks: tasks
    is_excused: Callable[[int], bool] = lambda cpu_block_id: False


class Worker:
    """One rank of one connector: its GPU memory, shared by the connectors of the rank, and its own CPU tier."""

    def __init__(
        self, rank: int, gpu: Memory, cpu: Memory, conditions: Conditions, *, is_ours: bool, can_fail: tuple[bool, bool]
    ) -> None:
        """`is_ours`: not vLLM's own, which may copy a block before it is computed. `can_fail`: whether its loads, and
        its stores, may fail."""
        self.rank = rank
        self.gpu = gpu
        self.cpu = cpu
        self.conditions = conditions
        self.is_ours = is_ours
        self.can_fail = can_fail
        self.tasks: list[CopyTask] = []

    def flush(self) -> None:
        """A preemption: every copy ends before anything is computed."""
        for task in self.tasks:
            task.due = 0

    def submit(self, meta: SimpleCPUOffloadMetadata) -> None:
        if meta.load_event >= 0:
            requests = list(meta.load_event_to_reqs[meta.load_event])
            self._take(meta.load_event, False, meta.load_cpu_blocks, meta.load_gpu_blocks, requests)
        if meta.store_event >= 0:
            self._take(meta.store_event, True, meta.store_gpu_blocks, meta.store_cpu_blocks, [])

    def _take(self, event: int, is_store: bool, sources: list[int], targets: list[int], requests: list[str]) -> None:
        c = self.conditions
        task = CopyTask(
            event,
            self.rank,
            is_store,
            list(sources),
            list(targets),
            requests,
            c.copy_steps(self.rank, is_store),
            c.fails(self.rank, is_store) if self.can_fail[is_store] else None,
        )
        source, target = (self.gpu, self.cpu) if is_store else (self.cpu, self.gpu)
        task.seen = [source.read(s) for s in task.sources]
        for t in task.targets:
            # Half a copy is worse than none: whoever reads the target too early is found out.
            target.write(t, unfinished(event, is_store, t))
        self.tasks.append(task)

    def complete(self) -> Over:
        over = Over()
        due = [t for t in self.tasks if t.due <= 0]
        self.tasks = [t for t in self.tasks if t.due > 0]
        for task in self.tasks:
            task.due -= 1
        for task in self.conditions.order(due):
            self._end(task, over)
        return over

    def _end(self, task: CopyTask, over: Over) -> None:
        source, target = (self.gpu, self.cpu) if task.is_store else (self.cpu, self.gpu)
        kind = "store" if task.is_store else "load"
        for s, t, seen in zip(task.sources, task.targets, task.seen, strict=True):
            is_excused = task.is_store and (not self.is_ours or self.conditions.is_excused(t))
            assert is_excused or source.read(s) == seen, (
                f"block {s} was written to while {kind} event {task.event} read it"
            )
            assert target.read(t) == unfinished(task.event, task.is_store, t), (
                f"block {t} was written to while {kind} event {task.event} wrote it"
            )
            if task.error is None:
                target.write(t, seen)
        if task.is_store:
            over.stored[task.event] = 1
            if task.error is not None:
                over.failed_stores[task.event] = task.error
            return
        over.loaded.update(task.requests)
        if task.error is not None:
            over.failed_loads.update(task.requests)
            over.failed_load_blocks.update(task.targets)


def blocks_in(tasks: Iterable[CopyTask], *, is_store: bool) -> int:
    return sum(len(t.sources) for t in tasks if t.is_store is is_store)
