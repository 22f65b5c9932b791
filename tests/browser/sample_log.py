"""A log as an engine would write it, worked out by a small model of two tiers: what browser tests and screenshots show.

Several conversations share a server whose CPU tier is too small for them. Everything in the log follows from the model,
so totals that a test reads off the screen can be worked out from the log's tables independently.
"""

import hashlib
import random
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from sqlalchemy import URL, Connection

from connector import log, tables
from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    ChainExtended,
    Event,
    Lookup,
    PolicyApplied,
    RequestFinished,
    RequestStarted,
    StepTaken,
)
from connector.policy import Policy

BLOCK_TOKENS = 32
BLOCK_BYTES = 368_640
OUTPUT_TOKENS = 40
"""Fills the block that the prompt's last five tokens began, and some of the next."""
GPU_BLOCKS = 56
CPU_BLOCKS = 100
STEP_NS = 120_000_000
TOKEN_NS = 150_000
COPY_NS = 40_000
SECOND_NS = 1_000_000_000


@dataclass
class Running:
    """A request that runs: its chain, what it still has to generate, when it arrived."""

    id: str
    chain: list[bytes]
    num_tokens: int
    steps_left: int
    arrived_ns: int
    output: bytes
    """Of the block that its output fills."""


@dataclass(frozen=True)
class Eviction:
    """When a block left the CPU tier, how old it was, and for whom."""

    step: int
    at_ns: int
    by: str
    owner: str | None
    age_ns: int
    is_by_restore: bool


@dataclass(frozen=True)
class Why:
    """Why a lookup ended, and what it lost, in blocks."""

    cause: str | None = None
    detail: str | None = None
    lost: int = 0
    behind: int = 0
    sibling: bytes | None = None
    by: str | None = None
    eviction: Eviction | None = None


