"""The examples of the evidence's routes that the OpenAPI schema shows. Each is a valid body of its model; a test holds
them to that.
"""

from typing import Any

from app.examples import H0, H1, REQUEST, T

CAUSES: dict[str, Any] = {
    "since_wall_ns": T - 10_000_000_000,
    "until_wall_ns": T,
    "bucket_ns": 10_000_000_000,
    "num_lookups": 12,
    "prompt_tokens": 1_000,
    "gpu_hit_tokens": 240,
    "cpu_hit_tokens": 380,
    "lost_tokens": 210,
    "behind_tokens": 64,
    "causes": [
        {
            "cause": "evicted",
            "detail": "owner_running",
            "num_lookups": 3,
            "prompt_tokens": 400,
            "lost_tokens": 210,
            "behind_tokens": 64,
            "lost_share": 0.21,
        },
        {
            "cause": "never_seen",
            "detail": "departs",
            "num_lookups": 9,
            "prompt_tokens": 600,
            "lost_tokens": 0,
            "behind_tokens": 0,
            "lost_share": 0.0,
        },
    ],
    "points": [{"wall_ns": T - 10_000_000_000, "prompt_tokens": 1_000, "lost_tokens": {"evicted": 210}}],
    "examples": [
        {
            "seq": 4712,
            "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
            "engine_id": 1,
            "wall_ns": T - 3_900_000_000,
            "cause": "evicted",
            "detail": "owner_running",
            "prompt_tokens": 200,
            "lost_tokens": 128,
            "behind_tokens": 64,
            "cut_index": 1,
            "missing_hash": H1,
            "since_ns": 2_100_000_000,
            "by_request_id": "chatcmpl-19bc",
        }
    ],
    "directory": {"engine_id": 1, "capacity": 4096, "num_forgotten": 0},
}

_HISTOGRAM = [
    {"from_ns": 0, "to_ns": 100_000_000, "num_blocks": 0},
    {"from_ns": 100_000_000, "to_ns": 316_227_766, "num_blocks": 2},
    {"from_ns": 316_227_766, "to_ns": None, "num_blocks": 7},
]
_BENEFIT: dict[str, Any] = {
    "num_lookups": 48,
    "prompt_tokens": 10_000,
    "hit_rate": 0.62,
    "regret": {
        "evicted_blocks": 600,
        "wanted_blocks": 9,
        "wanted_owned_blocks": 6,
        "wanted_share": 0.015,
        "lost_tokens": 210,
        "histogram": _HISTOGRAM,
    },
    "restore": {
        "restored_blocks": 90,
        "restored_bytes": 132_710_400,
        "copy_ns": 45_000_000,
        "measured_blocks": 90,
        "loaded_blocks": 30,
        "hit_tokens": 960,
        "displaced_blocks": 12,
        "displaced_wanted_blocks": 1,
    },
    "prefill": {"seconds_per_token": 0.0017, "num_steps": 320, "r_squared": 0.97, "doubt": None},
    "saved_s": 1.632,
    "spent_s": 0.045,
    "displaced_s": 0.0544,
    "roi": 36.2666,
}

BENEFIT: dict[str, Any] = {
    "since_wall_ns": T - 720_000_000_000,
    "until_wall_ns": T,
    "total": _BENEFIT,
    "policies": [
        {
            **_BENEFIT,
            "policy_version": 7,
            "label": "tracked",
            "first_wall_ns": T - 720_000_000_000,
            "last_wall_ns": T,
        }
    ],
    "block_tokens": 32,
    "assumptions": [
        {"name": "restore_seconds", "label": "copying 256 tokens again", "unit": "s", "quoted": 5e-4,
         "measured": 0.004},
        {"name": "restore_bytes", "label": "bytes of 256 tokens", "unit": "B", "quoted": 2e6, "measured": 11_796_480.0},
        {"name": "prefill_seconds", "label": "prefill of 256 tokens", "unit": "s", "quoted": 0.025, "measured": 0.4352},
        {"name": "ratio", "label": "prefill / copying again", "unit": "×", "quoted": 50.0, "measured": 108.8},
    ],
    "hits_per_restore": 0.3333,
    "holds": False,
    "verdict": "It does not hold here: a re-stored block that is hit once pays 109 times, but one in 3 was hit, "
    "so re-store gained 36 times what it spent.",
}  # fmt: skip

