"""A long log as a busy engine would leave it: what the speed of the API and of the dashboard is measured on.

    python tests/bench/big_log.py PATH [--events 1000000] [--per-second 50] [--live]

About twenty conversations at a time share a CPU tier that is too small for them; each has a system prompt of a few,
grows by a few blocks a turn and ends after some twenty turns. A small model of two LRU tiers decides what is found,
stored, evicted, loaded and copied again, so that causes, regret and benefit are all there. Everything is written by
`log.append`, in batches of a second or more, with three changes of the policy.
"""

import argparse
import hashlib
import random
import sys
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import URL

from connector import log, tables
from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    ChainExtended,
    CursorMoved,
    Lookup,
    PolicyApplied,
    RequestFinished,
    RequestStarted,
    StepTaken,
)
from connector.policy import Policy

SECOND_NS = 1_000_000_000
BLOCK = 32
BLOCK_BYTES = 1_474_560
GPU_BLOCKS, CPU_BLOCKS = 600, 1_500
NUM_TALKS = 20
BATCH = 5_000
POLICIES = (Policy(enabled=False), Policy(), Policy(True, "rescan", 8), Policy())


@dataclass
class Talk:
    """One conversation: its chain so far, how many turns it has left."""

    number: int
    chain: list[bytes]
    turns_left: int
    turn: int = 0


@dataclass
class Copy:
    """What lies in a CPU block."""

    block: int
    index: int
    stored_ns: int
    owner: str
    is_restored: bool
    num_loads: int = 0


@dataclass
class Gone:
    """An eviction."""

    at_ns: int
    step: int
    by: str
    age_ns: int
    was_owned: bool
    by_restore: bool


