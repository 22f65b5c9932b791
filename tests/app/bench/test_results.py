"""Numbers of runs and their ratios, worked out by hand."""

import json
from pathlib import Path

import pytest

from app.bench.chart import write_charts
from app.bench.clients import Played
from app.bench.counters import CACHED_TOKENS, COPIED_BYTES, OUTPUT_TOKENS, PROMPT_TOKENS, Counters
from app.bench.results import Run, as_dict, compare, measure, ttft_by_policy
from app.bench.table import ROWS, words_of
from app.remote import Answer


def a_run(
    policy: str,
    repeat: int,
    ttft_s: list[float],
    *,
    host: int = 0,
    output: int = 40,
    seconds: float = 10,
    text: str = "t",
) -> Run:
    """A run of one conversation, 100 prompt tokens a request, of which 20 came from the GPU."""
    answers = [Answer("", t, 100, 50, 4) for t in ttft_s]
    counters = Counters(
        {
            (PROMPT_TOKENS, ""): 100 * len(ttft_s),
            (CACHED_TOKENS, "device"): 20 * len(ttft_s),
            (CACHED_TOKENS, "host"): host,
            (OUTPUT_TOKENS, ""): output,
            (COPIED_BYTES, "store"): 1 << 20,
        },
        is_stock=policy == "stock",
    )
    return Run(policy, repeat, Played(answers, {"chat0": text}), counters, seconds=10)


def test_the_numbers_of_a_run() -> None:
    all_ = measure([a_run("off", 0, [0.4, 0.1, 0.3, 0.2], host=120)])
    assert (all_.prompt_tokens, all_.gpu_hit_tokens, all_.cpu_hit_tokens) == (400, 80, 120)
    assert all_.hit_rate == pytest.approx(0.5)
    assert all_.gpu_hit_rate == pytest.approx(0.2)
    assert all_.cpu_hit_rate == pytest.approx(0.3)
    assert all_.talk_hit_rate == pytest.approx(0.5)
    assert (all_.ttft_p50_s, all_.ttft_p90_s, all_.ttft_p99_s) == (0.2, 0.4, 0.4)
    assert all_.output_tokens_per_s == pytest.approx(4.0)
    assert all_.stored_bytes == 1 << 20


def test_ratios_are_to_stock_of_all_runs_and_of_each_pair() -> None:
    runs = [
        a_run("stock", 0, [1.0, 1.0, 1.0], output=100),
        a_run("adaptive", 0, [0.5, 0.5, 0.5], host=120, output=80),
        # There and back again: the order in which runs came must not decide what is paired.
        a_run("adaptive", 1, [0.5, 0.5, 0.5], host=120, output=180),
        a_run("stock", 1, [1.0, 1.0, 1.0], output=100),
    ]
    stock, adaptive = compare(runs).policies
    assert stock.ratios == {}
    # 20 of 100 tokens against 60 of 100.
    assert adaptive.ratios["hit_rate"].value == pytest.approx(3.0)
    assert adaptive.ratios["ttft_p50_s"].value == pytest.approx(0.5)
    # 260 tokens in 20 s against 200 in 20 s; the pairs 0.8 and 1.8, whose geometric mean is 1.2.
    assert adaptive.ratios["output_tokens_per_s"].value == pytest.approx(1.3)
    assert adaptive.ratios["output_tokens_per_s"].pairs == pytest.approx([0.8, 1.8])
    assert adaptive.ratios["output_tokens_per_s"].of_pairs == pytest.approx(1.2)


def test_without_stock_the_first_policy_is_the_baseline_and_nothing_is_divided_by_nothing() -> None:
    comparison = compare([a_run("tracked", 0, [1.0]), a_run("off", 0, [1.0])])
    assert comparison.baseline == "tracked"
    runs = [a_run("stock", 0, [1.0]), a_run("off", 0, [1.0])]
    runs[0].counters.values[CACHED_TOKENS, "device"] = 0  # type: ignore[index]
    assert compare(runs).policies[1].ratios["hit_rate"].value is None


def test_a_conversation_that_was_answered_otherwise_is_named() -> None:
    same = compare([a_run("stock", 0, [1.0]), a_run("off", 0, [1.0])])
    assert same.differing == []
    assert "all 1 conversations were the same" in words_of(same)
    other = compare([a_run("stock", 0, [1.0]), a_run("off", 0, [1.0], text="u")])
    assert other.differing == ["chat0"]
    assert "chat0" in words_of(other)


def test_the_page_has_every_number_and_no_script(tmp_path: Path) -> None:
    runs = [a_run("stock", 0, [1.0, 2.0]), a_run("adaptive", 0, [0.5, 0.7], host=100)]
    comparison = compare(runs)
    result = {"title": "a <title>", "command": "bench", "machine": {"cores": 2}, **as_dict(comparison)}
    write_charts(tmp_path, json.loads(json.dumps({**result, "ttft_s": ttft_by_policy(runs)})), comparison)
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "bench.html").read_text()
    assert "a &lt;title&gt;" in page
    assert "<script" not in page
    for name, show in ROWS.items():
        assert name.strip() in page
        for policy in comparison.policies:
            assert show(policy) in page
