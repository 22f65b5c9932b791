"""The examples that the OpenAPI schema shows. Each is a valid body of its model; a test holds them to that."""

from typing import Any

from pydantic import BaseModel

T = 1_790_000_000_000_000_000
H0 = "5b9c1f0e6f4a7d21" * 4
H1 = "c0ffee11aa22bb33" * 4

_POLICY = {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 64, "retention": "lru"}
_OFF = {**_POLICY, "enabled": False}

_APPLIED = {
    "engine_id": 1,
    "dp_index": 0,
    "applied_version": 7,
    "applied_step": 18204,
    "applied_wall_ns": T + 31_000_000,
    "is_pending": False,
    "is_idle": False,
    "reason": "toggle",
    "applied": _POLICY,
    "restore_support": "yes",
}

POLICY_APPLIED: dict[str, Any] = {
    "version": 7,
    "policy": _POLICY,
    "created_wall_ns": T,
    "author": "127.0.0.1 (curl/8.5.0)",
    "engines": [_APPLIED],
    "can_change": True,
    "detail": None,
}

POLICY_PENDING: dict[str, Any] = {
    **POLICY_APPLIED,
    "engines": [{**_APPLIED, "applied_version": 6, "is_pending": True, "applied": _OFF}],
    "detail": "engine 1 has not answered yet; it obeys from its next step on",
}

POLICY_HISTORY: dict[str, Any] = {
    "version": 7,
    "created_wall_ns": T,
    "author": "127.0.0.1 (curl/8.5.0)",
    "before": _OFF,
    "after": _POLICY,
    "applied": [_APPLIED],
}

ENGINE: dict[str, Any] = {
    "id": 1,
    "engine_uid": "4f0c9d5e-0d7e-4f0e-9a53-0a41b0a6d3b1",
    "dp_index": 0,
    "pid": 4242,
    "hostname": "gpu-box",
    "model": "SmolLM2-135M-Instruct",
    "vllm_version": "0.32.0",
    "restore_version": "0.1.0",
    "sqlite_version": "3.46.1",
    "hash_block_size": 32,
    "num_gpu_blocks": 128,
    "num_cpu_blocks": 96,
    "block_bytes": 1_474_560,
    "kv_groups": [{"block_size": 32, "kind": "full_attention", "is_prefix_cacheable": True}],
    "directory_capacity": 4096,
    "restore_support": "yes",
    "started_wall_ns": T - 720_000_000_000,
    "heartbeat_wall_ns": T,
    "stopped_wall_ns": None,
    "is_live": True,
}

_TOKENS = {
    "prompt_tokens": 10_000,
    "gpu_hit_tokens": 2_400,
    "cpu_hit_tokens": 3_800,
    "restored_hit_tokens": 960,
    "computed_tokens": 3_800,
    "hit_rate": 0.62,
}

SUMMARY: dict[str, Any] = {
    "since_wall_ns": None,
    "until_wall_ns": T,
    "tokens": _TOKENS,
    "last_minute": {**dict.fromkeys(_TOKENS, 0), "hit_rate": None},
    "num_requests": 48,
    "num_running": 2,
    "stored_blocks": 700,
    "restored_blocks": 90,
    "evicted_blocks": 600,
    "loaded_blocks": 120,
    "dropped_blocks": 4,
    "stored_bytes": 1_032_192_000,
    "restored_bytes": 132_710_400,
    "loaded_bytes": 176_947_200,
    "ttft_p50_ns": 310_000_000,
    "ttft_p90_ns": 910_000_000,
    "num_faults": 0,
    "num_events_dropped": 0,
    "last_fault": None,
    "cpu_tier": {
        "num_blocks": 96,
        "free_blocks": 16,
        "cached_blocks": 78,
        "in_flight_blocks": 2,
        "block_bytes": 1_474_560,
        "restorable_blocks": 3,
    },
    "last_seq": 5120,
}

TIMELINE: dict[str, Any] = {
    "since_wall_ns": T - 10_000_000_000,
    "until_wall_ns": T,
    "bucket_ns": 10_000_000_000,
    "points": [
        {
            "wall_ns": T - 10_000_000_000,
            "prompt_tokens": 1_000,
            "gpu_hit_tokens": 240,
            "cpu_hit_tokens": 380,
            "restored_hit_tokens": 96,
            "computed_tokens": 380,
            "lost_tokens": 210,
            "hit_rate": 0.62,
            "stored_blocks": 12,
            "restored_blocks": 3,
            "evicted_blocks": 9,
            "loaded_blocks": 12,
            "cpu_blocks_cached": 78,
            "engine_up": True,
        }
    ],
    "policy_markers": [
        {
            "wall_ns": T - 5_000_000_000,
            "engine_id": 1,
            "step": 18204,
            "policy_version": 7,
            "label": "tracked",
            "reason": "toggle",
        }
    ],
    "policy_at_start": "off",
}

