"""The re-store policy: every toggle, its default, its bounds.

Pure: standard library only. The app validates with it, the log stores it, the engine obeys it.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

Mode = Literal["rescan", "tracked"]
RetentionRule = Literal["lru", "adaptive"]

MODES: tuple[str, ...] = get_args(Mode)
RETENTIONS: tuple[str, ...] = get_args(RetentionRule)
MAX_BUDGET = 1_000_000
DEFAULT_BUDGET = 64


class PolicyError(ValueError):
    """A policy that cannot be applied. The message says which key is wrong and what it may be."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What the engine may do to bring back blocks that the CPU tier has lost.

    Attributes:
        enabled: False, with `retention` `lru`, makes the connector do byte for byte what vLLM's
            `SimpleCPUOffloadConnector` does.
        mode: `tracked` looks only at blocks whose eviction was observed; `rescan` walks every stored block of every
            running request in every step and is kept as the reference.
        max_restore_blocks_per_step: re-stores in one scheduler step, all requests together; 0 means no limit.
        retention: which block of the tier goes for a new one. `lru` is vLLM's own order, untouched; `adaptive` is
            `retention`'s.
    """

    enabled: bool = True
    mode: Mode = "tracked"
    max_restore_blocks_per_step: int = DEFAULT_BUDGET
    retention: RetentionRule = "lru"

    def __post_init__(self) -> None:
        # Values come from JSON and from SQL, so types are looked at, whatever the annotations say.
        values: dict[str, Any] = asdict(self)
        if not isinstance(values["enabled"], bool):
            raise PolicyError(f"enabled must be true or false, not {self.enabled!r}")
        if self.mode not in MODES:
            raise PolicyError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        budget = values["max_restore_blocks_per_step"]
        # bool is an int in Python; `true` blocks a step is a typing mistake, not a budget of 1.
        if isinstance(budget, bool) or not isinstance(budget, int) or not 0 <= budget <= MAX_BUDGET:
            raise PolicyError(
                f"max_restore_blocks_per_step must be a whole number from 0 (no limit) to {MAX_BUDGET}, not {budget!r}"
            )

        if self.retention not in RETENTIONS:
            raise PolicyError(f"retention must be one of {', '.join(RETENTIONS)}, not {self.retention!r}")

    @property
    def label(self) -> str:
        """How this policy is named in tables and charts: `off`, `rescan` or `tracked` under vLLM's own order;
        `adaptive`, or `adaptive-off` without re-store. (How lost blocks are looked for makes no difference there.)"""
        if self.retention == "adaptive":
            return "adaptive" if self.enabled else "adaptive-off"
        return self.mode if self.enabled else "off"

    def changed(self, changes: dict[str, Any]) -> "Policy":
        """This policy with some keys replaced.

        Raises:
            PolicyError: an unknown key or a value out of its bounds; nothing is applied.
        """
        known = {f.name for f in fields(self)}
        if unknown := sorted(changes.keys() - known):
            raise PolicyError(f"unknown key {', '.join(map(repr, unknown))}; known are {', '.join(sorted(known))}")
        return replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """The toggles as plain values, in the order in which they are documented."""
        return asdict(self)

    @classmethod
    def of(cls, row: Any) -> "Policy":
        """The policy that a row of the log tells of, or anything else with these attributes."""
        return cls(**{f.name: getattr(row, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class VersionedPolicy:
    """A policy and the row of the log's `policies` table that it came from. Version 0 is the built-in default."""

    version: int
    policy: Policy