GLANCE: dict[str, Any] = {
    "since_wall_ns": T - 900_000_000_000,
    "until_wall_ns": T,
    "prompt_tokens": 10_000,
    "from_cache": 0.62,
    "lost_to_eviction": 0.21,
    "restore_would_have_saved": 0.09,
    "double_tier": 0.78,
    "sentence": "62 % of prompt tokens came from cache; 21 % were lost to CPU evictions, of which re-store could have "
    "saved 9 %; a tier twice as large would give 78 %.",
    "numbers": [
        {"name": "from_cache", "share": 0.62, "view": "overview", "query": {}},
        {"name": "lost_to_eviction", "share": 0.21, "view": "causes", "query": {"cause": "evicted"}},
        {
            "name": "restore_would_have_saved",
            "share": 0.09,
            "view": "causes",
            "query": {"cause": "evicted", "detail": "owner_running"},
        },
        {"name": "double_tier", "share": 0.78, "view": "whatif", "query": {}},
    ],
}

_CONVERSATION = {
    "id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
    "engine_id": 1,
    "session_id": None,
    "num_turns": 1,
    "first_wall_ns": T - 4_000_000_000,
    "last_wall_ns": T - 4_000_000_000,
    "last_seq": 4711,
    "prompt_tokens": 65,
    "gpu_hit_tokens": 32,
    "cpu_hit_tokens": 0,
    "restored_hit_tokens": 0,
    "lost_tokens": 32,
    "hit_rate": 0.49230769230769234,
    "num_lost_prefixes": 0,
}
CONVERSATION_PAGE: dict[str, Any] = {
    "conversations": [_CONVERSATION],
    "next_before": None,
    "num_conversations": 1,
    "by_turn": [
        {
            "turn": 1,
            "num_turns": 1,
            "prompt_tokens": 65,
            "gpu_hit_tokens": 32,
            "cpu_hit_tokens": 0,
            "restored_hit_tokens": 0,
            "lost_tokens": 32,
            "hit_rate": 0.49230769230769234,
        }
    ],
    "first_seq": None,
}
CONVERSATION_DETAIL: dict[str, Any] = {
    "conversation": _CONVERSATION,
    "hash_block_size": 32,
    "turns": [
        {
            "turn": 1,
            "request": REQUEST,
            "previous_request_id": None,
            "by_session": False,
            "shared_blocks": 0,
            "lost_from_index": None,
        }
    ],
}

TIER: dict[str, Any] = {
    "engine_id": 1,
    "seq": 5120,
    "wall_ns": T,
    "num_blocks": 2,
    "block_bytes": 1_474_560,
    "states": {"cached": 1, "free": 1},
    "blocks": [
        {
            "id": 0,
            "state": "cached",
            "hash": H0,
            "kv_group": 0,
            "index": 0,
            "request_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
            "conversation_id": "chatcmpl-7f3a5f0c9a7e4a51-0-8b7d12aa",
            "is_restored": False,
            "stored_wall_ns": T - 3_500_000_000,
            "age_ns": 3_500_000_000,
            "num_hits": 1,
            "eviction_rank": 0,
        },
        {
            "id": 1,
            "state": "free",
            "hash": None,
            "kv_group": None,
            "index": None,
            "request_id": None,
            "conversation_id": None,
            "is_restored": None,
            "stored_wall_ns": None,
            "age_ns": None,
            "num_hits": None,
            "eviction_rank": None,
        },
    ],
    "is_complete": True,
    "is_order_approximate": False,
    "since_wall_ns": T - 720_000_000_000,
    "until_wall_ns": T,
    "evicted_blocks": 600,
    "evicted_unhit_blocks": 450,
    "churn": 0.75,
    "eviction_age": _HISTOGRAM,
}

RETENTION: dict[str, Any] = {
    "engine_id": 1,
    "retention": "adaptive",
    "since_wall_ns": T - 720_000_000_000,
    "state": {
        "step": 18204,
        "wall_ns": T,
        "rule": "worth",
        "is_guard_on": False,
        "lru_hit_rate": 0.134,
        "worth_hit_rate": 0.391,
        "asked_blocks": 9120.5,
        "guard_lead": 0.01,
        "num_reuses": 212,
        "num_to_learn": 8,
        "horizon_s": 41.2,
        "edges_s": [0.0, 0.5, 0.707],
        "classes": [
            {"turns": 0, "returns": 0.0, "worth": [0.02, 0.02, 0.01]},
            {"turns": 1, "returns": 81.5, "worth": [0.41, 0.4, 0.32]},
        ],
    },
    "rule": "worth",
    "rule_since_wall_ns": T - 700_000_000_000,
    "switches": [
        {
            "seq": 5120,
            "step": 310,
            "wall_ns": T - 700_000_000_000,
            "from_rule": "lru",
            "to_rule": "worth",
            "reason": "learned",
            "lru_hit_rate": 0.21,
            "worth_hit_rate": 0.21,
            "asked_blocks": 640.0,
            "num_reuses": 8,
        }
    ],
    "num_switches": 1,
    "evicted_blocks": 5210,
    "evicted_by_worth_blocks": 4870,
    "num_refusals": 1034,
}