REQUEST = {
    "seq": 4711,
    "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
    "engine_id": 1,
    "session_id": None,
    "started_wall_ns": T - 4_000_000_000,
    "finished_wall_ns": T - 1_000_000_000,
    "state": "finished",
    "status": "FINISHED_STOPPED",
    "prompt_tokens": 65,
    "output_tokens": 24,
    "gpu_hit_tokens": 32,
    "cpu_hit_tokens": 0,
    "computed_tokens": 33,
    "cut_index": 1,
    "missing_hash": H1,
    "num_blocks": 2,
    "num_preemptions": 0,
    "restored_blocks": 1,
    "ttft_ns": 310_000_000,
    "restored_hit_tokens": 0,
    "cause": "evicted",
    "cause_detail": "owner_running",
    "lost_tokens": 32,
    "behind_tokens": 0,
    "since_ns": 2_100_000_000,
    "by_request_id": "chatcmpl-19bc",
}

REQUEST_PAGE: dict[str, Any] = {"requests": [REQUEST], "next_before": None}

_EVENT = {
    "seq": 4712,
    "engine_id": 1,
    "step": 18204,
    "wall_ns": T - 3_900_000_000,
    "monotonic_ns": 93_000_000_000,
    "kind": "lookup",
    "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
    "data": {
        "num_tokens": 65,
        "gpu_hit_tokens": 32,
        "cpu_hit_tokens": 0,
        "restored_hit_tokens": 0,
        "num_blocks": 2,
        "tail_hash": H1,
        "cut_index": 1,
        "missing_hash": H1,
        "num_attempts": 1,
        "is_resumed": False,
        "is_skipped": False,
    },
}

REQUEST_DETAIL: dict[str, Any] = {
    "request": REQUEST,
    "hash_block_size": 32,
    "cut": {
        "index": 1,
        "missing_hash": H1,
        "cause": "evicted",
        "cause_detail": "owner_running",
        "lost_tokens": 32,
        "behind_tokens": 0,
        "sibling_hash": None,
        "by_request_id": "chatcmpl-19bc",
        "evicted_step": 18190,
        "since_ns": 2_100_000_000,
        "age_ns": 30_000_000_000,
        "was_owned": True,
    },
    "missed": [
        {
            "seq": 4713,
            "kv_group": 0,
            "first_index": 1,
            "num_blocks": 1,
            "head_hash": H1,
            "tail_hash": H1,
            "evicted_step": 18190,
            "since_ns": 2_100_000_000,
            "by_request_id": "chatcmpl-19bc",
            "is_by_restore": False,
            "num_owned": 1,
        }
    ],
    "lane": [
        {
            "seq": 4712,
            "step": 18204,
            "wall_ns": T - 3_900_000_000,
            "kind": "lookup",
            "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
            "by_request_id": None,
            "kv_group": None,
            "first_index": 0,
            "num_blocks": 2,
            "spans": [{"state": "gpu_hit", "num_blocks": 1}, {"state": "missing", "num_blocks": 1}],
        }
    ],
    "is_lane_complete": True,
    "saved_tokens": 32,
    "saved_prefill_s": 0.0544,
    "conversation_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
    "chain": [
        {
            "index": 0,
            "hash": H0,
            "source": "gpu",
            "why_missing": None,
            "is_in_cpu_tier": False,
            "num_moments": 0,
            "history": [],
        },
        {
            "index": 1,
            "hash": H1,
            "source": "missing",
            "why_missing": "evicted at step 18190 by the store of chatcmpl-19bc",
            "is_in_cpu_tier": True,
            "num_moments": 2,
            "history": [
                {
                    "seq": 4600,
                    "step": 18190,
                    "wall_ns": T - 6_000_000_000,
                    "kind": "blocks_evicted",
                    "kv_group": 0,
                    "request_id": None,
                    "by_request_id": "chatcmpl-19bc",
                },
                {
                    "seq": 4720,
                    "step": 18206,
                    "wall_ns": T - 3_500_000_000,
                    "kind": "blocks_stored",
                    "kv_group": 0,
                    "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
                    "by_request_id": None,
                },
            ],
        },
    ],
    "history_first_seq": None,
    "history_last_seq": 5120,
    "is_chain_complete": True,
    "events": [_EVENT],
}

EVENT_PAGE: dict[str, Any] = {"events": [_EVENT], "last_seq": 4712}

HEALTH: dict[str, Any] = {
    "status": "ok",
    "detail": None,
    "log": "/home/me/.local/share/vllm-restore/log.db",
    "schema_revision": "20261130a",
    "num_live_engines": 1,
    "last_seq": 5120,
    "is_recorded": False,
}


def example(
    status: int, body: Any, description: str | None = None, model: type[BaseModel] | None = None
) -> dict[int | str, dict[str, Any]]:
    """A route's `responses` entry that shows `body`."""
    entry: dict[str, Any] = {"content": {"application/json": {"example": body}}}
    if description:
        entry["description"] = description
    if model is not None:
        entry["model"] = model
    return {status: entry}