@dataclass
class Model:
    """Two tiers with LRU eviction, and the items that the recorder would have queued."""

    rng: random.Random
    now_ns: int
    step: int = 0
    gpu: "OrderedDict[bytes, None]" = field(default_factory=OrderedDict[bytes, None])
    cpu: "OrderedDict[bytes, int]" = field(default_factory=OrderedDict[bytes, int])
    free: list[int] = field(default_factory=lambda: list(range(CPU_BLOCKS)))
    stored_ns: dict[bytes, int] = field(default_factory=dict[bytes, int])
    running: list[Running] = field(default_factory=list[Running])
    lost: list[tuple[Running, int]] = field(default_factory=list[tuple[Running, int]])
    items: list[log.Stamped] = field(default_factory=list[log.Stamped])
    policy: Policy = field(default_factory=lambda: Policy(enabled=False))
    counts: dict[str, int] = field(default_factory=dict[str, int])
    place: dict[bytes, int] = field(default_factory=dict[bytes, int])
    tellers: dict[bytes, str] = field(default_factory=dict[bytes, str])
    children: dict[bytes | None, bytes] = field(default_factory=dict[bytes | None, bytes])
    evictions: dict[bytes, Eviction] = field(default_factory=dict[bytes, Eviction])
    dropped: set[bytes] = field(default_factory=set[bytes])
    restored: set[bytes] = field(default_factory=set[bytes])
    num_loads: dict[bytes, int] = field(default_factory=dict[bytes, int])
    previous: tuple[int, int, int] | None = None
    computed_tokens: int = 0

    def emit(self, item: Event | ChainExtended | StepTaken) -> None:
        self.items.append((self.step, self.now_ns, self.now_ns, item))
        self.now_ns += 20_000

    def apply(self, version: int, policy: Policy, reason: str) -> None:
        self.policy = policy
        self.emit(
            PolicyApplied(
                version, policy.enabled, policy.mode, policy.max_restore_blocks_per_step, reason == "start", reason
            )
        )

    def arrive(
        self, request_id: str, session: str, chain: list[bytes], extra_tokens: int, steps: int, output: bytes
    ) -> None:
        num_tokens = len(chain) * BLOCK_TOKENS + extra_tokens
        self.emit(ChainExtended(None, 0, tuple(chain)))
        self.place.update((h, i) for i, h in enumerate(chain))
        tail = chain[-1] if chain else None
        self.emit(RequestStarted(request_id, num_tokens, len(chain), tail, session))
        gpu_hit = self._prefix(chain, 0, self.gpu)
        cpu_hit = self._prefix(chain, gpu_hit, self.cpu)
        cut = gpu_hit + cpu_hit
        missing = chain[cut] if cut < len(chain) else None
        why = self._why(chain, cut)
        lost = why.eviction
        self.emit(
            Lookup(
                request_id=request_id,
                num_tokens=num_tokens,
                gpu_hit_tokens=gpu_hit * BLOCK_TOKENS,
                cpu_hit_tokens=cpu_hit * BLOCK_TOKENS,
                restored_hit_tokens=sum(h in self.restored for h in chain[gpu_hit:cut]) * BLOCK_TOKENS,
                num_blocks=len(chain),
                tail_hash=tail,
                cut_index=None if missing is None else cut,
                missing_hash=missing,
                num_attempts=1,
                is_resumed=False,
                is_skipped=False,
                cause=why.cause,
                cause_detail=why.detail,
                lost_tokens=why.lost * BLOCK_TOKENS,
                behind_tokens=why.behind * BLOCK_TOKENS,
                sibling_hash=why.sibling,
                by_request_id=why.by,
                evicted_step=lost and lost.step,
                since_ns=lost and self.now_ns - lost.at_ns,
                age_ns=lost and lost.age_ns,
                was_owned=None if lost is None else lost.owner is not None,
            )
        )
        self._tell_missed(request_id, chain, cut)
        for parent, h in zip((None, *chain), chain, strict=False):
            self.tellers.setdefault(h, request_id)
            self.children[parent] = h
        self.computed_tokens += num_tokens - cut * BLOCK_TOKENS
        request = Running(request_id, chain, num_tokens, steps, self.now_ns, output)
        self.running.append(request)
        if cpu_hit:
            ids = tuple(self.cpu[h] for h in chain[gpu_hit:cut])
            self.emit(
                BlocksLoaded(
                    request_id,
                    0,
                    gpu_hit,
                    cpu_hit,
                    chain[cut - 1],
                    chain[gpu_hit],
                    ids,
                    cpu_hit * BLOCK_BYTES,
                    self.step,
                    cpu_hit * COPY_NS,
                    sum(h in self.restored for h in chain[gpu_hit:cut]),
                )
            )
            for h in chain[gpu_hit:cut]:
                self.num_loads[h] = self.num_loads.get(h, 0) + 1
            self._count("num_loaded", cpu_hit)
        new = [i for i, h in enumerate(chain) if h not in self.cpu]
        if self.rng.random() < 0.15 and len(new) > 1:
            # Nothing was free when the last blocks of this one were ready.
            new, late = new[:-1], new[-1]
            self.dropped.add(chain[late])
            self.emit(BlocksDropped(request_id, 0, late, 1, "cpu_full", chain[late], chain[late]))
        self._store(request, new, is_restore=False)
        # Tail first, so that of one chain the tail is the oldest and goes first, as in vLLM's pools.
        for h in reversed(chain):
            self.gpu[h] = None
            self.gpu.move_to_end(h)
            if h in self.cpu:
                self.cpu.move_to_end(h)
        self._trim_gpu()

    def take_step(self) -> None:
        self.step += 1
        self.counts = {}
        budget = self.policy.max_restore_blocks_per_step or CPU_BLOCKS
        if self.policy.enabled and self.lost:
            # The hole nearest the head first, and only while its request still runs.
            self.lost.sort(key=lambda pair: pair[1])
            now, self.lost = self.lost[:budget], self.lost[budget:]
            for request, pairs in groupby(sorted(now, key=lambda p: (p[0].id, p[1])), key=lambda p: p[0]):
                indices = [i for _, i in pairs if request.chain[i] not in self.cpu]
                if request in self.running and indices:
                    self._store(request, indices[:6], is_restore=True)
        for request in list(self.running):
            request.steps_left -= 1
            if request.steps_left <= 0:
                self._finish(request)

    def end_step(self) -> None:
        self.emit(
            StepTaken(
                num_running=len(self.running),
                num_scheduled_tokens=len(self.running),
                num_stored=self.counts.get("num_stored", 0),
                num_restored=self.counts.get("num_restored", 0),
                num_loaded=self.counts.get("num_loaded", 0),
                num_evicted=self.counts.get("num_evicted", 0),
                num_restorable=len(self.lost),
                cpu_blocks_free=len(self.free),
                cpu_blocks_cached=len(self.cpu),
                cpu_blocks_in_flight=0,
                gpu_blocks_free=GPU_BLOCKS - len(self.gpu),
                hook_ns=self.rng.randrange(80_000, 400_000),
                previous_ns=self.previous and self.previous[0],
                previous_tokens=self.previous and self.previous[1],
                previous_running=self.previous and self.previous[2],
            )
        )
        num_tokens = self.computed_tokens + len(self.running)
        took = STEP_NS + self.computed_tokens * TOKEN_NS
        self.previous = (took, num_tokens, len(self.running))
        self.computed_tokens = 0
        self.now_ns += took

    def _count(self, name: str, num: int) -> None:
        self.counts[name] = self.counts.get(name, 0) + num

    def _why(self, chain: list[bytes], cut: int) -> Why:
        """What an engine's directory of seen hashes would say of the cut."""
        if cut == len(chain):
            return Why()
        h = chain[cut]
        seen = next((i for i, other in enumerate(chain) if other not in self.tellers), len(chain))
        if cut >= seen:
            sibling = self.children.get(chain[cut - 1] if cut else None) if cut else None
            if sibling is not None:
                return Why("never_seen", "departs", sibling=sibling, by=self.tellers[sibling])
            return Why("never_seen", "extends" if cut else "new_head")
        there = sum(other in self.cpu or other in self.gpu for other in chain[cut + 1 : seen])
        lost = self.evictions.get(h)
        if lost is None:
            return Why("never_stored", "cpu_full" if h in self.dropped else "skipped", seen - cut, there)
        detail = "owner_running" if lost.owner else "no_owner"
        return Why("evicted", detail, seen - cut, there, by=lost.by, eviction=lost)

    def _tell_missed(self, request_id: str, chain: list[bytes], cut: int) -> None:
        """Blocks from the cut on that the tier had held and evicted, those of one eviction together."""
        wanted = [(i, self.evictions[h]) for i, h in enumerate(chain) if i >= cut and h in self.evictions]
        for lost, pairs in groupby(wanted, key=lambda pair: pair[1]):
            indices = [i for i, _ in pairs]
            for first, num in _runs(indices):
                run = chain[first : first + num]
                since = self.now_ns - lost.at_ns
                owned = num if lost.owner else 0
                self.emit(
                    BlocksMissed(
                        request_id, lost.by, 0, first, num, run[-1], run[0], lost.step, since, owned, lost.is_by_restore
                    )
                )

    @staticmethod
    def _prefix(chain: list[bytes], start: int, tier: "OrderedDict[bytes, None] | OrderedDict[bytes, int]") -> int:
        num = 0
        while start + num < len(chain) and chain[start + num] in tier:
            num += 1
        return num

    def _trim_gpu(self) -> None:
        kept = {h for r in self.running for h in r.chain}
        for h in [h for h in self.gpu if h not in kept][: max(0, len(self.gpu) - GPU_BLOCKS)]:
            del self.gpu[h]

    def _store(self, request: Running, indices: list[int], *, is_restore: bool) -> None:
        for first, num in _runs(indices):
            ids = tuple(self._take_cpu_block(request, is_restore) for _ in range(num))
            for i, cpu_id in zip(range(first, first + num), ids, strict=True):
                self.cpu[request.chain[i]] = cpu_id
                self.stored_ns[request.chain[i]] = self.now_ns
                self.num_loads.pop(request.chain[i], None)
                self.evictions.pop(request.chain[i], None)
                (self.restored.add if is_restore else self.restored.discard)(request.chain[i])
            kind = BlocksRestored if is_restore else BlocksStored
            tail, head = request.chain[first + num - 1], request.chain[first]
            self.emit(kind(request.id, 0, first, num, tail, head, ids, num * BLOCK_BYTES, self.step, num * COPY_NS))
            self._count("num_restored" if is_restore else "num_stored", num)

    def _take_cpu_block(self, by: Running, is_restore: bool) -> int:
        if self.free:
            return self.free.pop(0)
        own = set(by.chain)
        victim = next((h for h in self.cpu if h not in own), next(iter(self.cpu)))
        cpu_id = self.cpu.pop(victim)
        owner = next((r for r in self.running if victim in r.chain), None)
        index = self.place[victim]
        self.emit(
            BlocksEvicted(
                owner.id if owner else None,
                by.id,
                0,
                index,
                1,
                victim,
                victim,
                (cpu_id,),
                1 if owner else 0,
                self.now_ns - self.stored_ns[victim],
                1 if self.num_loads.get(victim) else 0,
                1 if victim in self.restored else 0,
                is_restore,
            )
        )
        age = self.now_ns - self.stored_ns[victim]
        self.evictions[victim] = Eviction(self.step, self.now_ns, by.id, owner.id if owner else None, age, is_restore)
        self.restored.discard(victim)
        self._count("num_evicted", 1)
        if owner:
            self.lost.append((owner, index))
        return cpu_id

    def _finish(self, request: Running) -> None:
        self.running.remove(request)
        self.lost = [pair for pair in self.lost if pair[0] is not request]
        took = self.now_ns - request.arrived_ns
        num_prompt = len(request.chain)
        self.emit(ChainExtended(request.chain[-1], num_prompt, (request.output,)))
        self.children[request.chain[-1]] = request.output
        self.tellers.setdefault(request.output, request.id)
        self.place[request.output] = num_prompt
        request.chain.append(request.output)
        self.gpu[request.output] = None
        self._store(request, [num_prompt], is_restore=False)
        ttft = 40_000_000 + request.num_tokens * 150_000
        self.emit(
            RequestFinished(
                request.id,
                "FINISHED_LENGTH_CAPPED",
                request.num_tokens,
                OUTPUT_TOKENS,
                len(request.chain),
                request.output,
                ttft,
                took,
            )
        )


