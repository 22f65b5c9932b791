"""Traces as they are read: what a line becomes in the engine's blocks, and what is said of a line that is wrong."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connector.replay.errors import ReplayError
from connector.replay.trace import TraceTraffic, read

MOONCAKE = {"timestamp": 1500, "input_length": 1030, "output_length": 70, "hash_ids": [7, 8, 9]}
QWEN = {
    "chat_id": 5, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 33, "output_length": 9, "type": "text",
    "turn": 1, "hash_ids": [7, 8, 9],
}  # fmt: skip
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write records (or lines of text) as a trace."""

    def make(*lines: dict[str, Any] | str, name: str = "trace.jsonl") -> Path:
        path = tmp_path / name
        text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return make


def test_mooncake_hash_id_becomes_one_block_and_lengths_scale_with_it(write: Write) -> None:
    traffic = TraceTraffic(read(write(MOONCAKE | {"timestamp": 0}, MOONCAKE)), block_size=16)
    assert traffic.next_at() == 0.0
    assert len(traffic.take(1.4)) == 1
    (play,) = traffic.take(1.5)
    # 1,030 tokens are two blocks of 512 and 6 tokens: two blocks of 16 and a part of one. 70 / 32 = 2.2 tokens.
    assert len(play.tokens) == 33
    assert play.num_output_tokens == 3
    assert play.tokens == [*range(7 * 16, 8 * 16), *range(8 * 16, 9 * 16), 9 * 16]


def test_qwen_bailian_counts_seconds_and_blocks_of_16(write: Write) -> None:
    trace = read(write(QWEN | {"timestamp": 0.25}, QWEN))
    assert trace.block_tokens == 16
    traffic = TraceTraffic(trace, block_size=16)
    assert len(traffic.take(1.2)) == 1
    (play,) = traffic.take(1.25)
    assert (len(play.tokens), play.num_output_tokens) == (33, 9)


def test_what_a_hash_id_stands_for_can_be_said(write: Write) -> None:
    trace = read(write(MOONCAKE | {"input_length": 17, "hash_ids": [1, 2, 3, 4, 5]}), block_tokens=4)
    (play,) = TraceTraffic(trace, block_size=16).take(0)
    assert len(play.tokens) == 17 * 4


def test_tail_without_a_hash_id_is_content_of_its_own(write: Write) -> None:
    line = MOONCAKE | {"hash_ids": [7, 8]}
    first, second = TraceTraffic(read(write(line, line)), block_size=16).take(0)
    assert first.tokens[:32] == second.tokens[:32]
    assert first.tokens[32] != second.tokens[32]


def test_gzip_is_read_by_what_it_is_and_the_first_lines_suffice(write: Write) -> None:
    path = write(MOONCAKE, "", MOONCAKE, "no JSON", name="trace.jsonl.gz")
    assert [row.line for row in read(path, limit=2).rows] == [1, 3]
    renamed = path.rename(path.with_name("trace.jsonl"))
    assert len(read(renamed, limit=2).rows) == 2


def test_longest_request_is_named_by_its_line(write: Write) -> None:
    long = MOONCAKE | {"input_length": 2048, "output_length": 1, "hash_ids": [1, 2, 3, 4]}
    longest = TraceTraffic(read(write(MOONCAKE, long, MOONCAKE)), block_size=16).longest
    assert (longest.num_prompt_tokens, longest.num_output_tokens) == (64, 1)
    assert longest.where.endswith("trace.jsonl, line 2")


WRONG = {
    "half a line": ('{"timestamp": 0,', "not JSON"),
    "a list": ("[1]", "wants a JSON object"),
    "deep nesting": ("[" * 100_000, "not JSON"),
    "no timestamp": ({"timestamp": None}, "timestamp must be a number from 0 on, not None"),
    "a negative timestamp": ({"timestamp": -1}, "timestamp must be a number from 0 on, not -1"),
    "an endless timestamp": ('{"timestamp": Infinity, "input_length": 1, "output_length": 1, "hash_ids": [1]}', "inf"),
    "a length in words": ({"input_length": "12"}, "input_length must be a whole number from 1 on, not '12'"),
    "a length of true": ({"output_length": True}, "output_length must be a whole number from 0 on, not True"),
    "half a token": ({"input_length": 1030.5}, "input_length must be a whole number from 1 on, not 1030.5"),
    "an empty prompt": ({"input_length": 0}, "input_length must be a whole number from 1 on, not 0"),
    "a negative answer": ({"output_length": -3}, "output_length must be a whole number from 0 on, not -3"),
    "ids in words": ({"hash_ids": "7,8,9"}, "hash_ids must be a list"),
    "an id in words": ({"hash_ids": [7, "8", 9]}, "and has '8'"),
    "a negative id": ({"hash_ids": [7, -8, 9]}, "and has -8"),
    "an id too large for a token": ({"hash_ids": [7, 2**70, 9]}, f"and has {2**70}"),
    "too few ids": ({"hash_ids": [7]}, "input_length 1030 is 2 or 3 blocks of 512 tokens, but hash_ids has 1"),
    "too many ids": ({"hash_ids": [7, 8, 9, 10]}, "but hash_ids has 4"),
}


@pytest.mark.parametrize(("line", "said"), WRONG.values(), ids=WRONG)
def test_wrong_line_is_named_with_what_is_wrong(write: Write, line: dict[str, Any] | str, said: str) -> None:
    wrong = line if isinstance(line, str) else MOONCAKE | line
    path = write(MOONCAKE, MOONCAKE, wrong)
    with pytest.raises(ReplayError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 3: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("field", ["timestamp", "input_length", "output_length", "hash_ids"])
def test_missing_field_is_named(write: Write, field: str) -> None:
    path = write(MOONCAKE, {k: v for k, v in MOONCAKE.items() if k != field})
    with pytest.raises(ReplayError, match=f"line 2: {field} is missing"):
        read(path)


def test_file_that_is_no_trace_is_said_to_be_none(write: Write, tmp_path: Path) -> None:
    whole = gzip.compress(json.dumps(MOONCAKE).encode() * 100)
    files = {
        "absent.jsonl": (None, "cannot read"),
        "empty.jsonl": (b"", "has no requests"),
        "blank.jsonl": (b"\n  \n", "has no requests"),
        "plain.jsonl.gz": (json.dumps(MOONCAKE).encode(), "is not gzip"),
        "half.jsonl.gz": (whole[: len(whole) // 2], "is not a whole gzip file"),
        "binary.jsonl": (b"\xff\xfe\n", "line 1: not UTF-8"),
    }
    for name, (content, said) in files.items():
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ReplayError, match=said) as caught:
            read(path)
        assert str(path) in str(caught.value)
    with pytest.raises(ReplayError, match="cannot read"):
        read(tmp_path)
