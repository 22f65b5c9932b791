"""What a server's own `/metrics` counted between two moments: tokens by source, and bytes copied. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PROMPT_TOKENS = "vllm:prompt_tokens_total"
CACHED_TOKENS = "vllm:prompt_tokens_cached_by_source_total"
OUTPUT_TOKENS = "vllm:generation_tokens_total"
COPIED_BYTES = "vllm_restore_copied_bytes_total"
POLICY = "vllm_restore_policy"
STOCK = "stock"
_LABEL = {CACHED_TOKENS: "source", COPIED_BYTES: "operation"}
_SUMMED = (PROMPT_TOKENS, CACHED_TOKENS, OUTPUT_TOKENS, COPIED_BYTES)


@dataclass(frozen=True, slots=True)
class Counters:
    """Sums over all engines of one server since it started. `values`: by metric and, where it has one that matters
    here, the value of its label."""

    values: Mapping[tuple[str, str], float]
    is_stock: bool

    def since(self, before: "Counters") -> "Counters":
        """What came in between."""
        return Counters({key: value - before.values.get(key, 0) for key, value in self.values.items()}, self.is_stock)

    def of(self, metric: str, label: str = "") -> int:
        """One sum; 0 where the server has no such series."""
        return round(self.values.get((metric, label), 0))


def parse(text: str) -> Counters:
    """The counters in an answer of `/metrics`."""
    values: dict[tuple[str, str], float] = {}
    is_stock = False
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _SUMMED:
                key = (sample.name, sample.labels.get(_LABEL.get(sample.name, ""), ""))
                values[key] = values.get(key, 0) + sample.value
            elif sample.name == POLICY and sample.labels.get("policy") == STOCK:
                is_stock |= sample.value == 1
    return Counters(values, is_stock)
