"""Examples of what the shadows and the what-if answer, for the API's schema."""

from typing import Any

_NOTES = ["What the GPU holds is taken as it was."]

SHADOWS: dict[str, Any] = {
    "engine_id": 1,
    "is_caught_up": True,
    "last_seq": 4211,
    "unsupported": None,
    "hit_rate": 0.62,
    "shadows": [
        {
            "name": "off",
            "policy": "off",
            "cpu_blocks": 96,
            "cpu_bytes": 141557760,
            "hit_rate": 0.48,
            "cpu_hit_tokens": 9216,
            "gpu_hit_tokens": 2048,
            "restored_blocks": 0,
            "stored_blocks": 811,
            "points": [
                {"wall_ns": 1796000000000000000, "hit_rate": 0.48},
                {"wall_ns": 1796000010000000000, "hit_rate": None},
            ],
        }
    ],
    "error": {"name": "active", "percentage_points": -0.2, "worst_percentage_points": 1.4},
    "curve": [
        {"policy": "off", "cpu_blocks": 96, "cpu_bytes": 141557760, "hit_rate": 0.48},
        {"policy": "off", "cpu_blocks": 192, "cpu_bytes": 283115520, "hit_rate": 0.71},
    ],
    "notes": _NOTES,
}
WHATIF: dict[str, Any] = {
    "engine_id": 1,
    "num_lookups": 48,
    "prompt_tokens": 23462,
    "hit_rate": 0.62,
    "rows": [
        {
            "policy": "unlimited",
            "cpu_blocks": None,
            "cpu_bytes": None,
            "hit_rate": 0.78,
            "cpu_hit_tokens": 16252,
            "gpu_hit_tokens": 2048,
            "restored_blocks": 0,
            "stored_blocks": 302,
        }
    ],
    "notes": _NOTES,
}