def _runs(indices: list[int]) -> Iterator[tuple[int, int]]:
    """Consecutive indices as (first, how many)."""
    for _, group in groupby(enumerate(indices), key=lambda pair: pair[1] - pair[0]):
        run = [index for _, index in group]
        yield run[0], len(run)


def sign_in(conn: Connection, engine_id: int, started_ns: int, stopped_ns: int | None, heartbeat_ns: int) -> None:
    """A row of the engines table."""
    conn.execute(
        tables.engines.insert().values(
            id=engine_id,
            engine_uid=hashlib.sha256(b"engine%d" % engine_id).hexdigest()[:32],
            dp_index=0,
            pid=4000 + engine_id,
            hostname="sample",
            model="HuggingFaceTB/SmolLM2-135M-Instruct",
            vllm_version="0.32.0",
            restore_version="0.1.0",
            sqlite_version="3.40.1",
            hash_block_size=BLOCK_TOKENS,
            num_gpu_blocks=GPU_BLOCKS,
            num_cpu_blocks=CPU_BLOCKS,
            block_bytes=BLOCK_BYTES,
            kv_groups='[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true}]',
            restore_support="yes",
            started_wall_ns=started_ns,
            started_monotonic_ns=started_ns,
            heartbeat_wall_ns=heartbeat_ns,
            stopped_wall_ns=stopped_ns,
        )
    )


