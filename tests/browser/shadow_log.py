"""A log whose shadows can be worked out by hand: what its tests expect stands here, with the reason.

A CPU tier of 8 blocks, prompts of 4 blocks (129 tokens, of which a lookup may find 128), nothing on the GPU. Twice this
happens, all within one second, in other words the second time:

    long     comes, is copied, and goes on running
    passer   comes, is copied, ends                            the tier is full
    another  comes, is copied over `long`'s blocks, ends       `long` is lost though it runs
    long     ends
    again    goes on where `long` was                          hit: 128 tokens, or none

Off, `long` is gone: nothing. Tracked, its blocks are copied again over the first passer's: 128. Adaptive, which has too
little to learn from here, takes the place of whoever rests before that of whoever runs: 128. With 16 blocks or more,
or without a bound, it was never lost: 128. The engine is off the first time and obeys tracked the second time. At last
somebody goes on with the `long` of the first time: 8 blocks have forgotten it whatever the policy, 16 have not, since
the hit put it behind both passers.
"""

from dataclasses import dataclass, field

from sqlalchemy import URL

from connector import log, tables
from connector.events import ChainExtended, CursorMoved, Event, Lookup, PolicyApplied, RequestFinished, RequestStarted
from connector.policy import Policy

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
BLOCK_TOKENS = 32
PROMPT_BLOCKS = 4
PROMPT_TOKENS = PROMPT_BLOCKS * BLOCK_TOKENS + 1
HIT_TOKENS = PROMPT_BLOCKS * BLOCK_TOKENS
CPU_BLOCKS = 8
BLOCK_BYTES = 2**30 // CPU_BLOCKS
"""The tier is one GiB."""

FIRST, SECOND = 4 * PROMPT_TOKENS, 5 * PROMPT_TOKENS
"""Prompt tokens of the two seconds with traffic."""
HITS = {"engine": (0, 1), "off": (0, 0), "tracked": (1, 1), "adaptive": (1, 1), "unlimited": (1, 2)}
"""How many lookups find their prompt in those seconds. A tier twice as large gives what an endless one does."""


def rate(name: str) -> float:
    """The hit rate over the whole log."""
    return sum(HITS[name]) * HIT_TOKENS / (FIRST + SECOND)


@dataclass
class _Writer:
    wall_ns: int
    step: int = 0
    items: list[log.Stamped] = field(default_factory=list[log.Stamped])

    def tell(self, *items: Event | ChainExtended) -> None:
        self.items += [(self.step, self.wall_ns, self.wall_ns, item) for item in items]
        self.wall_ns += 1_000_000
        # Copies are over when the next thing happens.
        self.step += 10

    def ask(self, request_id: str, text: str, hit_tokens: int = 0) -> None:
        chain = _chain(text)
        self.tell(
            ChainExtended(None, 0, chain),
            RequestStarted(request_id, PROMPT_TOKENS, PROMPT_BLOCKS, chain[-1], None),
            Lookup(
                request_id=request_id,
                num_tokens=PROMPT_TOKENS,
                gpu_hit_tokens=0,
                cpu_hit_tokens=hit_tokens,
                restored_hit_tokens=hit_tokens,
                num_blocks=PROMPT_BLOCKS,
                tail_hash=chain[-1],
                cut_index=None if hit_tokens else 0,
                missing_hash=None if hit_tokens else chain[0],
                num_attempts=1,
                is_resumed=False,
                is_skipped=False,
            ),
        )
        self.tell(CursorMoved(request_id, 0, 0, PROMPT_BLOCKS))

    def end(self, request_id: str, text: str) -> None:
        tail = _chain(text)[-1]
        self.tell(RequestFinished(request_id, "FINISHED_STOPPED", PROMPT_TOKENS, 1, PROMPT_BLOCKS, tail, 1, 1))

    def cycle(self, number: int, hit_tokens: int) -> None:
        texts = [f"{number} {name}" for name in ("long", "passer", "another")]
        for text in texts:
            self.ask(f"request {text}", text)
            if text != texts[0]:
                self.end(f"request {text}", text)
        self.end(f"request {texts[0]}", texts[0])
        self.ask(f"request {number} again", texts[0], hit_tokens)
        self.end(f"request {number} again", texts[0])


def write_shadow_log(url: URL, end_ns: int) -> None:
    """Fill a log that ends at a whole second near `end_ns`, ten minutes long, traffic in two of its seconds."""
    log.upgrade(url)
    end_ns -= end_ns % (10 * SECOND_NS)
    begin_ns = end_ns - 10 * MINUTE_NS
    off, on = Policy(enabled=False), Policy()
    writer = log.open_writer(url)
    with writer.begin() as conn:
        conn.execute(
            tables.engines.insert().values(
                id=1,
                engine_uid="shadowed",
                dp_index=0,
                pid=1,
                hostname="sample",
                model="sample/model",
                vllm_version="0.32.0",
                restore_version="0.1.0",
                sqlite_version="3.40.1",
                hash_block_size=BLOCK_TOKENS,
                num_gpu_blocks=4 * PROMPT_BLOCKS,
                num_cpu_blocks=CPU_BLOCKS,
                block_bytes=BLOCK_BYTES,
                kv_groups='[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true}]',
                restore_support="yes",
                started_wall_ns=begin_ns,
                started_monotonic_ns=begin_ns,
                heartbeat_wall_ns=end_ns,
                stopped_wall_ns=end_ns,
            )
        )
        told = _Writer(begin_ns + SECOND_NS)
        told.tell(_applied(1, off, "start"))
        told.wall_ns = begin_ns + 2 * MINUTE_NS
        told.cycle(1, 0)
        told.wall_ns = begin_ns + 5 * MINUTE_NS
        told.tell(_applied(2, on, "toggle"))
        told.wall_ns = begin_ns + 8 * MINUTE_NS
        told.cycle(2, HIT_TOKENS)
        told.ask("request 1 once more", "1 long")
        told.end("request 1 once more", "1 long")
        log.append(conn, 1, told.items)
    writer.dispose()


def _applied(version: int, policy: Policy, reason: str) -> PolicyApplied:
    budget = policy.max_restore_blocks_per_step
    return PolicyApplied(version, policy.enabled, policy.mode, budget, reason == "start", reason)


def _chain(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().ljust(30, b".") + bytes((0, i)) for i in range(PROMPT_BLOCKS))
