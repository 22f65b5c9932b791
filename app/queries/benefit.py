"""What evictions cost, what re-store gained and spent, and whether the return that people quote is seen here."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select

from app.models import Assumption, Benefit, BenefitView, Bin, PolicyBenefit, Regret, RestoreCost
from app.queries import prefill
from app.queries.ranges import SECOND_NS, read_range
from app.queries.rollups import in_range, read_groups
from app.settings import Settings
from connector import tables
from connector.policy import Policy

QUOTED_TOKENS = 256
QUOTED_SECONDS, QUOTED_BYTES, QUOTED_PREFILL, QUOTED_RATIO = 0.0005, 2e6, 0.025, 50.0
COLUMNS = (
    "num_lookups", "prompt_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "restored_hit_tokens",
    "restored_blocks", "restored_bytes", "restored_copy_ns", "restored_measured_blocks", "loaded_restored_blocks",
    "evicted_blocks", "evicted_by_restore_blocks",
    "missed_blocks", "missed_owned_blocks", "missed_by_restore_blocks",
    *(f"missed_since_{i}" for i in range(tables.NUM_BINS)),
    *prefill.COLUMNS,
)  # fmt: skip

_r = tables.rollups.c
_k = tables.rollup_causes.c
_p = tables.policies.c


def read_benefit(
    conn: Connection, since: int | None, until: int | None, now_ns: int, settings: Settings
) -> BenefitView:
    """The account of a range, rounded outwards to whole seconds; from the log's begin where `since` is not given.

    Raises:
        BadQueryError: an empty range.
    """
    start, end = read_range(conn, since, until, now_ns, settings, default_ns=None)
    rows = read_groups(conn, tables.rollups, [_r.policy_version], COLUMNS, start, end)
    by_policy: dict[int, Mapping[str, Any]] = {r.policy_version: r._mapping for r in rows}
    lost = _lost_to_eviction(conn, start, end)
    whole: Counter[str] = Counter()
    for sums in by_policy.values():
        whole.update({name: sums[name] for name in COLUMNS})
    sums_of_all = {name: whole[name] for name in COLUMNS}
    sizes = prefill.block_sizes(conn, end)
    most_tokens = max(sizes[0]) if sizes else 0
    prices = _Prices.of(sums_of_all, most_tokens)
    total = _benefit(sums_of_all, sum(lost.values()), prices)
    spans = _spans(conn, start, end)
    policies = [
        PolicyBenefit(
            **dict(_benefit(sums, lost.get(version, 0), prices)),
            policy_version=version if version >= 0 else None,
            label=_label(conn, version),
            first_wall_ns=spans[version][0] * SECOND_NS,
            last_wall_ns=(spans[version][1] + 1) * SECOND_NS,
        )
        for version, sums in sorted(by_policy.items(), key=lambda item: (spans[item[0]], item[0]))
    ]
    assumptions = _assumptions(total, sizes)
    hits = _ratio(total.restore.loaded_blocks, total.restore.restored_blocks)
    ratio = assumptions[-1].measured
    return BenefitView(
        since_wall_ns=start,
        until_wall_ns=end,
        total=total,
        policies=policies,
        block_tokens=most_tokens or None,
        assumptions=assumptions,
        hits_per_restore=hits,
        holds=_holds(total),
        verdict=_verdict(total, ratio, hits),
    )


def histogram(counts: Sequence[int]) -> list[Bin]:
    """The bars of sums by bin."""
    edges = (0, *tables.BIN_EDGES_NS, None)
    return [Bin(from_ns=edges[i] or 0, to_ns=edges[i + 1], num_blocks=n) for i, n in enumerate(counts)]


@dataclass(frozen=True, slots=True)
class _Prices:
    """What everything in a range is priced at: a policy's own steps are too few, and too much like one another, to
    compare policies by a speed of their own, and what the versions come to adds up only at one price."""

    prefill_s: float | None
    """Of a token."""
    copy_s: float | None
    """Of a re-stored block that was not measured."""
    block_tokens: int

    @classmethod
    def of(cls, sums: Mapping[str, Any], block_tokens: int) -> "_Prices":
        measured = sums["restored_measured_blocks"]
        copy_s = sums["restored_copy_ns"] / 1e9 / measured if measured else None
        return cls(prefill.prefill_of(sums).seconds_per_token, copy_s, block_tokens)


def _benefit(sums: Mapping[str, Any], lost_tokens: int, prices: _Prices) -> Benefit:
    speed = prices.prefill_s
    restored, measured = sums["restored_blocks"], sums["restored_measured_blocks"]
    copy_ns = sums["restored_copy_ns"]
    saved = None if speed is None else sums["restored_hit_tokens"] * speed
    spent = None
    if restored and prices.copy_s is not None:
        spent = copy_ns / 1e9 + (restored - measured) * prices.copy_s
    displaced_wanted = sums["missed_by_restore_blocks"]
    return Benefit(
        num_lookups=sums["num_lookups"],
        prompt_tokens=sums["prompt_tokens"],
        hit_rate=_ratio(sums["gpu_hit_tokens"] + sums["cpu_hit_tokens"], sums["prompt_tokens"]),
        regret=Regret(
            evicted_blocks=sums["evicted_blocks"],
            wanted_blocks=sums["missed_blocks"],
            wanted_owned_blocks=sums["missed_owned_blocks"],
            wanted_share=_ratio(sums["missed_blocks"], sums["evicted_blocks"]),
            lost_tokens=lost_tokens,
            histogram=histogram([sums[f"missed_since_{i}"] for i in range(tables.NUM_BINS)]),
        ),
        restore=RestoreCost(
            restored_blocks=restored,
            restored_bytes=sums["restored_bytes"],
            copy_ns=copy_ns if measured else None,
            measured_blocks=measured,
            loaded_blocks=sums["loaded_restored_blocks"],
            hit_tokens=sums["restored_hit_tokens"],
            displaced_blocks=sums["evicted_by_restore_blocks"],
            displaced_wanted_blocks=displaced_wanted,
        ),
        prefill=prefill.prefill_of(sums),
        saved_s=saved,
        spent_s=spent,
        displaced_s=None if speed is None else displaced_wanted * prices.block_tokens * speed,
        roi=saved / spent if saved is not None and spent else None,
    )


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _lost_to_eviction(conn: Connection, start: int, end: int) -> dict[int, int]:
    """Tokens by policy version."""
    query = select(_k.policy_version, func.sum(_k.lost_tokens).label("lost")).where(
        in_range(tables.rollup_causes, start, end), _k.cause == "evicted"
    )
    return {row.policy_version: row.lost for row in conn.execute(query.group_by(_k.policy_version))}


def _spans(conn: Connection, start: int, end: int) -> dict[int, tuple[int, int]]:
    """The first and the last second of each policy version."""
    query = select(_r.policy_version, func.min(_r.second), func.max(_r.second)).where(
        in_range(tables.rollups, start, end)
    )
    return {version: (first, last) for version, first, last in conn.execute(query.group_by(_r.policy_version))}


def _label(conn: Connection, version: int) -> str | None:
    if version == 0:
        return Policy().label
    row = conn.execute(select(tables.policies).where(_p.version == version)).one_or_none()
    return Policy.of(row).label if row else None


def _assumptions(total: Benefit, sizes: tuple[list[int], int] | None) -> list[Assumption]:
    """What is quoted is per 256 tokens, so what is measured is too, over all groups that a token has a block in."""
    restore, speed = total.restore, total.prefill.seconds_per_token
    seconds = size = None
    if sizes is not None:
        blocks = sum(QUOTED_TOKENS / tokens for tokens in sizes[0])
        size = blocks * sizes[1]
        if restore.copy_ns is not None:
            seconds = restore.copy_ns / 1e9 / restore.measured_blocks * blocks
    cost = None if speed is None else speed * QUOTED_TOKENS
    ratio = cost / seconds if cost is not None and seconds else None
    return [
        Assumption(
            name="restore_seconds", label="copying 256 tokens again", unit="s", quoted=QUOTED_SECONDS, measured=seconds
        ),
        Assumption(name="restore_bytes", label="bytes of 256 tokens", unit="B", quoted=QUOTED_BYTES, measured=size),
        Assumption(
            name="prefill_seconds", label="prefill of 256 tokens", unit="s", quoted=QUOTED_PREFILL, measured=cost
        ),
        Assumption(name="ratio", label="prefill / copying again", unit="×", quoted=QUOTED_RATIO, measured=ratio),
    ]


def _holds(total: Benefit) -> bool | None:
    if not total.spent_s:
        return None
    if not total.restore.hit_tokens:
        return False  # at any price
    return None if total.roi is None or total.prefill.doubt is not None else total.roi >= QUOTED_RATIO


def _verdict(total: Benefit, ratio: float | None, hits: float | None) -> str:
    if not total.restore.restored_blocks:
        return "Nothing was re-stored in this range, so nothing can be said about what it returns."
    if total.spent_s is None:
        return "The worker does not measure its copies here, so the return is not known."
    if not total.restore.hit_tokens:
        return "It does not hold here: nothing that was re-stored has been hit, so what it cost has gained nothing."
    if total.prefill.doubt is not None or total.roi is None or ratio is None or hits is None:
        return f"It cannot be told whether it holds here: {total.prefill.doubt or 'the copies took no time at all'}."
    paid = f"a re-stored block that is hit once pays {_times(ratio)}, and one was hit {hits:.2g} times on average"
    gained = f"re-store gained {_times(total.roi)} what it spent"
    # What goes for a re-store and is wanted again is computed again: that is a price, too.
    is_harmful = (total.saved_s or 0) <= total.spent_s + (total.displaced_s or 0)
    harm = " With the prefill of what it pushed out, it cost more than it gained." if is_harmful else ""
    if total.roi >= QUOTED_RATIO:
        return f"It holds here: {paid}, so {gained}; 50 times are quoted.{harm}"
    if total.roi >= 1:
        though = "" if is_harmful else ", though re-store paid"
        return f"It does not hold here{though}: {paid}, so {gained}; 50 times are quoted.{harm}"
    return f"It does not hold here, and re-store cost more than it gained: {paid}, so {gained}; 50 times are quoted."


def _times(value: float) -> str:
    return f"{value:.0f} times" if value >= 10 else f"{value:.2g} times"
