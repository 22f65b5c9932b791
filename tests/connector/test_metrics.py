"""What Prometheus is told: the sums of a real scheduler's run against its log, and each kind of event by itself."""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from harness import BLOCK, Engine, prompt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.metrics.stats import SchedulerStats
from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder
from vllm.v1.simple_kv_offload.metrics import SimpleCPUOffloadStats

from connector.events import (
    BlocksDropped,
    BlocksEvicted,
    BlocksLoaded,
    BlocksMissed,
    BlocksRestored,
    BlocksStored,
    CacheReset,
    Event,
    Fault,
    Lookup,
    RequestPreempted,
)
from connector.kv_connector import ReStoreConnector
from connector.metrics import INFO, METRICS, PREFIX, Metrics
from connector.policy import Policy
from connector.prom_metrics import StockStatsSource

MODEL = "some-model"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scrape:
    """Takes in what an engine's stats say, as vLLM's API server does, and reads its own exposition."""

    def __init__(self, vllm_config: Any) -> None:
        self.registry = CollectorRegistry()
        kinds = {kind: partial(kind, registry=self.registry) for kind in (Gauge, Counter, Histogram)}
        values: dict[int, list[object]] = {0: [MODEL, "0"], 1: [MODEL, "1"]}
        self.prom = ReStoreConnector.build_prom_metrics(vllm_config, kinds, ["model_name", "engine"], values)

    def observe(self, stats: KVConnectorStats, engine: int = 0) -> None:
        # Over the wire that it travels from the engine's process to the server's.
        said = SchedulerStats(kv_connector_stats=stats.to_dict())
        arrived = MsgpackDecoder(SchedulerStats).decode(MsgpackEncoder().encode(said))
        assert arrived.kv_connector_stats is not None
        self.prom.observe(arrived.kv_connector_stats, engine)

    def follow(self, engine: Engine) -> None:
        """Take in what the engine says after each step from now on."""
        connector = engine.scheduler.connector
        take = connector.get_kv_connector_stats

        def taken() -> KVConnectorStats | None:
            stats = take()
            self.observe(stats)
            return stats

        connector.get_kv_connector_stats = taken

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def __call__(self, name: str, engine: int = 0, **labels: str) -> float | None:
        """The sum of the samples with these labels, of one engine; None if there is none."""
        wanted = {"model_name": MODEL, "engine": str(engine), **labels}
        found = [
            sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name == PREFIX + name and wanted.items() <= sample.labels.items()
        ]
        return sum(found) if found else None


@pytest.fixture
def run(make_engine: Callable[..., Engine]) -> tuple[Engine, Scrape]:
    """Ten blocks stored, one of them lost, copied again, and found by a second request; then the tier is emptied."""
    engine = make_engine(cpu_blocks=33, policy=Policy())
    scrape = Scrape(engine.scheduler.vllm_config)
    scrape.follow(engine)
    engine.add("a", prompt(0, 10, extra=1))
    engine.steps(3)
    engine.evict("a", 2)
    engine.steps(4)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("b", prompt(0, 10, extra=1))
    engine.steps(3)
    engine.finish("b")
    engine.settle()
    engine.reset_tier()
    engine.scheduler.connector.get_kv_connector_stats()
    engine.close()
    return engine, scrape


def store_then_load(engine: Engine) -> None:
    """A prompt of ten blocks is stored, forgotten by the GPU, and loaded for the next one who asks for it."""
    engine.add("a", prompt(0, 10, extra=1))
    engine.steps(3)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("b", prompt(0, 10, extra=1))
    engine.steps(3)


