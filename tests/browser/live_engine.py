"""A log that is being written: a real `Recorder` whose steps a thread takes, told by the test what happens in them."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from sqlalchemy import URL

from connector import log
from connector.engine_row import EngineInfo, KVGroup
from connector.events import (
    BlocksEvicted,
    BlocksStored,
    ChainExtended,
    Event,
    Lookup,
    RequestFinished,
    RequestStarted,
    StepTaken,
)
from connector.recorder import Recorder

BLOCK_TOKENS = 32
CPU_BLOCKS = 64
INFO = EngineInfo(
    engine_uid="live",
    dp_index=0,
    model="live-model",
    vllm_version="0.32.0",
    restore_version="0.1.0",
    hash_block_size=BLOCK_TOKENS,
    num_gpu_blocks=32,
    num_cpu_blocks=CPU_BLOCKS,
    block_bytes=1 << 20,
    kv_groups=(KVGroup(BLOCK_TOKENS, "FullAttentionSpec", True),),
    restore_support="yes",
)


class LiveEngine:
    """Takes a step every twentieth of a second, as an engine does that has work, and obeys the policy as one does."""

    def __init__(self, url: URL, dp_index: int = 0) -> None:
        self.url = url
        log.upgrade(url)
        self._recorder = Recorder(url, replace(INFO, engine_uid=f"{INFO.engine_uid} {dp_index}", dp_index=dp_index))
        self._todo: deque[Sequence[Event | ChainExtended]] = deque()
        self._end = threading.Event()
        self._is_paused = threading.Event()
        self._stored: dict[str, tuple[bytes, ...]] = {}
        self._ids: dict[str, list[int]] = {}
        self._free = list(range(CPU_BLOCKS))
        self._thread = threading.Thread(target=self._run, name="live-engine")
        self._thread.start()

    def request(self, name: str, num_blocks: int) -> None:
        """A request with so many blocks that nobody has seen before comes, is computed, is stored and finishes.

        Where the CPU tier is full, what was stored first goes for it.
        """
        hashes = tuple(name.encode().ljust(30, b".") + bytes((i // 256, i % 256)) for i in range(num_blocks))
        num_tokens = num_blocks * BLOCK_TOKENS
        tail = hashes[-1]
        evicted: list[Event] = []
        while self._stored and sum(len(run) for run in self._stored.values()) + num_blocks > CPU_BLOCKS:
            victim = next(iter(self._stored))
            evicted.append(self._evict(victim, self._stored.pop(victim), name))
            self._free += self._ids.pop(victim)
        ids, self._free = self._free[:num_blocks], self._free[num_blocks:]
        self._stored[name], self._ids[name] = hashes, ids
        self._todo.append(
            (
                ChainExtended(None, 0, hashes),
                RequestStarted(name, num_tokens, num_blocks, tail, None),
                Lookup(
                    request_id=name,
                    num_tokens=num_tokens,
                    gpu_hit_tokens=0,
                    cpu_hit_tokens=0,
                    restored_hit_tokens=0,
                    num_blocks=num_blocks,
                    tail_hash=tail,
                    cut_index=0,
                    missing_hash=hashes[0],
                    num_attempts=1,
                    is_resumed=False,
                    is_skipped=False,
                    cause="never_seen",
                    cause_detail="new_head",
                ),
                *evicted,
                BlocksStored(name, 0, 0, num_blocks, tail, hashes[0], tuple(ids), num_blocks << 20, 1),
                RequestFinished(name, "FINISHED_STOPPED", num_tokens, 8, num_blocks, tail, 50_000_000, 400_000_000),
            )
        )

    def _evict(self, victim: str, run: tuple[bytes, ...], by: str) -> BlocksEvicted:
        return BlocksEvicted(
            None, by, 0, 0, len(run), run[-1], run[0], tuple(self._ids[victim]), num_owned=0, age_ns=1_000_000_000
        )

    def tell(self, *events: Event) -> None:
        """Anything else that happens in one step."""
        self._todo.append(events)

    def pause(self) -> None:
        """Take no more steps: an engine that has no work."""
        self._is_paused.set()

    def close(self) -> None:
        if not self._end.is_set():
            self._end.set()
            self._thread.join(20)
            assert self._recorder.close()

    def __enter__(self) -> "LiveEngine":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _run(self) -> None:
        while not self._end.wait(0.05):
            if self._is_paused.is_set() and not self._todo:
                continue
            self._recorder.begin_step()
            for event in self._todo.popleft() if self._todo else ():
                self._recorder.record(event)
            self._recorder.end_step(
                StepTaken(
                    num_running=0,
                    num_scheduled_tokens=0,
                    num_stored=0,
                    num_restored=0,
                    num_loaded=0,
                    num_evicted=0,
                    num_restorable=0,
                    cpu_blocks_free=len(self._free),
                    cpu_blocks_cached=CPU_BLOCKS - len(self._free),
                    cpu_blocks_in_flight=0,
                    gpu_blocks_free=32,
                    hook_ns=100_000,
                )
            )
