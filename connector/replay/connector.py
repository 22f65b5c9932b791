"""Our connector as a replay loads it: the policy is given, time is virtual, and a log is written only where asked.

`kv_connector_extra_config` takes, beside the stock keys, `replay`: a `Tape`. That is an object, which no configuration
file could carry: nobody but a replay makes one.
"""

import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import URL

from connector import log
from connector.engine_row import EngineInfo
from connector.events import Fault, Item, StepTaken
from connector.kv_connector import ReStoreConnector
from connector.policy import Policy, VersionedPolicy
from connector.recorder import CLOSE_SECONDS, Pen, Recorder
from connector.replay.clock import VirtualClock

FULL_QUEUE_SECONDS = 0.005


@dataclass(slots=True)
class Tape:
    """What a replayed scheduler half gets, and what it leaves behind.

    Attributes:
        url: a log that exists, or None: nothing is logged.
        num_restored, num_evicted: blocks, summed over the steps.
        num_faults: how often our code failed; vLLM went on as stock.
        is_log_whole: False where something that happened is not in the log.
    """

    policy: Policy
    clock: VirtualClock
    url: URL | None = None
    num_restored: int = 0
    num_evicted: int = 0
    num_faults: int = 0
    is_log_whole: bool = True

    def open(self, info: EngineInfo) -> Pen:
        """The recorder. The policy becomes the log's newest, so that what holds can be read there too."""
        if self.url is None:
            return SilentRecorder(self)
        writer = log.open_policy_writer(self.url)
        try:
            log.write_policy(writer, self.policy.as_dict(), "replay", wall_ns=self.clock.wall_ns())
        finally:
            writer.dispose()
        return LoggingRecorder(self, self.url, info)

    def hear(self, event: Item) -> None:
        self.num_faults += isinstance(event, Fault)

    def note(self, taken: StepTaken) -> None:
        self.num_restored += taken.num_restored
        self.num_evicted += taken.num_evicted


class SilentRecorder:
    """A recorder without a log: it counts steps, holds the policy, and keeps nothing."""

    num_dropped = 0
    num_gaps = 0

    def __init__(self, tape: Tape) -> None:
        self.clock = tape.clock
        self.policy = self.applied = VersionedPolicy(0, tape.policy)
        self.step = 0
        self.num_unfinished = 0
        self._tape = tape

    def begin_step(self) -> tuple[int, VersionedPolicy]:
        self.step += 1
        return self.step, self.policy

    def record(self, event: Item) -> bool:
        self._tape.hear(event)
        return True

    def end_step(self, taken: StepTaken) -> bool:
        self._tape.note(taken)
        return True

    def close(self) -> bool:
        return True


class LoggingRecorder(Recorder):
    """The engine's own recorder on the virtual clock. A replay outruns any disk and has time: it waits instead of
    dropping."""

    def __init__(self, tape: Tape, url: URL, info: EngineInfo) -> None:
        self._tape = tape
        super().__init__(url, info, clock=tape.clock)

    def record(self, event: Item) -> bool:
        self._tape.hear(event)
        self._await_room()
        return super().record(event)

    def end_step(self, taken: StepTaken) -> bool:
        self._tape.note(taken)
        self._await_room()
        return super().end_step(taken)

    def _await_room(self) -> None:
        # What an overflow would be said with needs a place too. A disk that fails is not waited for.
        while len(self._queue) >= self._capacity - 1 and not self.num_write_failures:
            time.sleep(FULL_QUEUE_SECONDS)

    def close(self, timeout: float = CLOSE_SECONDS) -> bool:
        is_flushed = super().close(timeout)
        self._tape.is_log_whole = is_flushed and not self.num_dropped
        return is_flushed


class ReplayConnector(ReStoreConnector):
    """`ReStoreConnector`, but for where its recorder comes from."""

    def _open_recorder(self, extra: dict[str, Any], info: EngineInfo) -> Pen:
        return extra["replay"].open(info)
