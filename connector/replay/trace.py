"""Traces of real services: Mooncake's and Qwen-Bailian's JSON lines, plain or gzipped. Pure.

A hash id stands for one block of a prompt's content (512 tokens in Mooncake's traces, 16 in Qwen-Bailian's) together
with all that comes before it. Here it becomes one block of the engine, and lengths are scaled with it, so a trace of
long prompts plays with every hit and miss in its place and with a fraction of the tokens.
"""

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from connector.replay.errors import ReplayError
from connector.replay.traffic import Agenda, Longest, Play

MOONCAKE_BLOCK = 512
QWEN_BLOCK = 16
MOONCAKE_TICK = 1e-3
QWEN_TICK = 1.0
GZIP_MAGIC = b"\x1f\x8b"
STRIDE = 1 << 32
ANSWERS = 1 << 62
"""Tokens from here on are answers, so none is like a token of a prompt."""
OWN = 1 << 61
"""Tokens from here on belong to one prompt alone: what lies behind its last hash id."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line. Lengths in the trace's own tokens."""

    line: int
    at_seconds: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as it was read. `block_tokens`: what one hash id stands for."""

    path: Path
    rows: tuple[Row, ...]
    block_tokens: int


def read(path: Path, *, limit: int | None = None, block_tokens: int | None = None) -> Trace:
    """Read a trace.

    Args:
        limit: how many requests, from the first on; None: all.
        block_tokens: how many tokens a hash id stands for; None: by the format, which the first line shows.

    Raises:
        ReplayError: it cannot be read, or a line is not what the format wants; the message names the line.
    """
    rows: list[Row] = []
    tick = MOONCAKE_TICK
    for number, text in _lines(path):
        if not text.strip():
            continue
        record = _record(path, number, text)
        if not rows:
            is_qwen = "chat_id" in record or "parent_chat_id" in record
            tick = QWEN_TICK if is_qwen else MOONCAKE_TICK
            block_tokens = block_tokens or (QWEN_BLOCK if is_qwen else MOONCAKE_BLOCK)
        assert block_tokens is not None
        rows.append(_row(path, number, record, block_tokens, tick))
        if limit is not None and len(rows) >= limit:
            break
    if not rows or block_tokens is None:
        raise ReplayError(f"{path} has no requests")
    return Trace(path, tuple(rows), block_tokens)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == GZIP_MAGIC
        if path.suffix == ".gz" and not is_gzip:
            raise ReplayError(f"{path} is not gzip, though its name ends in .gz")
        with gzip.open(path, "rb") if is_gzip else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield number, line.decode()
                except UnicodeDecodeError as e:
                    raise ReplayError(f"{path}, line {number}: not UTF-8") from e
    except (EOFError, gzip.BadGzipFile, zlib.error) as e:
        raise ReplayError(f"{path} is not a whole gzip file: {e}") from e
    except OSError as e:
        raise ReplayError(f"cannot read {path}: {e.strerror or e}") from e


def _record(path: Path, number: int, text: str) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise ReplayError(f"{path}, line {number}: not JSON: {e}") from e
    if not isinstance(record, dict):
        raise ReplayError(f"{path}, line {number}: wants a JSON object, not {_shown(record)}")
    return cast(dict[str, Any], record)


def _row(path: Path, number: int, record: dict[str, Any], block_tokens: int, tick: float) -> Row:
    def fail(message: str) -> ReplayError:
        return ReplayError(f"{path}, line {number}: {message}")

    def need(name: str) -> Any:
        if name not in record:
            raise fail(f"{name} is missing")
        return record[name]

    def whole(name: str, least: int) -> int:
        value = need(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise fail(f"{name} must be a whole number from {least} on, not {_shown(value)}")
        return value

    at = need("timestamp")
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at) or at < 0:
        raise fail(f"timestamp must be a number from 0 on, not {_shown(at)}")
    input_length = whole("input_length", 1)
    output_length = whole("output_length", 0)
    raw_ids = need("hash_ids")
    if not isinstance(raw_ids, list):
        raise fail(f"hash_ids must be a list, not {_shown(raw_ids)}")
    ids = cast(list[Any], raw_ids)
    for value in ids:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 28:
            raise fail(f"hash_ids must be whole numbers from 0 to {(1 << 28) - 1}, and has {_shown(value)}")
    # The last block may be partial; a trace may leave its id out.
    fitting = {-(-input_length // block_tokens), input_length // block_tokens}
    if len(ids) not in fitting:
        wanted = " or ".join(map(str, sorted(fitting)))
        raise fail(
            f"input_length {input_length} is {wanted} blocks of {block_tokens} tokens, but hash_ids has {len(ids)}; "
            "--trace-block-tokens says what one stands for"
        )
    return Row(number, at * tick, input_length, output_length, tuple(ids))


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class TraceTraffic:
    """A trace's requests, each at its time. `block_size`: the engine's, in tokens."""

    has_agents = False
    open_streams: frozenset[str] = frozenset()

    def __init__(self, trace: Trace, block_size: int) -> None:
        self._rows = trace.rows
        self._scale = block_size / trace.block_tokens
        self._block_size = block_size
        self._path = trace.path
        self._agenda = Agenda()
        begin = min(row.at_seconds for row in trace.rows)
        for n, row in enumerate(trace.rows):
            self._agenda.note(row.at_seconds - begin, partial(self._play, n, row))

    def _lengths(self, row: Row) -> tuple[int, int]:
        """Prompt and answer in the engine's tokens: a part of a block stays a part of a block."""
        return math.ceil(row.input_length * self._scale), max(1, math.ceil(row.output_length * self._scale))

    def _play(self, n: int, row: Row, at_seconds: float) -> Play:
        length, num_output = self._lengths(row)
        tokens = [number * self._block_size + i for number in row.hash_ids for i in range(self._block_size)]
        del tokens[length:]
        tokens += range(OWN + n * STRIDE, OWN + n * STRIDE + length - len(tokens))
        return Play("trace", n, tokens, num_output, ANSWERS + n * STRIDE, at_seconds)

    def next_at(self) -> float | None:
        return self._agenda.next_at()

    def take(self, now: float) -> list[Play]:
        return list(self._agenda.due(now))

    def answered(self, play: Play, now: float) -> None:
        """Nobody waits for an answer here: the trace says when the next request arrives."""

    @property
    def num_requests(self) -> int:
        return len(self._rows)

    @property
    def longest(self) -> Longest:
        row = max(self._rows, key=lambda r: sum(self._lengths(r)))
        return Longest(*self._lengths(row), f"{self._path}, line {row.line}")

    @property
    def num_blocks_hint(self) -> int:
        lengths = [self._lengths(row) for row in self._rows]
        distinct = len({number for row in self._rows for number in row.hash_ids})
        return distinct + sum(-(-output // self._block_size) + 1 for _, output in lengths)
