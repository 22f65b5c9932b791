"""What can be replayed: a name, and how vLLM's connector is configured for it. Pure until one is played.

To add a policy of the connector's own, add one `_ours` to `_ALL`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector.policy import Policy
from connector.replay.errors import ReplayError

if TYPE_CHECKING:
    from vllm.config import KVTransferConfig

    from connector.replay.connector import Tape

OURS = "ReplayConnector"
OUR_MODULE = "connector.replay.connector"
PROPOSALS = "connector.replay.proposals"
SIMPLE = "SimpleCPUOffloadConnector"
NATIVE = "OffloadingConnector"


@dataclass(frozen=True, slots=True)
class Contestant:
    """One policy that can be replayed.

    Attributes:
        name: as `--policies` takes it.
        what: in a few words, for a person.
        connector: the class that vLLM loads, by name; empty for a bound, which is not played but computed from what
            another run asked for.
        ours: the policy that our connector obeys; None where a class of vLLM's own runs.
        module: where the class is, unless vLLM knows it by its name.
        extra: further keys of the connector's configuration.
        is_unlimited: the CPU tier gets as many blocks as are needed for nothing to be evicted.
    """

    name: str
    what: str
    connector: str = ""
    ours: Policy | None = None
    module: str | None = None
    extra: dict[str, Any] = field(default_factory=dict[str, Any])
    is_unlimited: bool = False

    @property
    def is_bound(self) -> bool:
        return not self.connector

    def transfer(self, cpu_blocks: int, block_bytes: int, make_tape: "Callable[[Policy], Tape]") -> "KVTransferConfig":
        """vLLM's configuration of the connector. `cpu_blocks`: vLLM's null block included."""
        from vllm.config import KVTransferConfig

        # The native connector has no null block: as many blocks that hold something.
        num_bytes = block_bytes * (cpu_blocks - 1 if self.connector == NATIVE else cpu_blocks)
        settings: dict[str, Any] = {"cpu_bytes_to_use": num_bytes, "cpu_bytes_to_use_per_rank": num_bytes, **self.extra}
        if self.ours is not None:
            settings["replay"] = make_tape(self.ours)
        return KVTransferConfig(
            kv_connector=self.connector,
            kv_connector_module_path=self.module,
            kv_role="kv_both",
            kv_connector_extra_config=settings,
        )


def _ours(name: str, what: str, policy: Policy, *, is_unlimited: bool = False) -> Contestant:
    return Contestant(name, what, OURS, ours=policy, module=OUR_MODULE, is_unlimited=is_unlimited)


_ALL = (
    STOCK := Contestant("stock", "vLLM's SimpleCPUOffloadConnector, unchanged", SIMPLE),
    _ours("off", "our connector with re-store off", Policy(enabled=False)),
    _ours("rescan", "re-store; every stored block is looked at in every step", Policy(mode="rescan")),
    _ours("tracked", "re-store of blocks whose eviction was seen", Policy(mode="tracked")),
    _ours("adaptive", "retention by chains, with re-store", Policy(retention="adaptive")),
    _ours("adaptive-off", "retention by chains, without re-store", Policy(enabled=False, retention="adaptive")),
    Contestant("refresh", "stock, and what is passed again counts as used", "RefreshConnector", module=PROPOSALS),
    Contestant("pin", "stock, and what running requests own stays", "PinConnector", module=PROPOSALS),
    Contestant("native-lru", "vLLM's OffloadingConnector, LRU", NATIVE, extra={"eviction_policy": "lru"}),
    Contestant("native-arc", "vLLM's OffloadingConnector, ARC", NATIVE, extra={"eviction_policy": "arc"}),
    _ours("unlimited", "a CPU tier that never has to evict", Policy(enabled=False), is_unlimited=True),
    Contestant("belady", "no policy can do better: it knows the future"),
)
POLICIES: dict[str, Contestant] = {c.name: c for c in _ALL}


def named(names: str) -> list[Contestant]:
    """The policies of a list with commas, each once.

    Raises:
        ReplayError: an unknown name, or none.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in POLICIES]:
        raise ReplayError(f"unknown policy {', '.join(map(repr, unknown))}; known are {', '.join(POLICIES)}")
    if not wanted:
        raise ReplayError(f"--policies names none; known are {', '.join(POLICIES)}")
    return [POLICIES[name] for name in dict.fromkeys(wanted)]
