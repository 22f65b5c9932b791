"""What can be put right about a `bench` that was asked for is one line, before any server is started or asked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from app.bench.command import Wanted, plan
from app.cli import main

CHAT = {
    "gpu_blocks": 40, "cpu_blocks": 60, "active": 2, "total": 2, "turns": [1, 2], "system_len": 8, "first_len": 20,
    "user_len": 8, "output_len": 4, "think_seconds": 1,
}  # fmt: skip


class Done(NamedTuple):
    returncode: int
    stderr: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        return Done(main(arguments), capsys.readouterr().err)

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policies", "stock,sotck"], "'sotck'"),
        (["--policies", ","], "stock, off, tracked"),
        (["--policies", "off,off"], "twice"),
        (["--policies", "native-lru"], "'native-lru'"),
        (["--workload", "nothing"], "has no workload 'nothing'"),
        (["--workload", "none.json#a"], "none.json"),
        (["--stock-url", "http://127.0.0.1:1"], "--url"),
        (["--url", "http://127.0.0.1:1", "--policies", "stock,off"], "--stock-url"),
        (["--url", "http://127.0.0.1:1", "--policies", "off"], "no vLLM server at http://127.0.0.1:1"),
    ],
)
def test_a_mistake_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    done = run("bench", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("vllm-restore: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_a_conversation_that_cannot_fit_is_told_before_a_server_starts(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "w.json"
    file.write_text(json.dumps({"chat": {"long": {**CHAT, "first_len": 40_000}}}))
    done = run("bench", "--workload", f"{file}#long")
    assert done.returncode == 2
    assert "gpu_blocks hold 624" in done.stderr


def test_results_that_could_not_be_written_are_told_before_the_work(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    done = run("bench", "--out", str(tmp_path / "taken"))
    assert done.returncode == 2
    assert f"cannot write to {tmp_path / 'taken'}" in done.stderr


@pytest.mark.parametrize("name", ["chats", "agents", "load"])
def test_the_shipped_workloads_fit_the_servers_that_the_bench_starts(name: str) -> None:
    planned = plan(Wanted(name, "stock,adaptive", 1, 1, Path()))
    assert planned.clients.num_requests > 0