@dataclass
class Machine:
    """Two tiers, and the items that the recorder would have queued."""

    rng: random.Random
    now_ns: int
    begin_ns: int
    step: int = 0
    policy: Policy = field(default_factory=Policy)
    items: list[log.Stamped] = field(default_factory=list[log.Stamped])
    gpu: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict[bytes, None])
    cpu: "OrderedDict[bytes, Copy]" = field(default_factory=OrderedDict[bytes, Copy])
    free: list[int] = field(default_factory=lambda: list(range(CPU_BLOCKS, 0, -1)))
    gone: dict[bytes, Gone] = field(default_factory=dict[bytes, Gone])
    running: dict[str, list[bytes]] = field(default_factory=dict[str, list[bytes]])
    lost: list[tuple[str, int, bytes]] = field(default_factory=list[tuple[str, int, bytes]])
    seen: set[bytes] = field(default_factory=set[bytes])
    moved: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    num_events: int = 0

    def emit(self, item: Any) -> None:
        if not isinstance(item, ChainExtended | StepTaken):
            self.num_events += 1
        self.items.append((self.step, self.now_ns - self.begin_ns, self.now_ns, item))

    def take_step(self, tokens: int, running: int) -> None:
        """End a step of so many tokens."""
        took = 4_000_000 + tokens * 60_000 + self.rng.randrange(2_000_000)
        stored, restored, loaded, evicted = self.moved
        self.emit(
            StepTaken(
                running, tokens, stored, restored, loaded, evicted, len(self.lost), len(self.free), len(self.cpu), 0,
                max(0, GPU_BLOCKS - len(self.gpu)), self.rng.randrange(50_000, 200_000), took, tokens, running, 0,
            )
        )  # fmt: skip
        self.moved = [0, 0, 0, 0]
        self.step += 1
        self.now_ns += took

    def ask(self, request: str, talk: Talk, new: list[bytes]) -> None:
        """A request from its arrival to its last token."""
        chain, rng = talk.chain, self.rng
        self.emit(ChainExtended(chain[-1] if chain else None, len(chain), tuple(new)))
        chain += new
        tokens = len(chain) * BLOCK + rng.randrange(1, BLOCK)
        self.emit(RequestStarted(request, tokens, len(chain), chain[-1], None))
        gpu = self._prefix(chain, 0, self.gpu)
        cut = gpu + self._prefix(chain, gpu, self.cpu)
        self._look_up(request, chain, tokens, gpu, cut)
        for i, run in self._runs([(i, chain[i]) for i in range(gpu, cut)]):
            ids = tuple(self.cpu[h].block for h in run)
            n_restored = sum(self.cpu[h].is_restored for h in run)
            self.emit(
                BlocksLoaded(request, 0, i, len(run), run[-1], run[0], ids, len(run) * BLOCK_BYTES, self.step,
                             len(run) * 60_000, n_restored)
            )  # fmt: skip
            self.moved[2] += len(run)
        for h in chain[:cut]:
            if h in self.cpu:
                self.cpu.move_to_end(h)
                self.cpu[h].num_loads += 1
        self.running[request] = chain
        computed = tokens - cut * BLOCK
        self.take_step(computed, 1)
        for h in chain:
            self.gpu[h] = None
            self.gpu.move_to_end(h)
        while len(self.gpu) > GPU_BLOCKS:
            self.gpu.popitem(last=False)
        missing = [(i, h) for i, h in enumerate(chain) if h not in self.cpu]
        if len(missing) > 3 and rng.random() < 0.1:
            at, h = missing.pop()
            self.emit(BlocksDropped(request, 0, at, 1, "cpu_full", h, h))
        self._store(request, missing, is_restore=False)
        self.emit(CursorMoved(request, 0, cut, len(chain)))
        if self.policy.enabled and self.lost:
            budget = self.policy.max_restore_blocks_per_step or CPU_BLOCKS
            now, self.lost = self.lost[:budget], self.lost[budget:]
            for owner, group in groupby(now, key=lambda lost: lost[0]):
                if owner in self.running:
                    self._store(owner, [(i, h) for _, i, h in group if h not in self.cpu], is_restore=True)
        output = [self.new_hash() for _ in range(rng.randrange(1, 4))]
        self.emit(ChainExtended(chain[-1], len(chain), tuple(output)))
        num_prompt = len(chain)
        chain += output
        self._store(request, list(enumerate(chain))[num_prompt:], is_restore=False)
        self.emit(CursorMoved(request, 0, num_prompt, len(chain)))
        self.take_step(len(self.running), len(self.running))
        if len(self.running) > 6:
            first = next(iter(self.running))
            self._finish(first)
        self.seen.update(chain)

    def _finish(self, request: str) -> None:
        chain = self.running.pop(request)
        ttft = 20_000_000 + len(chain) * 900_000
        self.emit(
            RequestFinished(request, "FINISHED_STOPPED", len(chain) * BLOCK, 60, len(chain), chain[-1], ttft, 3 * ttft)
        )

    def new_hash(self) -> bytes:
        return self.rng.randbytes(32)

    @staticmethod
    def _prefix(chain: list[bytes], start: int, tier: Any) -> int:
        end = start
        while end < len(chain) and chain[end] in tier:
            end += 1
        return end - start

    def _look_up(self, request: str, chain: list[bytes], tokens: int, gpu: int, cut: int) -> None:
        is_whole = cut == len(chain)
        cause: str | None = None
        detail: str | None = None
        gone = None if is_whole else self.gone.get(chain[cut])
        lost = behind = 0
        if not is_whole:
            lost = sum(h in self.seen for h in chain[cut:])
            behind = sum(h in self.cpu for h in chain[cut:])
            if chain[cut] not in self.seen:
                cause, detail = "never_seen", "departs" if cut else "new_head"
            elif gone is None:
                cause, detail = "never_stored", "cpu_full"
            else:
                cause, detail = "evicted", "owner_running" if gone.was_owned else "no_owner"
        self.emit(
            Lookup(
                request, tokens, gpu * BLOCK, (cut - gpu) * BLOCK,
                sum(self.cpu[h].is_restored for h in chain[gpu:cut]) * BLOCK, len(chain), chain[-1],
                None if is_whole else cut, None if is_whole else chain[cut], 1, False, False, cause, detail,
                lost * BLOCK, behind * BLOCK, None, gone.by if gone else None, gone.step if gone else None,
                self.now_ns - gone.at_ns if gone else None, gone.age_ns if gone else None,
                gone.was_owned if gone else None,
            )
        )  # fmt: skip
        wanted = [(i, h, self.gone[h]) for i, h in enumerate(chain[cut:], cut) if h in self.gone]
        for _, group in groupby(enumerate(wanted), key=lambda pair: (pair[1][0] - pair[0], pair[1][2].step)):
            run = [w for _, w in group]
            g = run[0][2]
            self.emit(
                BlocksMissed(request, g.by, 0, run[0][0], len(run), run[-1][1], run[0][1], g.step,
                             self.now_ns - g.at_ns, len(run) * g.was_owned, g.by_restore)
            )  # fmt: skip

    def _store(self, request: str, blocks: list[tuple[int, bytes]], *, is_restore: bool) -> None:
        for first, run in self._runs(blocks):
            ids: list[int] = []
            for i, h in enumerate(run, first):
                block = self._take_block(request, is_restore)
                ids.append(block)
                self.cpu[h] = Copy(block, i, self.now_ns, request, is_restore)
                self.gone.pop(h, None)
            kind = BlocksRestored if is_restore else BlocksStored
            self.emit(
                kind(request, 0, first, len(run), run[-1], run[0], tuple(ids), len(run) * BLOCK_BYTES, self.step,
                     len(run) * 70_000)
            )  # fmt: skip
            self.moved[is_restore] += len(run)

    def _take_block(self, by: str, is_restore: bool) -> int:
        if self.free:
            return self.free.pop()
        h, copy = self.cpu.popitem(last=False)
        at = copy.index
        owner = next((r for r, chain in self.running.items() if chain[at : at + 1] == [h]), None)
        age = self.now_ns - copy.stored_ns
        self.emit(
            BlocksEvicted(owner, by, 0, copy.index, 1, h, h, (copy.block,), int(owner is not None), age,
                          int(copy.num_loads > 0), int(copy.is_restored), is_restore)
        )  # fmt: skip
        self.moved[3] += 1
        self.gone[h] = Gone(self.now_ns, self.step, by, age, owner is not None, is_restore)
        if len(self.gone) > 8 * CPU_BLOCKS:
            del self.gone[next(iter(self.gone))]
        if owner is not None:
            self.lost.append((owner, copy.index, h))
            del self.lost[:-500]
        return copy.block

    @staticmethod
    def _runs(blocks: list[tuple[int, bytes]]) -> Iterator[tuple[int, list[bytes]]]:
        for _, group in groupby(enumerate(blocks), key=lambda pair: pair[1][0] - pair[0]):
            run = [b for _, b in group]
            yield run[0][0], [h for _, h in run]