def write_sample(url: URL, end_ns: int, *, seed: int = 7) -> None:
    """Fill a log: 13 minutes that end at `end_ns`, two starts of an engine with a gap between, three policies."""
    log.upgrade(url)
    minute = 60 * SECOND_NS
    writer = log.open_writer(url)
    policies = [(1, -13, Policy(enabled=False)), (2, -4, Policy(enabled=True)), (3, -1, Policy(True, "rescan", 8))]
    with writer.begin() as conn:
        for version, at, policy in policies:
            conn.execute(
                tables.policies.insert().values(
                    version=version,
                    created_wall_ns=end_ns + at * minute - 31_000_000,
                    author="127.0.0.1 (curl/8.5.0)",
                    **policy.as_dict(),
                )
            )
        rng = random.Random(seed)
        spans = [(1, -13, -9), (2, -7, 0)]
        for engine_id, begin, end in spans:
            start_ns, stop_ns = end_ns + begin * minute, end_ns + end * minute
            sign_in(conn, engine_id, start_ns, stop_ns, stop_ns)
            model = Model(rng, start_ns + SECOND_NS)
            model.apply(1, policies[0][2], "start")
            changes = [(v, end_ns + at * minute, p) for v, at, p in policies if end_ns + at * minute > start_ns]
            _drive(model, stop_ns, changes if engine_id == 2 else [])
            log.append(conn, engine_id, model.items)
    writer.dispose()


def _drive(model: Model, stop_ns: int, changes: list[tuple[int, int, Policy]]) -> None:
    rng = model.rng
    texts = [[_hash(rng) for _ in range(4)] for _ in range(9)]
    turns = [0] * len(texts)
    names = [f"conv-{i}" for i in range(len(texts))]
    outputs: list[list[bytes]] = [[] for _ in texts]
    due = [model.now_ns + int(rng.uniform(0, 12) * SECOND_NS) for _ in texts]
    serial = 0
    while model.now_ns < stop_ns - SECOND_NS:
        model.take_step()
        while changes and model.now_ns >= changes[0][1]:
            version, _, policy = changes.pop(0)
            model.apply(version, policy, "toggle")
        for i, at in enumerate(due):
            if model.now_ns < at:
                continue
            turns[i] += 1
            texts[i] += outputs[i]
            if turns[i] > 7:
                # Every other new conversation begins with the block that the one before began with.
                names[i] = f"conv-{serial}-{i}"
                texts[i], turns[i] = texts[i][: serial % 2] + [_hash(rng) for _ in range(4)], 1
            texts[i] += [_hash(rng) for _ in range(rng.choice((1, 1, 2)))]
            outputs[i] = [_hash(rng)]
            serial += 1
            name = hashlib.sha256(b"%d %d" % (serial, model.now_ns)).hexdigest()
            request_id = f"chatcmpl-{name[:16]}-{name[16:24]}"
            model.arrive(request_id, names[i], list(texts[i]), 5, rng.randrange(25, 70), outputs[i][0])
            due[i] = model.now_ns + int(rng.uniform(6, 22) * SECOND_NS)
        model.end_step()


def _hash(rng: random.Random) -> bytes:
    return rng.randbytes(32)
