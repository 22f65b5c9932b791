"""Closed-loop workloads: drawn as `workloads.json` says, the same whatever the engine does."""

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from connector.replay.chat import POLLUTION, ClosedLoop
from connector.replay.errors import ReplayError
from connector.replay.traffic import Play
from connector.replay.workload_file import read

CHAT = {
    "gpu_blocks": 100, "cpu_blocks": 50, "active": 3, "total": 7, "turns": [2, 4], "system_len": 32, "first_len": 60,
    "user_len": 20, "output_len": 10, "think_seconds": 2,
}  # fmt: skip
AGENTS = {
    "gpu_blocks": 100, "cpu_blocks": 50, "agents": 3, "turns": 4, "prompt": 100, "observation": 20, "output": 20,
    "tool_seconds": 2, "pollution_len": 200, "pollution_per_second": 2.0,
}  # fmt: skip
FILE = {"engine": {"block_size": 16, "copy_steps": 2}, "chat": {"small": CHAT}, "agents": {"few": AGENTS}}
Write = Callable[[Any], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: Any) -> Path:
        path = tmp_path / "workloads.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return make


def play_out(traffic: ClosedLoop, seconds_an_answer: float) -> list[Play]:
    """Every request, each answered so long after it arrived."""
    plays: list[Play] = []
    busy: list[tuple[float, int]] = []
    while True:
        at, ends = traffic.next_at(), min(busy, default=None)
        if at is None and ends is None:
            return plays
        if ends is not None and (at is None or ends[0] <= at):
            busy.remove(ends)
            traffic.answered(plays[ends[1]], ends[0])
            continue
        assert at is not None
        for play in traffic.take(at):
            busy.append((at + seconds_an_answer, len(plays)))
            plays.append(play)


def by_stream(plays: list[Play]) -> dict[str, list[Play]]:
    streams: dict[str, list[Play]] = {}
    for play in plays:
        streams.setdefault(play.stream, []).append(play)
    return streams


def test_conversation_extends_what_was_said_and_answered_before(write: Write) -> None:
    plays = play_out(read(f"{write(FILE)}#small").traffic(1), 1.0)
    streams = by_stream(plays)
    assert len(streams) == 7
    assert len({tuple(s[0].tokens[:32]) for s in streams.values()}) <= 4, "4 system prompts are shared"
    for turns in streams.values():
        assert 2 <= len(turns) <= 4
        for before, after in pairwise(turns):
            length = len(before.tokens)
            said = before.tokens + [before.answer_base + length + i for i in range(before.num_output_tokens)]
            assert after.tokens[: len(said)] == said
            assert len(after.tokens) - len(said) >= 4
            assert after.at_seconds > before.at_seconds + 1.0
    assert len({(len(s), len(s[0].tokens), s[0].num_output_tokens) for s in streams.values()}) == 7, (
        "each draws its own"
    )
    ends = [turn for turns in streams.values() for turn in turns[0].tokens[32:]]
    assert len(ends) == len(set(ends)), "nothing behind the system prompt is shared"


def test_so_many_talk_at_a_time_and_the_next_begins_when_one_ends(write: Write) -> None:
    streams = by_stream(play_out(read(f"{write(FILE)}#small").traffic(1), 1.0))
    begins = {name: turns[0].at_seconds for name, turns in streams.items()}
    assert len({(len(s), len(s[0].tokens), s[0].num_output_tokens) for s in streams.values()}) == 7, (
        "each draws its own"
    )
    ends = [turns[-1].at_seconds + 1.0 for turns in streams.values()]
    assert sorted(begins.values())[:3] == [0.0, 0.0, 0.0]
    assert sorted(b for b in begins.values() if b) == sorted(ends)[:4]


@pytest.mark.parametrize("name", ["small", "few"])
def test_work_is_the_same_however_fast_the_engine_is(write: Write, name: str) -> None:
    workload = read(f"{write(FILE)}#{name}")

    def content(seconds: float, seed: int = 3) -> dict[str, list[tuple[list[int], int]]]:
        streams = by_stream(play_out(workload.traffic(seed), seconds))
        return {s: [(p.tokens, p.num_output_tokens) for p in plays] for s, plays in streams.items()}

    fast, slow = content(0.1), content(9.0)
    for stream in fast.keys() | slow.keys():
        shorter = min(len(fast[stream]), len(slow[stream]))
        assert fast[stream][:shorter] == slow[stream][:shorter]
        assert stream == POLLUTION or len(fast[stream]) == len(slow[stream])
    assert content(0.1, seed=4) != fast