def test_sums_are_those_of_the_log(run: tuple[Engine, Scrape]) -> None:
    engine, scrape = run

    for operation, view in (("store", "blocks_stored"), ("restore", "blocks_restored"), ("load", "blocks_loaded")):
        [(blocks, num_bytes)] = engine.sql(f"SELECT sum(num_blocks), sum(num_bytes) FROM {view}")
        assert scrape("copied_blocks_total", operation=operation) == blocks > 0
        assert scrape("copied_bytes_total", operation=operation) == num_bytes > 0
    [(evicted, owned)] = engine.sql("SELECT sum(num_blocks), sum(num_owned) FROM blocks_evicted")
    assert scrape("evicted_blocks_total") == evicted > 0
    assert scrape("evicted_blocks_total", owner="running") == owned > 0
    assert scrape("cache_resets_total") == 1
    assert scrape("faults_total") == scrape("log_dropped_events_total") == 0


def test_prompt_tokens_by_source_are_those_of_the_scenario(run: tuple[Engine, Scrape]) -> None:
    _, scrape = run

    # `a` computes ten blocks and a token; `b` finds all ten, one of them thanks to the re-store, and computes a token.
    tokens = {s: scrape("prompt_tokens_total", source=s) for s in ("gpu", "cpu", "restored", "computed")}
    assert tokens == {"gpu": 0, "cpu": 9 * BLOCK, "restored": BLOCK, "computed": 10 * BLOCK + 2}
    assert scrape("prompt_tokens_total", policy="tracked") == 20 * BLOCK + 2
    assert scrape("lookups_total") == 2
    assert scrape("lookups_total", cause="never_seen", detail="new_head") == 1
    assert scrape("lookups_total", cause="none") == 1
    assert scrape("loaded_restored_blocks_total") == 1


def test_gauges_tell_the_tier_and_the_policy_as_they_are_now(run: tuple[Engine, Scrape]) -> None:
    _, scrape = run

    # 33 blocks, one of them vLLM's own; the tier was emptied at the end.
    assert [scrape("tier_blocks", state=s) for s in ("free", "cached", "in_flight")] == [32, 0, 0]
    assert scrape("restorable_blocks") == 0
    assert [scrape("policy", policy=p) for p in ("off", "rescan", "tracked")] == [0, 0, 1]
    assert scrape("info", vllm_version="0.32.0") == 1


