"""The Grafana dashboard asks for what is exported: every metric, every label, every value of a label."""

import json
import re
from pathlib import Path
from typing import Any

import promql_parser as promql
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


Nodes = list[promql.Expr]


def parse(query: str) -> Nodes:
    """Every node of a query, Grafana's variables for durations filled in; of a template's query, what it looks into.

    Raises:
        ValueError: Prometheus would not take it.
    """
    if inside := re.fullmatch(r"label_values\((.+), \w+\)", query):
        query = inside[1]
    nodes: Nodes = []
    promql.walk(promql.parse(re.sub(r"\$__(range|rate_interval)\b", "5m", query)), nodes.append)
    return nodes


def selectors(nodes: Nodes) -> list[promql.VectorSelector]:
    return [n for n in nodes if isinstance(n, promql.VectorSelector)]


def groups(nodes: Nodes) -> list[promql.AggregateExpr]:
    return [n for n in nodes if isinstance(n, promql.AggregateExpr) and n.modifier is not None]


def labels_of(name: str) -> set[str]:
    """Without those of vLLM."""
    if name not in EXPORTED:
        return set()
    return set(EXPORTED[name].labels) | ({"le"} if name.endswith("_bucket") else set())


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_query_asks_for_what_is_exported(panel: str, query: str) -> None:
    found = selectors(parse(query))
    assert found, f"{panel} asks for nothing"
    for selector in found:
        name = selector.name
        assert name in EXPORTED or name in VLLMS_METRICS, f"{panel}: nobody exports {name}"
        for match in selector.matchers.matchers:
            assert match.name in VLLMS_LABELS | labels_of(name), f"{panel}: {name} has no label {match.name}"
            if match.value.startswith("$"):
                # A variable of several values is an alternation, which only a regular expression understands.
                assert match.op == promql.MatchOp.Re
                assert match.value == {"model_name": "$model", "engine": "$engine"}[match.name]
            else:
                values = EXPORTED[name].labels[match.name]
                assert match.value in values, f"{panel}: {match.name} is never {match.value!r}"


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_query_is_narrowed_to_the_chosen_models_and_engines(panel: str, query: str) -> None:
    wanted = {"label_values(vllm_restore_info, model_name)": set[str]()}.get(query, {"model_name", "engine"})
    if query.startswith("label_values") and query.endswith(", engine)"):
        wanted = {"model_name"}
    for selector in selectors(parse(query)):
        assert wanted <= {m.name for m in selector.matchers.matchers}, f"{panel}: {selector.name}"


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_query_groups_by_labels_that_its_metrics_have(panel: str, query: str) -> None:
    for group in groups(parse(query)):
        inside: Nodes = []
        promql.walk(group.expr, inside.append)
        for selector in selectors(inside):
            missing = set(group.modifier.labels) - VLLMS_LABELS - labels_of(selector.name)
            assert not missing, f"{panel}: {selector.name} has no {missing}"


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_quantiles_are_of_buckets_with_their_bounds(panel: str, query: str) -> None:
    for node in parse(query):
        if isinstance(node, promql.Call) and node.func.name == "histogram_quantile":
            inside: Nodes = []
            promql.walk(node, inside.append)
            assert all(s.name.endswith("_bucket") for s in selectors(inside)), panel
            assert all("le" in g.modifier.labels for g in groups(inside)), panel


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p["title"])
def test_legend_names_labels_that_its_query_gives(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        given = {label for group in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in group.split(", ")}
        if "by (" not in target["expr"]:
            given = VLLMS_LABELS | {"policy"}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= given


@pytest.mark.parametrize(("panel", "query"), QUERIES)
def test_counters_are_read_by_their_increase_only(panel: str, query: str) -> None:
    """Also those of histograms; a gauge has no rate."""
    nodes = parse(query)
    within = {
        arg.vector_selector.name
        for call in nodes
        if isinstance(call, promql.Call) and call.func.name in ("rate", "increase")
        for arg in call.args
        if isinstance(arg, promql.MatrixSelector)
    }
    kinds = {s.name: EXPORTED[s.name].kind if s.name in EXPORTED else "counter" for s in selectors(nodes)}
    assert within == {name for name, kind in kinds.items() if kind != "gauge"}, panel


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


def test_panels_are_numbered_and_queries_lettered_once() -> None:
    ids = [p["id"] for p in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert len({p["title"] for p in PANELS}) == len(PANELS)
    for panel in PANELS:
        letters = [t["refId"] for t in panel["targets"]]
        assert letters
        assert len(set(letters)) == len(letters), panel["title"]


def test_everything_asks_the_chosen_prometheus() -> None:
    """Wherever a data source may be named, it is the variable, and there is one of that name."""
    wanted = {"type": "prometheus", "uid": "${datasource}"}
    variables = DASHBOARD["templating"]["list"]
    asking = [*PANELS, *(t for p in PANELS for t in p["targets"]), *DASHBOARD["annotations"]["list"]]
    asking += [v for v in variables if v["type"] == "query"]
    assert [a for a in asking if a.get("datasource") != wanted] == []
    assert [(v["name"], v["query"]) for v in variables if v["type"] == "datasource"] == [("datasource", "prometheus")]
    # What an older Grafana reads, and what a newer one does.
    assert [v["name"] for v in variables if v["type"] == "query" and v["definition"] != v["query"]["query"]] == []
    known = {v["name"] for v in variables} | {"__range", "__rate_interval", "__all"}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) <= known


def test_it_is_one_that_grafana_can_import() -> None:
    assert isinstance(DASHBOARD["schemaVersion"], int)
    assert "id" not in DASHBOARD, "a number of somebody's Grafana"
    for panel in DASHBOARD["panels"]:
        assert panel["type"] in {"row", "stat", "timeseries"}
        assert panel["gridPos"].keys() == {"x", "y", "w", "h"}
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"].get("unit"), f"{panel['title']} has no unit"


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
