"""`vllm-restore replay` as a person meets it: what it prints, what it refuses, what it writes into a log."""

import gzip
import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest

from app.cli import main
from app.models import WhatIf
from app.whatif import play as play_log
from connector import log
from connector.replay.errors import ReplayError
from connector.replay.plan import Plan, Wanted, plan
from connector.replay.play import Replay
from connector.replay.policies import named
from connector.replay.trace import Row, Trace, TraceTraffic
from connector.replay.traffic import Traffic
from connector.replay.workload_file import EngineSpec

KEYS = [
    "policy", "hit_rate", "prompt_tokens", "prefill_tokens", "gpu_hit_tokens", "cpu_hit_tokens", "stores", "restores",
    "loads", "evictions", "preemptions", "steps", "virtual_seconds", "ttft_p50_s", "ttft_p99_s",
    "scheduler_us_per_step_p50",
]  # fmt: skip
CHAT = {
    "gpu_blocks": 60, "cpu_blocks": 40, "active": 5, "total": 6, "turns": [3, 4], "system_len": 32, "first_len": 60,
    "user_len": 30, "output_len": 20, "think_seconds": 1,
}  # fmt: skip
AGENTS = {
    "gpu_blocks": 45, "cpu_blocks": 30, "agents": 2, "turns": 3, "prompt": 100, "observation": 30, "output": 20,
    "tool_seconds": 1, "pollution_len": 200, "pollution_per_second": 1.0,
}  # fmt: skip
SHARED = Path(__file__).parents[4] / "shared"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        status = main(["replay", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 1000 * n, "input_length": 1025 + 512 * (n == 3), "output_length": 32, "hash_ids": [n % 2, 5, 6]}
        for n in range(6)
    ]
    lines[3]["hash_ids"] = [9, 10, 11, 12]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def workloads(tmp_path: Path) -> Path:
    path = tmp_path / "workloads.json"
    path.write_text(json.dumps({"chat": {"small": CHAT}, "agents": {"few": AGENTS}}))
    return path


def test_json_has_a_run_for_each_policy_and_nothing_else(run: Run, trace: Path) -> None:
    status, out, err = run(trace, "--cpu-blocks", 6, "--policies", "native-arc,stock,belady,stock", "--json")
    assert status == 0
    runs = json.loads(out)["runs"]
    assert json.loads(out).keys() == {"runs"}
    assert [r["policy"] for r in runs] == ["native-arc", "stock", "belady"]
    for r in runs:
        assert list(r) == KEYS
        # 5 prompts of 33 tokens (1,025 / 32) and one of 49.
        assert r["prompt_tokens"] == 5 * 33 + 49
        assert r["hit_rate"] == pytest.approx(1 - r["prefill_tokens"] / r["prompt_tokens"])
    assert {k for k in KEYS if runs[2][k] is None} == set(KEYS[4:])
    assert all(r["hit_rate"] <= runs[2]["hit_rate"] for r in runs)
    assert "every policy got the same work: " in err
    assert "Traceback" not in err


def test_agents_have_a_hit_rate_of_their_own(run: Run, workloads: Path) -> None:
    status, out, _ = run("--workload", f"{workloads}#few", "--policies", "stock,unlimited,belady", "--json")
    assert status == 0
    stock, unlimited, belady = json.loads(out)["runs"]
    assert list(stock) == [*KEYS, "agents_hit_rate"]
    assert stock["hit_rate"] < unlimited["hit_rate"] < unlimited["agents_hit_rate"]
    assert unlimited["evictions"] == 0
    assert belady["agents_hit_rate"] is None


def test_table_compares_with_stock(run: Run, workloads: Path) -> None:
    status, out, _ = run("--workload", f"{workloads}#small", "--policies", "stock,tracked,belady")
    assert status == 0
    rows = {cells[1]: cells for line in out.splitlines() if (cells := [c.strip() for c in line.split("│")])[1:]}
    assert rows["stock"][3] == "1.00×"
    assert float(rows["tracked"][3][:-1]) == pytest.approx(
        float(rows["tracked"][2]) / float(rows["stock"][2]), abs=0.01
    )
    assert rows["belady"][4] == "—"
    assert "every policy got the same work: " in out


def test_seeds_are_played_from_the_first_on_and_their_means_told(run: Run, workloads: Path) -> None:
    flags = ("--workload", f"{workloads}#small", "--policies", "stock", "--json", "--seed")
    one, two, both = (json.loads(run(*flags, *more)[1])["runs"][0] for more in ([4], [5], [4, "--seeds", 2]))
    assert one["prompt_tokens"] != two["prompt_tokens"]
    for key in KEYS[1:15]:
        assert both[key] == pytest.approx((one[key] + two[key]) / 2), key