def test_the_policy_that_counts_is_the_one_that_is_obeyed(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(cpu_blocks=33, policy=Policy(enabled=False))
    scrape = Scrape(engine.scheduler.vllm_config)
    scrape.follow(engine)
    engine.add("a", prompt(0, 4, extra=1))
    engine.steps(2)
    engine.set_policy(enabled=True, mode="rescan")
    engine.add("b", prompt(1, 2, extra=1))
    engine.step()
    engine.add("c", prompt(2, 1, extra=1))
    engine.step()

    # `b` is looked up while its step is scheduled, before that step begins to obey.
    tokens = [scrape("prompt_tokens_total", policy=p) for p in ("off", "rescan", "tracked")]
    assert tokens == [6 * BLOCK + 2, BLOCK + 1, 0]
    assert [scrape("policy", policy=p) for p in ("off", "rescan", "tracked")] == [0, 1, 0]


def test_an_idle_engine_has_the_policy_that_the_log_says_it_obeys(make_engine: Callable[..., Engine]) -> None:
    """After a toggle the log answers for an engine that takes no step. What is counted before its next step is that
    policy's, and so are both gauges."""
    engine = make_engine(cpu_blocks=33, policy=Policy(enabled=False))
    scrape = Scrape(engine.scheduler.vllm_config)
    scrape.follow(engine)
    engine.add("a", prompt(0, 4, extra=1))
    engine.steps(2)
    engine.finish("a")
    engine.settle()
    engine.scheduler.connector.get_kv_connector_stats()
    assert [scrape("policy", policy=p) for p in ("off", "rescan", "tracked")] == [1, 0, 0]
    engine.set_policy(enabled=True, mode="rescan")
    answered = "SELECT policy_version FROM policy_applied WHERE is_idle AND reason = 'toggle'"
    deadline = time.monotonic() + 60
    while not (said := engine.sql(answered)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    engine.scheduler.connector.get_kv_connector_stats()
    assert [scrape("policy", policy=p) for p in ("off", "rescan", "tracked")] == [0, 1, 0]
    assert [(scrape("policy_version"),)] == said
    # Its next step counts under it as well.
    engine.add("b", prompt(1, 2, extra=1))
    engine.step()
    engine.scheduler.connector.get_kv_connector_stats()
    assert [scrape("lookups_total", policy=p) for p in ("off", "rescan")] == [1, 1]
    engine.close()


def test_stock_stats_go_on_unchanged(make_engine: Callable[..., Engine]) -> None:
    ours, stock = make_engine(cpu_blocks=33), make_engine(cpu_blocks=33, connector="SimpleCPUOffloadConnector")
    seen: list[list[dict[str, Any]]] = []
    for engine in (ours, stock):
        connector = engine.scheduler.connector
        take, payloads = connector.get_kv_connector_stats, []

        def listen(take: Any = take, payloads: Any = payloads) -> Any:
            stats = take()
            payloads.append((stats.data["types"], stats.data["data"], stats.reduce()))
            return stats

        connector.get_kv_connector_stats = listen
        engine.set_policy(enabled=False) if engine is ours else None
        store_then_load(engine)
        seen.append(payloads)
    assert seen[0] == seen[1]
    assert len({str(payload) for payload in seen[0]}) > 1


# --- each kind of event ----------------------------------------------------------------------------------------------


def run_of(kind: Any, num_blocks: int, **changes: Any) -> Any:
    where = {"kv_group": 0, "first_index": 0, "num_blocks": num_blocks, "tail_hash": b"", "head_hash": b""}
    return kind(request_id="r", **where, **changes)


COPIED = {"cpu_block_ids": (), "num_bytes": 500, "scheduled_step": 1}
EVICTED = {"by_request_id": None, "cpu_block_ids": (), "age_ns": 2_500_000_000}
MISSED = {"by_request_id": None, "evicted_step": 1, "since_ns": 4_000_000_000}


def lookup(**changes: Any) -> Lookup:
    given = {"num_attempts": 1, "is_resumed": False, "is_skipped": False, "cut_index": None, "missing_hash": None}
    tokens = {"num_tokens": 100, "gpu_hit_tokens": 10, "cpu_hit_tokens": 32, "restored_hit_tokens": 8}
    return Lookup("r", num_blocks=3, tail_hash=None, **(tokens | given | changes))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            lookup(cause="evicted", cause_detail="owner_running", lost_tokens=48, behind_tokens=16),
            {
                "prompt_tokens_total": {
                    ("gpu", "off"): 10, ("cpu", "off"): 24, ("restored", "off"): 8, ("computed", "off"): 58,
                },
                "lookups_total": {("evicted", "owner_running", "off"): 1},
                "lost_tokens_total": {("evicted", "owner_running", "off"): 48},
                "behind_tokens_total": {("evicted", "off"): 16},
            },
        ),
        (lookup(is_resumed=True, cause="evicted", lost_tokens=48), {}),
        (
            run_of(BlocksStored, 3, **COPIED, copy_ns=1_000_000),
            {
                "copied_blocks_total": {("store", "off"): 3},
                "copied_bytes_total": {("store", "off"): 500},
                "copy_seconds": {("store",): [(0.001, 1)]},
            },
        ),
        (
            run_of(BlocksRestored, 2, **COPIED),
            {"copied_blocks_total": {("restore", "off"): 2}, "copied_bytes_total": {("restore", "off"): 500}},
        ),
        (
            run_of(BlocksLoaded, 4, **COPIED, num_restored=1),
            {
                "copied_blocks_total": {("load", "off"): 4},
                "copied_bytes_total": {("load", "off"): 500},
                "loaded_restored_blocks_total": {("off",): 1},
            },
        ),
        (
            run_of(BlocksEvicted, 5, **EVICTED, num_owned=2, num_loaded=1, is_by_restore=True),
            {
                "evicted_blocks_total": {("running", "restore", "off"): 2, ("none", "restore", "off"): 3},
                "evicted_unhit_blocks_total": {("off",): 4},
                "evicted_block_age_seconds": {(): [(2.5, 5)]},
            },
        ),
        (
            run_of(BlocksMissed, 2, **MISSED, num_owned=2, is_by_restore=False),
            {
                "missed_blocks_total": {("running", "store", "off"): 2},
                "missed_block_gone_seconds": {(): [(4.0, 2)]},
            },
        ),
        (BlocksDropped("r", 0, 0, 3, "no_gain"), {"dropped_blocks_total": {("no_gain", "off"): 3}}),
        (CacheReset(7), {"cache_resets_total": {(): 1}}),
        (RequestPreempted("r", 1), {}),
    ],
)  # fmt: skip
def test_an_event_counts_as(event: Event, expected: dict[str, Any]) -> None:
    metrics = Metrics(lambda: "off")
    metrics.count(event)
    assert metrics.take() == expected
    assert metrics.take() == {}


