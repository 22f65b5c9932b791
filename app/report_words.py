"""How the report says quantities and causes. `report` alone imports it."""

from datetime import UTC, datetime

SECOND_NS = 1_000_000_000
NONE = "—"

CAUSES = {
    "never_seen": "nobody had computed this content before",
    "never_stored": "computed once, but not copied to the CPU tier",
    "evicted": "the CPU tier had it and gave its place to another",
    "in_flight": "on its way, and not there yet",
    "shorter_than_a_block": "the prompt has no full block",
    "last_token_rule": "the last token is always computed",
    "not_aligned": "a hit may end only where every KV-cache group has what it needs",
    "cache_skipped": "the request asked not to read the prefix cache",
    "reset": "the caches were emptied since",
    "not_recorded": "written by an older version, which did not say why",
}
DETAILS = {
    "new_head": "new from its first block on",
    "extends": "first to go on here: the usual new turn of a chat",
    "departs": "same beginning, other content than the one before",
    "maybe_forgotten": "or so long ago that it was forgotten",
    "never_computed": "announced by a request that ended first",
    "cpu_full": "the CPU tier was full",
    "budget": "the budget of a step was used up",
    "no_gain": "it would have cost a running request a block nearer its head",
    "not_tried": "the looks for a victim were used up",
    "copy_failed": "the copy failed",
    "rehashed": "the block got another hash meanwhile",
    "skipped": "for none of the recorded reasons",
    "owner_running": "a re-store could have kept it",
    "no_owner": "no running request had it any more",
    "copying": "its copy was on its way",
    "computing": "another request was computing it",
    "draft_head": "for the draft head",
}


def percent(rate: float | None, digits: int = 0) -> str:
    """A share from 0 to 1. What is not quite nothing, or not quite all, does not round to it."""
    if rate is None:
        return NONE
    if 0 < rate < 0.01 and digits == 0:
        return "<1 %"
    if 0.99 < rate < 1 and digits == 0:
        return ">99 %"
    return f"{100 * rate:.{digits}f} %"


def number(value: float | None) -> str:
    """A whole number with thousands apart."""
    return NONE if value is None else f"{value:,.0f}"


def amount(num_bytes: float | None) -> str:
    """Bytes."""
    if num_bytes is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:,.1f} TB"


def seconds(value: float | None) -> str:
    """A duration that is given in seconds."""
    if value is None:
        return NONE
    if value < 0:
        return f"-{seconds(-value)}"
    if value == 0:
        return "0 s"
    if value < 1e-6:
        return f"{value * 1e9:.0f} ns"
    if value < 999.5e-6:
        return f"{value * 1e6:.3g} µs"
    if value < 0.9995:
        return f"{value * 1e3:.3g} ms"
    if value < 59.95:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"


def nanoseconds(value: int | None) -> str:
    """A duration that is given in nanoseconds."""
    return NONE if value is None else seconds(value / SECOND_NS)


def span(value: int) -> str:
    """A duration in nanoseconds, short: in one unit."""
    if value < 60 * SECOND_NS:
        return nanoseconds(value)
    minutes = value / SECOND_NS / 60
    return f"{minutes:.2g} min" if minutes < 60 else f"{minutes / 60:.2g} h"


def times(value: float | None) -> str:
    """A ratio."""
    return NONE if value is None else f"{value:,.3g}×" if value < 1000 else f"{value:,.0f}×"


def moment(wall_ns: int | None) -> str:
    """A time of day, UTC."""
    if wall_ns is None:
        return NONE
    return datetime.fromtimestamp(wall_ns // SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