def write_big_log(
    url: URL, num_events: int, *, per_second: float = 50.0, end_ns: int | None = None, is_live: bool = False
) -> int:
    """Fill a new log with this many rows of `events`, spread over the time that they take at this rate, up to `end_ns`
    (now). `is_live`: its engine's heartbeat is an hour ahead, as if it were running. Returns the engine's id."""
    log.upgrade(url)
    end_ns = time.time_ns() if end_ns is None else end_ns
    begin_ns = end_ns - int(num_events / per_second * SECOND_NS)
    rng = random.Random(11)
    writer = log.open_writer(url)
    with writer.begin() as conn:
        key = conn.execute(
            tables.engines.insert().values(
                engine_uid="big", dp_index=0, pid=1, hostname="bench", model="bench/135M", vllm_version="0.32.0",
                restore_version="0.1.0", sqlite_version="3", hash_block_size=BLOCK, num_gpu_blocks=GPU_BLOCKS,
                num_cpu_blocks=CPU_BLOCKS, block_bytes=BLOCK_BYTES, directory_capacity=8 * CPU_BLOCKS,
                kv_groups='[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true}]',
                restore_support="yes", started_wall_ns=begin_ns, started_monotonic_ns=0,
                heartbeat_wall_ns=end_ns + (3600 * SECOND_NS if is_live else 0),
                stopped_wall_ns=None if is_live else end_ns,
            )
        ).inserted_primary_key  # fmt: skip
    assert key is not None
    engine_id: int = key[0]
    machine = Machine(rng, begin_ns, begin_ns)
    systems = [[hashlib.sha256(b"system %d %d" % (n, i)).digest() for i in range(12)] for n in range(4)]
    for system in systems:
        machine.emit(ChainExtended(None, 0, tuple(system)))
    # Re-store is off at first, then on, then in its other mode, then on again: a quarter of the log each.
    changes = [(num_events * n // 4, policy) for n, policy in enumerate(POLICIES)]
    talks: list[Talk] = []
    num_talks = num_requests = 0
    with writer.connect() as conn:
        while machine.num_events < num_events:
            if changes and machine.num_events >= changes[0][0]:
                machine.policy = changes.pop(0)[1]
                version = log.write_policy(writer, machine.policy.as_dict(), "bench").version
                p, reason = machine.policy, "start" if version == 1 else "toggle"
                machine.emit(
                    PolicyApplied(version, p.enabled, p.mode, p.max_restore_blocks_per_step, version == 1, reason)
                )
                machine.step = max(machine.step, 1)
            while len(talks) < NUM_TALKS:
                num_talks += 1
                talks.append(Talk(num_talks, list(rng.choice(systems)), rng.randrange(8, 30)))
            talk = rng.choice(talks)
            talk.turn += 1
            talk.turns_left -= 1
            num_requests += 1
            new = [machine.new_hash() for _ in range(rng.randrange(1, 6))]
            machine.ask(f"chatcmpl-{talk.number:05d}-{talk.turn:03d}-{num_requests:08x}", talk, new)
            if not talk.turns_left:
                talks.remove(talk)
            # The clock goes on such that rows come at the rate that was asked for.
            machine.now_ns = max(machine.now_ns, begin_ns + int(machine.num_events / per_second * SECOND_NS))
            if len(machine.items) >= BATCH or machine.num_events >= num_events:
                with conn.begin():
                    log.append(conn, engine_id, machine.items)
                machine.items.clear()
    writer.dispose()
    return engine_id


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a long log.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--per-second", type=float, default=50.0)
    parser.add_argument("--live", action="store_true", help="as if its engine were running")
    options = parser.parse_args()
    started = time.perf_counter()
    write_big_log(
        log.resolve_url(str(options.path)), options.events, per_second=options.per_second, is_live=options.live
    )
    size = options.path.stat().st_size / 1e6
    print(f"{options.events} rows of events in {time.perf_counter() - started:.0f} s, {size:.0f} MB")


if __name__ == "__main__":
    main()