def test_conversation_draws_from_a_generator_of_its_own(write: Write) -> None:
    few = by_stream(play_out(read(f"{write(FILE)}#small").traffic(1), 1.0))
    more = copy.deepcopy(FILE)
    more["chat"]["small"] |= {"total": 9, "active": 2}  # type: ignore[index]
    many = by_stream(play_out(read(f"{write(more)}#small").traffic(1), 0.3))
    for name, turns in few.items():
        assert [(p.tokens, p.num_output_tokens) for p in turns] == [(p.tokens, p.num_output_tokens) for p in many[name]]


def test_agents_run_among_prompts_that_end_with_them(write: Write) -> None:
    traffic = read(f"{write(FILE)}#few").traffic(1)
    assert traffic.has_agents
    streams = by_stream(play_out(traffic, 1.0))
    others = streams.pop(POLLUTION)
    assert sorted(streams) == ["agent0", "agent1", "agent2"]
    assert all(len(turns) == 4 and all(p.is_agent for p in turns) for turns in streams.values())
    end = max(turns[-1].at_seconds for turns in streams.values()) + 1.0
    # Twice a second, give or take four standard deviations.
    assert abs(len(others) - 2 * end) < 4 * (2 * end) ** 0.5
    assert max(p.at_seconds for p in others) <= end
    assert all(100 <= len(p.tokens) <= 300 and p.num_output_tokens == 2 for p in others)
    assert len({p.tokens[0] for p in others}) == len(others)


def test_no_other_prompt_comes_once_the_agents_have_ended(write: Write) -> None:
    traffic = read(f"{write(FILE)}#few").traffic(1)
    now = 0.0
    while (at := traffic.next_at()) is not None:
        now = at
        for play in traffic.take(now):
            traffic.answered(play, now)
    # Others are still being answered then, so an engine goes on asking what has arrived.
    assert traffic.take(now + 100) == []


def test_longest_and_number_of_requests_are_what_is_played(write: Write) -> None:
    traffic = read(f"{write(FILE)}#small").traffic(1)
    longest, count = traffic.longest, traffic.num_requests
    plays = play_out(traffic, 1.0)
    assert count == len(plays)
    assert longest.num_tokens == max(len(p.tokens) + p.num_output_tokens for p in plays)


def changed(path: list[Any], value: Any) -> Any:
    content = copy.deepcopy(FILE)
    place: Any = content
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return content


WRONG = {
    "not JSON": ("{", "is not JSON"),
    "a list": ([], "wants a JSON object"),
    "chat is a list": (changed(["chat"], []), "#chat: wants a JSON object"),
    "a workload is a number": (changed(["chat", "small"], 5), "#chat.small: wants a JSON object"),
    "missing": (changed(["chat", "small", "user_len"], None), "#chat.small: user_len is missing"),
    "no sizes": (changed(["chat", "small", "cpu_blocks"], None), "#chat.small: cpu_blocks is missing"),
    "in words": (changed(["chat", "small", "active"], "3"), "active must be a whole number from 1 on, not '3'"),
    "negative": (changed(["chat", "small", "think_seconds"], -1), "think_seconds must be more than 0, not -1"),
    "turns in reverse": (changed(["chat", "small", "turns"], [4, 2]), "turns must be [least, most], not [4, 2]"),
    "one turn": (changed(["chat", "small", "turns"], 4), "turns must be [least, most], not 4"),
    "engine without time": (changed(["engine", "step_seconds"], 0), "#engine: step_seconds must be more than 0"),
    "unknown": (changed(["chat", "small"], None), "has no workload 'small'; it has few"),
}


@pytest.mark.parametrize(("content", "said"), WRONG.values(), ids=WRONG)
def test_wrong_file_is_named_with_what_is_wrong(write: Write, content: Any, said: str) -> None:
    path = write(content)
    with pytest.raises(ReplayError) as caught:
        read(f"{path}#small")
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_file_and_name_are_both_wanted(tmp_path: Path) -> None:
    with pytest.raises(ReplayError, match="wants FILE#name"):
        read(str(tmp_path / "workloads.json"))
    with pytest.raises(ReplayError, match="cannot read"):
        read(f"{tmp_path / 'workloads.json'}#a")
