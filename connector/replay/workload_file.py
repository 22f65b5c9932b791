"""Reads and checks a file of workloads in the shape of `workloads.json`. Pure."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from connector.replay.chat import AgentsSpec, ChatSpec, ClosedLoop, agents, chats
from connector.replay.errors import ReplayError

CHAT_NUMBERS = ("system_len", "first_len", "user_len", "output_len", "think_seconds")
AGENT_NUMBERS = ("prompt", "observation", "output", "tool_seconds", "pollution_len")


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The engine that plays. `copy_steps`: after how many further steps a copy is over."""

    block_size: int = 16
    max_num_batched_tokens: int = 1024
    max_num_seqs: int = 64
    step_seconds: float = 0.02
    prefill_tokens_per_second: float = 20_000.0
    copy_steps: int = 1


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload of a file, with the sizes it was made for: blocks, vLLM's null block included."""

    name: str
    spec: ChatSpec | AgentsSpec
    gpu_blocks: int
    cpu_blocks: int
    engine: EngineSpec

    def traffic(self, seed: int) -> ClosedLoop:
        """Its clients, from the beginning."""
        if isinstance(self.spec, ChatSpec):
            return chats(self.spec, seed, self.engine.block_size)
        return agents(self.spec, seed, self.engine.block_size)


def read(reference: str) -> Workload:
    """Read the workload that `FILE#name` names.

    Raises:
        ReplayError: there is no such file or no such workload, or it is not what the shape wants.
    """
    path, _, name = reference.rpartition("#")
    if not path or not name:
        raise ReplayError(f"--workload wants FILE#name, not {reference!r}")
    try:
        content = json.loads(Path(path).read_text())
    except OSError as e:
        raise ReplayError(f"cannot read {path}: {e.strerror or e}") from e
    except (ValueError, RecursionError) as e:
        raise ReplayError(f"{path} is not JSON: {e}") from e
    file = _Fields(path, content)
    engine = _engine(file.part("engine")) if "engine" in file.values else EngineSpec()
    known: list[str] = []
    for kind, build in (("chat", _chat), ("agents", _agents)):
        if kind in file.values:
            part = file.part(kind)
            known += part.values
            if name in part.values:
                fields = part.part(name)
                gpu_blocks, cpu_blocks = fields.whole("gpu_blocks", 2), fields.whole("cpu_blocks", 2)
                return Workload(name, build(fields), gpu_blocks, cpu_blocks, engine)
    raise ReplayError(f"{path} has no workload {name!r}; it has {', '.join(map(str, known)) or 'none'}")


def _engine(fields: "_Fields") -> EngineSpec:
    d = EngineSpec()
    return EngineSpec(
        block_size=fields.whole("block_size", 1, d.block_size),
        max_num_batched_tokens=fields.whole("max_num_batched_tokens", 1, d.max_num_batched_tokens),
        max_num_seqs=fields.whole("max_num_seqs", 1, d.max_num_seqs),
        step_seconds=fields.number("step_seconds", d.step_seconds),
        prefill_tokens_per_second=fields.number("prefill_tokens_per_second", d.prefill_tokens_per_second),
        copy_steps=fields.whole("copy_steps", 0, d.copy_steps),
    )


def _chat(fields: "_Fields") -> ChatSpec:
    raw = fields.need("turns")
    turns = cast(list[Any], raw) if isinstance(raw, list) else []
    if len(turns) != 2:
        raise fields.fail(f"turns must be [least, most], not {raw!r:.60}")
    pair = _Fields(f"{fields.where}.turns", {"least": turns[0], "most": turns[1]})
    least, most = pair.whole("least", 1), pair.whole("most", 1)
    if least > most:
        raise fields.fail(f"turns must be [least, most], not {turns!r}")
    numbers = {n: fields.number(n) for n in CHAT_NUMBERS[1:]}
    return ChatSpec(
        active=fields.whole("active", 1),
        total=fields.whole("total", 1),
        turns=(least, most),
        system_len=fields.whole("system_len", 0),
        **numbers,
    )


def _agents(fields: "_Fields") -> AgentsSpec:
    numbers = {n: fields.number(n) for n in AGENT_NUMBERS}
    return AgentsSpec(
        agents=fields.whole("agents", 1),
        turns=fields.whole("turns", 1),
        pollution_per_second=fields.number("pollution_per_second", may_be_zero=True),
        **numbers,
    )


class _Fields:
    """One object of the file. `where` names it to a person."""

    def __init__(self, where: str, values: object) -> None:
        self.where = where
        if not isinstance(values, dict):
            raise self.fail(f"wants a JSON object, not {values!r:.60}")
        self.values = cast(dict[str, Any], values)

    def fail(self, message: str) -> ReplayError:
        return ReplayError(f"{self.where}: {message}")

    def need(self, name: str) -> Any:
        if name not in self.values:
            raise self.fail(f"{name} is missing")
        return self.values[name]

    def part(self, name: str) -> "_Fields":
        sign = "." if "#" in self.where else "#"
        return _Fields(f"{self.where}{sign}{name}", self.need(name))

    def whole(self, name: str, least: int, default: int | None = None) -> int:
        value = self.need(name) if default is None else self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.fail(f"{name} must be a whole number from {least} on, not {value!r:.60}")
        return value

    def number(self, name: str, default: float | None = None, *, may_be_zero: bool = False) -> float:
        value = self.need(name) if default is None else self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(f"{name} must be a number, not {value!r:.60}")
        if value < 0 or (value == 0 and not may_be_zero):
            raise self.fail(f"{name} must be more than 0, not {value!r}")
        return float(value)
