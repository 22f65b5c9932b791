"""What can be replayed: a name, and how vLLM's connector is configured for it.

To add a policy of the connector's own, add one `OurPolicy` to `POLICIES`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vllm.config import KVTransferConfig

from connector.policy import Policy
from connector.replay.connector import ReplayConnector, Tape
from connector.replay.errors import ReplayError


@dataclass(frozen=True, slots=True)
class Contestant:
    """One policy that can be replayed.

    Attributes:
        name: as `--policies` takes it.
        what: in a few words.
        connector: the class that vLLM loads, by name.
        ours: the policy that our connector obeys; None where vLLM's own class runs.
        extra: further keys of the connector's configuration.
        is_unlimited: the CPU tier gets as many blocks as are needed for nothing to be evicted.
        is_bound: not played: computed from what another run asked for.
    """

    name: str
    what: str
    connector: str = ""
    ours: Policy | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    is_unlimited: bool = False
    is_bound: bool = False

    def transfer(self, cpu_bytes: int, tape: Callable[[Policy], Tape]) -> KVTransferConfig:
        """vLLM's configuration of the connector, with a CPU tier of so many bytes."""
        settings: dict[str, Any] = {"cpu_bytes_to_use": cpu_bytes, "cpu_bytes_to_use_per_rank": cpu_bytes, **self.extra}
        module = None
        if self.ours is not None:
            settings["replay"] = tape(self.ours)
            module = ReplayConnector.__module__
        return KVTransferConfig(
            kv_connector=self.connector,
            kv_connector_module_path=module,
            kv_role="kv_both",
            kv_connector_extra_config=settings,
        )


def _own(name: str, what: str, policy: Policy, *, is_unlimited: bool = False) -> Contestant:
    return Contestant(name, what, ReplayConnector.__name__, ours=policy, is_unlimited=is_unlimited)


STOCK = "stock"
UNLIMITED = "unlimited"
BELADY = "belady"

_ALL = (
    Contestant(STOCK, "vLLM's SimpleCPUOffloadConnector", "SimpleCPUOffloadConnector"),
    _own("off", "our connector with re-store off", Policy(enabled=False)),
    _own("rescan", "re-store, every stored block looked at in every step", Policy(mode="rescan")),
    _own("tracked", "re-store of blocks whose eviction was seen", Policy(mode="tracked")),
    _own(UNLIMITED, "re-store off, and a CPU tier that never evicts", Policy(enabled=False), is_unlimited=True),
)
POLICIES: dict[str, Contestant] = {c.name: c for c in _ALL}


def named(names: str) -> list[Contestant]:
    """The policies of a list with commas.

    Raises:
        ReplayError: an unknown name, one that is there twice, or none.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in POLICIES]:
        raise ReplayError(f"unknown policy {', '.join(map(repr, unknown))}; known are {', '.join(POLICIES)}")
    if not wanted:
        raise ReplayError(f"--policies names none; known are {', '.join(POLICIES)}")
    return [POLICIES[name] for name in dict.fromkeys(wanted)]