def test_a_run_gives_the_same_again(run: Run, workloads: Path) -> None:
    flags = ("--workload", f"{workloads}#small", "--policies", "tracked", "--json")
    first, again = (json.loads(run(*flags)[1])["runs"][0] for _ in range(2))
    assert first | {KEYS[15]: 0} == again | {KEYS[15]: 0}


# --- what is refused --------------------------------------------------------------------------------------------------


def test_wrong_request_is_one_clear_line_and_2(run: Run, trace: Path, workloads: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.jsonl"
    broken.write_text(trace.read_text() + "{\n")
    plain = tmp_path / "plain.jsonl.gz"
    plain.write_text(trace.read_text())
    for arguments, said in (
        ((), "name either a trace or --workload"),
        ((trace, "--workload", f"{workloads}#small"), "name either a trace or --workload"),
        ((broken, "--cpu-blocks", 9), "broken.jsonl, line 7: not JSON"),
        ((plain, "--cpu-blocks", 9), "is not gzip"),
        ((tmp_path / "absent", "--cpu-blocks", 9), "cannot read"),
        ((trace,), "give --cpu-blocks"),
        ((trace, "--cpu-blocks", 1), "--cpu-blocks must be 2 or more"),
        ((trace, "--cpu-blocks", 9, "--policies", "stock,lru,fifo"), "unknown policy 'lru', 'fifo'; known are stock,"),
        ((trace, "--cpu-blocks", 9, "--policies", ","), "--policies names none"),
        ((trace, "--cpu-blocks", 9, "--seeds", 2), "--seeds is for workloads"),
        ((trace, "--cpu-blocks", 9, "--trace-block-tokens", 100), "line 1: input_length 1025 is 10 or 11 blocks"),
        # 49 tokens and one of the answer, which nobody reads: 4 blocks, and the null block.
        ((trace, "--cpu-blocks", 9, "--gpu-blocks", 4), "line 4: 49 prompt tokens and 1 of the answer need 5"),
        (("--workload", f"{workloads}#none"), "has no workload 'none'; it has small, few"),
        (("--workload", f"{workloads}#small", "--gpu-blocks", 5), "turn"),
        (("--workload", f"{workloads}#small", "--limit", 5), "--limit is for traces"),
        ((trace, "--cpu-blocks", 9, "--db", tmp_path), "is a folder"),
    ):  # fmt: skip
        status, out, err = run(*arguments)
        assert (status, out) == (2, ""), arguments
        assert err.startswith("vllm-restore: "), err
        assert said in err
        assert err.count("\n") == 1, err


def test_just_enough_gpu_blocks_are_enough(run: Run, trace: Path) -> None:
    for policies in ("stock,tracked", "native-lru"):
        status, out, _ = run(trace, "--cpu-blocks", 4, "--gpu-blocks", 5, "--policies", policies, "--json")
        assert status == 0
        assert all(r["steps"] for r in json.loads(out)["runs"])


def test_policies_that_got_other_work_are_not_compared() -> None:
    made: list[int] = []

    def make(seed: int) -> Traffic:
        # The traffic of every policy after the first has another block in its second request.
        made.append(seed)
        rows = (Row(1, 0.0, 33, 1, (1, 2, 3)), Row(2, 1.0, 33, 1, (1, 2 + (len(made) > 1), 3)))
        return TraceTraffic(Trace(Path("t"), rows, 16), 16)

    unequal = Plan("t", make, (1,), EngineSpec(), 10, 10, tuple(named("stock,off")))
    with pytest.raises(ReplayError, match="stock and off did not get the same requests from trace"):
        Replay(unequal, None, lambda what, done, total: None).run()


def test_fault_of_ours_is_told(monkeypatch: pytest.MonkeyPatch, run: Run, workloads: Path) -> None:
    def fail(self: Any, preempted: Any) -> None:
        raise RuntimeError("planned")

    monkeypatch.setattr("connector.restore.Restorer.restore", fail)
    status, _, err = run("--workload", f"{workloads}#small", "--policies", "tracked", "--json")
    assert status == 0
    assert "tracked: our connector failed 1 times and did as stock since" in err


# --- the log ----------------------------------------------------------------------------------------------------------


def test_log_tells_what_the_replay_told(run: Run, workloads: Path, tmp_path: Path) -> None:
    db = tmp_path / "run.db"
    status, out, err = run(
        "--workload", f"{workloads}#small", "--policies", "stock,off,tracked", "--json", "--db", db
    )  # fmt: skip
    assert (status, "whole" in err) == (0, False)
    _, off, tracked = json.loads(out)["runs"]
    assert tracked["restores"] > 0
    with closing(connect(db)) as conn:
        engines = conn.execute("SELECT id, started_wall_ns, stopped_wall_ns FROM engines ORDER BY id").fetchall()
        assert len(engines) == 2, "vLLM's own class writes no log"
        for (engine, start, stop), told in zip(engines, (off, tracked), strict=True):
            assert (stop - start) / 1e9 == pytest.approx(told["virtual_seconds"], abs=0.001)
            sums = conn.execute(
                "SELECT sum(num_stored), sum(num_restored), sum(num_evicted) FROM steps WHERE engine_id = ?", (engine,)
            ).fetchone()
            assert sums == (told["stores"], told["restores"], told["evictions"])
            found = conn.execute(
                "SELECT sum(num_tokens), sum(gpu_hit_tokens), sum(cpu_hit_tokens) FROM lookup"
                " WHERE engine_id = ? AND NOT is_resumed",
                (engine,),
            ).fetchone()
            assert found == (told["prompt_tokens"], told["gpu_hit_tokens"], told["cpu_hit_tokens"])
            ttft = [
                ns / 1e9
                for (ns,) in conn.execute(
                    "SELECT ttft_ns FROM request_finished WHERE engine_id = ? ORDER BY ttft_ns", (engine,)
                )
            ]
            assert ttft[-1] == pytest.approx(told["ttft_p99_s"], abs=1e-6)
        assert engines[0][2] < engines[1][1], "one run after the other, also on the virtual clock"
        modes = conn.execute("SELECT enabled, mode FROM policies ORDER BY version").fetchall()
        assert [m for m in modes if m[0]][-1] == (1, "tracked")


def test_log_can_be_played_again_as_an_engine_s_can(run: Run, workloads: Path, tmp_path: Path) -> None:
    db = tmp_path / "run.db"
    _, out, _ = run("--workload", f"{workloads}#small", "--policies", "off", "--json", "--db", db)
    (told,) = json.loads(out)["runs"]
    reader = log.open_reader(log.resolve_url(str(db)))
    try:
        found = play_log(reader.begin, ["off", "unlimited"], None, None, lambda seq, last: None)
    finally:
        reader.dispose()
    assert isinstance(found, WhatIf)
    assert found.hit_rate == pytest.approx((told["gpu_hit_tokens"] + told["cpu_hit_tokens"]) / told["prompt_tokens"])


# --- real traces ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not SHARED.is_dir(), reason="the traces lie beside the checkout, where there are any")
def test_real_trace_finds_what_was_seen_before(run: Run) -> None:
    path = SHARED / "traces" / "mooncake_conversation_6000.jsonl.gz"
    status, out, _ = run(path, "--limit", 150, "--cpu-blocks", 500, "--policies", "stock,unlimited,belady", "--json")
    assert status == 0
    stock, unlimited, belady = json.loads(out)["runs"]
    seen: set[int] = set()
    hit_blocks = 0
    with gzip.open(path, "rt") as file:
        for _, line in zip(range(150), file, strict=False):
            record = json.loads(line)
            usable = record["hash_ids"][: (-(-record["input_length"] // 32) - 1) // 16]
            prefix = next((i for i, n in enumerate(usable) if n not in seen), len(usable))
            hit_blocks += prefix
            seen.update(record["hash_ids"][: -(-record["input_length"] // 32) // 16])
    assert unlimited["hit_rate"] == pytest.approx(16 * hit_blocks / unlimited["prompt_tokens"], abs=0.002)
    assert stock["hit_rate"] <= belady["hit_rate"]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the workloads lie beside the checkout, where there are any")
def test_shipped_workloads_can_all_be_planned() -> None:
    content = json.loads((SHARED / "workloads.json").read_text())
    for name in (*content["chat"], *content["agents"]):
        planned = plan(Wanted(workload=f"{SHARED / 'workloads.json'}#{name}", num_seeds=3))
        spec = content["chat"].get(name) or content["agents"][name]
        assert (planned.gpu_blocks, planned.cpu_blocks) == (spec["gpu_blocks"], spec["cpu_blocks"])
        assert planned.make_traffic(1).num_requests > 0
