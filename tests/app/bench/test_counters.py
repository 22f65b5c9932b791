"""What the bench reads out of a server's `/metrics`, in vLLM's own words."""

from app.bench.counters import CACHED_TOKENS, COPIED_BYTES, OUTPUT_TOKENS, PROMPT_TOKENS, parse

METRICS = """\
# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 20.0
# HELP vllm:prompt_tokens_cached_by_source_total Hits
# TYPE vllm:prompt_tokens_cached_by_source_total counter
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="device"} 30.0
vllm:prompt_tokens_cached_by_source_total{engine="0",model_name="m",source="host"} 40.0
vllm:prompt_tokens_cached_by_source_total{engine="1",model_name="m",source="host"} 2.0
# HELP vllm:generation_tokens_total Number of generation tokens processed.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 7.0
# HELP vllm_restore_copied_bytes_total Bytes
# TYPE vllm_restore_copied_bytes_total counter
vllm_restore_copied_bytes_total{engine="0",model_name="m",operation="store",policy="off"} 64.0
vllm_restore_copied_bytes_total{engine="0",model_name="m",operation="store",policy="adaptive"} 32.0
vllm_restore_copied_bytes_total{engine="0",model_name="m",operation="load",policy="adaptive"} 8.0
# HELP vllm_restore_policy 1 for the policy
# TYPE vllm_restore_policy gauge
vllm_restore_policy{engine="0",model_name="m",policy="off"} 1.0
vllm_restore_policy{engine="0",model_name="m",policy="stock"} 0.0
"""


def test_engines_and_policies_are_summed_and_sources_kept_apart() -> None:
    counters = parse(METRICS)
    assert counters.of(PROMPT_TOKENS) == 120
    assert counters.of(CACHED_TOKENS, "device") == 30
    assert counters.of(CACHED_TOKENS, "host") == 42
    assert counters.of(OUTPUT_TOKENS) == 7
    assert counters.of(COPIED_BYTES, "store") == 96
    assert counters.of(COPIED_BYTES, "load") == 8
    assert counters.of(COPIED_BYTES, "restore") == 0
    assert not counters.is_stock


def test_a_stock_server_says_so() -> None:
    assert parse(METRICS.replace('policy="stock"} 0.0', 'policy="stock"} 1.0')).is_stock


def test_only_what_came_in_between_counts() -> None:
    before, after = parse(METRICS), parse(METRICS.replace('source="host"} 40.0', 'source="host"} 45.0'))
    between = after.since(before)
    assert between.of(CACHED_TOKENS, "host") == 5
    assert between.of(CACHED_TOKENS, "device") == 0
    assert between.of(PROMPT_TOKENS) == 0