def test_faults_that_were_not_told_one_by_one_count_too() -> None:
    metrics = Metrics(lambda: "off")
    metrics.count(Fault("copy", "m", 1))
    metrics.count(Fault("copy", "m", 6))
    assert metrics.take() == {"faults_total": {(): 6}}


def test_what_no_list_names_makes_no_series_of_its_own() -> None:
    metrics = Metrics(lambda: "off")
    metrics.count(lookup(cause="not_aligned", cause_detail="SlidingWindowSpec"))
    metrics.count(BlocksDropped("r", 0, 0, 3, "something new"))
    taken = metrics.take()
    assert taken["lookups_total"] == {("not_aligned", "other", "off"): 1}
    assert taken["dropped_blocks_total"] == {("other", "off"): 3}


def test_every_label_value_that_is_counted_is_on_its_list(run: tuple[Engine, Scrape]) -> None:
    _, scrape = run
    allowed = {PREFIX + m.name.removesuffix("_total"): m.labels for m in METRICS}
    for family in text_string_to_metric_families(scrape.text()):
        for sample in family.samples:
            for label, values in allowed.get(family.name, {}).items():
                assert sample.labels[label] in values, (family.name, sample.labels)


def test_a_fault_in_counting_is_said_once_and_never_raised(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "vllm.restore")
    metrics = Metrics(lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    metrics.count(CacheReset(1))
    metrics.count(CacheReset(1))
    assert [r.message for r in caplog.records] in (
        ["The metrics stop here after a fault in counting cache_reset: integer division or modulo by zero"],
        ["The metrics stop here after a fault in counting cache_reset: integer modulo by zero"],
    )


# --- vLLM's own scheduler half, as `restore_scheduler` chooses it -----------------------------------------------------


def test_copies_that_stocks_steps_order_are_counted(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine(cpu_blocks=33, connector="ReStoreConnector", extra={"restore_scheduler": "stock"})
    scrape = Scrape(engine.scheduler.vllm_config)
    scrape.follow(engine)
    store_then_load(engine)
    block_bytes = engine.kv_cache_config.kv_cache_tensors[0].size // engine.kv_cache_config.num_blocks
    copied = {op: scrape("copied_blocks_total", operation=op, policy="stock") for op in ("store", "load", "restore")}
    assert copied == {"store": 10, "load": 10, "restore": 0}
    assert scrape("copied_bytes_total", operation="store", policy="stock") == 10 * block_bytes
    assert scrape("policy", policy="stock") == 1
    assert scrape("policy", policy="off") == 0


def test_a_fault_in_counting_stocks_copies_leaves_the_stock_stats(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "vllm.restore")
    source = StockStatsSource(block_bytes=1)
    for _ in range(2):
        source.count(object())  # type: ignore[arg-type]
    stock = SimpleCPUOffloadStats()
    assert source.join(stock) is stock
    assert len(caplog.records) == 1


# --- vLLM's side -----------------------------------------------------------------------------------------------------


def test_stats_of_two_steps_add_up() -> None:
    def stats(ours: dict[str, Any]) -> Any:
        made = ReStoreConnector.build_kv_connector_stats(None)
        made.set_gauge("vllm:simple_kv_offload_used_blocks", 1)
        made.ours.update(ours)
        return made

    first = stats(
        {"cache_resets_total": {(): 1}, "restorable_blocks": {(): 5}, "copy_seconds": {("load",): [(1.0, 1)]}}
    )
    second = stats(
        {"cache_resets_total": {(): 2}, "restorable_blocks": {(): 3}, "copy_seconds": {("load",): [(2.0, 1)]}}
    )
    total = first.aggregate(second)
    assert total.ours == {
        "cache_resets_total": {(): 3}, "restorable_blocks": {(): 3}, "copy_seconds": {("load",): [(1.0, 1), (2.0, 1)]},
    }  # fmt: skip
    # What vLLM logs every ten seconds is the stock class's alone.
    assert total.reduce() == {"vllm:simple_kv_offload_used_blocks": 1}


def test_engines_are_kept_apart(make_engine: Callable[..., Engine]) -> None:
    engine = make_engine()
    scrape = Scrape(engine.scheduler.vllm_config)
    engine.reset_tier()
    scrape.observe(engine.scheduler.connector.get_kv_connector_stats(), engine=1)
    assert scrape("cache_resets_total", engine=1) == 1
    assert scrape("cache_resets_total", engine=0) == 0


def test_stock_stats_alone_are_taken_in(make_engine: Callable[..., Engine]) -> None:
    scrape = Scrape(make_engine().scheduler.vllm_config)
    stock = SimpleCPUOffloadStats()
    stock.increase_counter("vllm:simple_kv_offload_load_blocks_total", 4)
    scrape.observe(stock)
    assert "vllm:simple_kv_offload_load_blocks_total" in scrape.text()
    assert scrape("copied_blocks_total") == 0


def test_a_payload_that_nobody_knows_stops_ours_and_not_vllm(make_engine: Callable[..., Engine]) -> None:
    scrape = Scrape(make_engine().scheduler.vllm_config)
    scrape.prom.observe({"restore": {"of_a_later_version": {(): 1}}})
    scrape.prom.observe({"restore": {"cache_resets_total": {(): 1}}})
    assert scrape("cache_resets_total") == 0


def test_it_can_be_built_again_in_one_process(make_engine: Callable[..., Engine]) -> None:
    config = make_engine().scheduler.vllm_config
    from vllm.v1.metrics.prometheus import unregister_vllm_metrics

    for _ in range(2):
        unregister_vllm_metrics()
        kinds = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}
        ReStoreConnector.build_prom_metrics(config, kinds, ["model_name", "engine"], {0: [MODEL, "0"]})
    unregister_vllm_metrics()


def test_the_exposition_is_as_prometheus_wants_it(run: tuple[Engine, Scrape]) -> None:
    """What `promtool check metrics` looks at: names, units, types, help."""
    _, scrape = run
    families = {
        f.name: f
        for f in text_string_to_metric_families(scrape.text())
        if f.name.startswith(PREFIX) and not f.name.endswith("_created")
    }

    assert set(families) == {PREFIX + m.name.removesuffix("_total") for m in (*METRICS, INFO)}
    for metric in (*METRICS, INFO):
        family = families[PREFIX + metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        assert family.documentation.endswith(".")
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert not any(unit in metric.name for unit in ("_ms", "_ns", "milli", "percent", "_mb", "_kb", "count"))
        if metric.kind == "histogram":
            assert list(metric.buckets) == sorted(metric.buckets)
    assert all(set(m.labels).isdisjoint({"le", "quantile", "model_name", "engine"}) for m in METRICS)
