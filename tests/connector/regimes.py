"""The regimes that vLLM can run in, as settings of a test engine: layouts of the KV cache, and features that go with
almost any of them.

Test support: `LAYOUTS` and `FEATURES` by name, `settings` puts them together, `draw_features` draws some.
"""

import random
from collections.abc import Callable, Iterable
from typing import Any

from configs import full_attention, mamba, ring_buffer, sliding_window
from vllm.config import KVEventsConfig, VllmConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec, MambaSpec

Configure = Callable[[VllmConfig], None]


def _align(config: VllmConfig) -> None:
    config.cache_config.mamba_cache_mode = "align"


def _announce(config: VllmConfig) -> None:
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")


def _rank_by_priority(config: VllmConfig) -> None:
    config.scheduler_config.policy = "priority"


def _split_context(config: VllmConfig) -> None:
    config.parallel_config.decode_context_parallel_size = 2


LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "async": {"is_async": True},
    "two ranks": {"world_size": 2},
    "eagle": {"num_draft_tokens": 2},
    "async eagle": {"num_draft_tokens": 2, "is_async": True},
    "chunked": {"max_num_batched_tokens": 40, "max_num_seqs": 6},
    "window": {"groups": [full_attention(), sliding_window(32)]},
    "async window": {"groups": [full_attention(), sliding_window(32)], "is_async": True},
    "large full": {"groups": [full_attention(32), sliding_window(32)]},
    "large window": {"groups": [full_attention(), sliding_window(64, 32)]},
    "ring": {"groups": [full_attention(), ring_buffer()]},
    "mamba": {"groups": [full_attention(), mamba()], "configure": _align},
    "large mamba": {"groups": [full_attention(), mamba(32)], "configure": _align},
    "behind stock": {"children": ["SimpleCPUOffloadConnector", "ReStoreConnector"]},
}

FEATURES: dict[str, dict[str, Any]] = {
    "async": {"is_async": True},
    "two ranks": {"world_size": 2},
    "eagle": {"num_draft_tokens": 2},
    "chunked": {"max_num_batched_tokens": 40, "max_num_seqs": 6},
    "behind stock": {"children": ["SimpleCPUOffloadConnector", "ReStoreConnector"]},
    "failed loads fail": {"load_failure_policy": "fail"},
    "events": {"configure": _announce},
    "priority": {"configure": _rank_by_priority},
    "context parallel": {"configure": _split_context, "world_size": 2},
}


def settings(layout: str, features: Iterable[str] = ()) -> dict[str, Any]:
    """Arguments of `Engine` for a layout with features, each by its name."""
    merged: dict[str, Any] = {}
    configures: list[Configure] = []
    for part in (LAYOUTS[layout], *(FEATURES[name] for name in features)):
        merged |= part
        if "configure" in part:
            configures.append(part["configure"])
    if configures:

        def configure(config: VllmConfig) -> None:
            for each in configures:
                each(config)

        merged["configure"] = configure
    return merged


def is_possible(layout: str, features: Iterable[str]) -> bool:
    """Whether vLLM allows the combination: context parallelism knows no window and no ring."""
    specs = LAYOUTS[layout].get("groups", ())
    return "context parallel" not in features or all(isinstance(s, FullAttentionSpec | MambaSpec) for s in specs)


def draw_features(rng: random.Random, layout: str) -> tuple[str, ...]:
    """Some features that vLLM allows with the layout; often none."""
    drawn: tuple[str, ...] = ()
    for name in FEATURES:
        if rng.random() < 0.25 and is_possible(layout, (*drawn, name)):
            drawn = (*drawn, name)
    return drawn
