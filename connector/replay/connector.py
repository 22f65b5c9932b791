"""Our connector as a replay loads it: the policy is given, time is virtual, and a log is written only where asked.

`kv_connector_extra_config` takes, beside the stock keys, `replay`: a `Tape`. It is an object, which no configuration
file could carry: nobody but a replay makes one.
"""

from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import URL

from connector.clock import Clock
from connector.engine_row import EngineInfo
from connector.events import ChainExtended, Event, StepTaken
from connector.kv_connector import ReStoreConnector
from connector.policy import Policy, VersionedPolicy
from connector.recorder import Recorder


@dataclass(slots=True)
class Tape:
    """What a replayed scheduler half gets, and what it leaves behind.

    Attributes:
        url: a log that exists and whose newest policy is `policy`, or None: nothing is logged.
        num_restored, num_evicted: blocks, summed over the steps.
    """

    policy: Policy
    clock: Clock
    url: URL | None = None
    num_restored: int = 0
    num_evicted: int = 0
    num_faults: int = field(default=0)

    def note(self, taken: StepTaken) -> None:
        self.num_restored += taken.num_restored
        self.num_evicted += taken.num_evicted


class SilentRecorder:
    """A recorder without a log: it counts steps, holds the policy, and keeps nothing."""

    num_dropped = 0
    num_gaps = 0
    is_checkpointer = False

    def __init__(self, tape: Tape) -> None:
        self.clock = tape.clock
        self.policy = self.applied = VersionedPolicy(0, tape.policy)
        self.step = 0
        self.num_unfinished = 0
        self._tape = tape

    def begin_step(self) -> tuple[int, VersionedPolicy]:
        self.step += 1
        return self.step, self.policy

    def record(self, event: Event | ChainExtended) -> bool:
        return True

    def end_step(self, taken: StepTaken) -> bool:
        self._tape.note(taken)
        return True

    def close(self, timeout: float = 0.0) -> bool:
        return True


class ReplayConnector(ReStoreConnector):
    """`ReStoreConnector`, but for where its recorder comes from."""

    def _open_recorder(self, extra: dict[str, Any], info: EngineInfo) -> Recorder:
        return SilentRecorder(extra["replay"])  # type: ignore[return-value]
