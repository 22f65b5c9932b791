"""The Grafana dashboard asks for what is exported: every metric, every label, every value of a label."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connector.metrics import INFO, METRICS, PREFIX

DOCS = Path(__file__).resolve().parents[2] / "docs"
DASHBOARD: dict[str, Any] = json.loads((DOCS / "grafana-dashboard.json").read_text("utf-8"))
VLLMS_LABELS = {"model_name", "engine"}
# These are vLLM's own; the engine test looks whether a server has them.
VLLMS_METRICS = {"vllm:request_prefill_time_seconds_sum", "vllm:request_prefill_kv_computed_tokens_sum"}
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
EXPORTED = {PREFIX + m.name + s: m for m in (*METRICS, INFO) for s in SUFFIXES[m.kind]}

PANELS = [p for p in DASHBOARD["panels"] if p["type"] != "row"]
QUERIES = [(p["title"], t["expr"]) for p in PANELS for t in p["targets"]]
QUERIES += [(a["name"], a["expr"]) for a in DASHBOARD["annotations"]["list"]]
QUERIES += [(v["name"], v["definition"]) for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_query_asks_for_what_is_exported(panel: str, query: str) -> None:
    names = set(re.findall(r"vllm[_:][a-z_:]+", query))
    assert names, f"{panel} asks for nothing of ours"
    assert names <= EXPORTED.keys() | VLLMS_METRICS
    for name, selector in re.findall(r"(vllm[_:][a-z_:]+)\{([^}]*)\}", query):
        labels = EXPORTED[name].labels if name in EXPORTED else {}
        for label, value in re.findall(r'(\w+)\s*(?:=~|!=|=)\s*"([^"]*)"', selector):
            assert label in VLLMS_LABELS | labels.keys(), f"{panel}: {name} has no label {label}"
            assert value.startswith("$") or value in labels[label], f"{panel}: {label} is never {value!r}"


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_query_groups_by_labels_that_its_metric_has(panel: str, query: str) -> None:
    names = re.findall(r"vllm[_:][a-z_:]+", query)
    for group in re.findall(r"by \(([^)]*)\)", query):
        for label in group.split(", "):
            has_it = [n for n in names if n in EXPORTED and label in EXPORTED[n].labels]
            assert has_it or label in {"le", *VLLMS_LABELS}, f"{panel}: nothing has the label {label}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p["title"])
def test_legend_names_labels_that_its_query_gives(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        given = {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
        if "by (" not in target["expr"]:
            given = VLLMS_LABELS | {"policy"}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= given


@pytest.mark.parametrize(("_", "query"), QUERIES)
def test_brackets_of_a_query_are_closed(_: str, query: str) -> None:
    for left, right in ("()", "{}", "[]"):
        assert query.count(left) == query.count(right)


def test_counters_are_read_by_their_increase_only() -> None:
    for panel, query in QUERIES:
        for name in re.findall(r"vllm_restore_\w+_total", query):
            assert re.search(rf"(rate|increase)\({name}", query), f"{panel} reads {name} as it stands"


def test_every_metric_is_on_the_dashboard_or_said_not_to_be() -> None:
    asked = " ".join(query for _, query in QUERIES)
    left_out = {m.name for m in METRICS if PREFIX + m.name not in asked}
    assert left_out == {"behind_tokens_total", "cache_resets_total"}


def test_panels_lie_beside_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert taken.isdisjoint(cells), panel["title"]
        taken |= cells
    assert len({p["id"] for p in PANELS}) == len(PANELS)
    assert all(p["datasource"]["uid"] == "${datasource}" for p in PANELS)


def test_the_table_of_the_docs_has_every_metric_with_its_labels() -> None:
    text = (DOCS / "metrics.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(vllm_restore_\w+)` \| (.*?) \|", text, re.MULTILINE))
    assert set(rows) == {PREFIX + m.name for m in (*METRICS, INFO)}
    for metric in (*METRICS, INFO):
        named = re.findall(r"`(\w+)`", rows[PREFIX + metric.name].split(" · ")[-1]) if metric.labels else []
        assert named == list(metric.labels), metric.name
        assert rows[PREFIX + metric.name].startswith(metric.kind)


def test_names_are_what_prometheus_exposes() -> None:
    """`EXPORTED` is worked out from suffixes; this is what the library makes of them."""
    registry = CollectorRegistry()
    made = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
    for metric in (*METRICS, INFO):
        metric_type: Any = made[metric.kind]
        child = metric_type(PREFIX + metric.name, "x", list(metric.labels), registry=registry)
        if metric.labels:
            child.labels(*("x" for _ in metric.labels))
    samples = {s.name for family in registry.collect() for s in family.samples if not s.name.endswith("_created")}
    assert samples == EXPORTED.keys()
