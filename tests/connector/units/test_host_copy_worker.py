"""The host copy worker: bytes arrive where they should, in order, and every job is reported exactly once."""

import pickle
import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

from connector.worker import HostCopyWorker
from connector.worker_meta import ReStoreWorkerMetadata

CALM = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
NUM_GPU, NUM_CPU = 6, 4
PAGES = {"a": 8, "b": 24}
BLOCK_BYTES = sum(PAGES.values())


class Machine:
    """A worker over a small KV cache of two layers, driven as vLLM's model runner drives it."""

    def __init__(self, pages=PAGES, num_gpu=NUM_GPU, num_cpu=NUM_CPU, num_groups=1):
        generator = torch.Generator().manual_seed(1)
        self.caches = {
            name: torch.randint(-128, 128, (num_gpu, page), dtype=torch.int8, generator=generator)
            for name, page in pages.items()
        }
        tensors = [
            KVCacheTensor(size=num_gpu * page, layers=[name], layer_stride=num_gpu * page, block_stride=page)
            for name, page in pages.items()
        ]
        spec = FullAttentionSpec(block_size=16, num_kv_heads=1, head_size=8, dtype=torch.float32)
        layers = list(pages)
        groups = [KVCacheGroupSpec(layers[g::num_groups], spec) for g in range(num_groups)]
        config = KVCacheConfig(num_gpu, tensors, groups)
        stock = SimpleCPUOffloadWorker(VllmConfig(), config, num_cpu * sum(pages.values()))
        self.worker = HostCopyWorker(stock)
        self.events = 0

    def register(self):
        self.worker.register_kv_caches(self.caches)
        return self

    def block(self, index):
        """Bytes of a block of the KV cache, all layers."""
        return b"".join(bytes(c[index].view(torch.uint8).tolist()) for c in self.caches.values())

    def fill(self, index, value):
        for cache in self.caches.values():
            cache[index] = value

    def step(self, load=(), store=(), requests=("r",)):
        """One step: (from, to) pairs of a load and a store. What it reports: (loaded requests, load errors, meta)."""
        meta = SimpleCPUOffloadMetadata()
        if load:
            meta.load_event = self.events
            meta.load_cpu_blocks, meta.load_gpu_blocks = [list(x) for x in zip(*load, strict=True)]
            meta.load_event_to_reqs = {self.events: list(requests)}
            self.events += 1
        if store:
            meta.store_event = self.events
            meta.store_gpu_blocks, meta.store_cpu_blocks = [list(x) for x in zip(*store, strict=True)]
            self.events += 1
        return self.run(meta)

    def run(self, meta):
        self.worker.handle_preemptions(meta)
        self.worker.bind_connector_metadata(meta)
        self.worker.start_load_kv()
        self.worker.wait_for_save()
        report = self.report()
        self.worker.clear_connector_metadata()
        return report

    def report(self):
        sent, loaded = self.worker.get_finished(set())
        assert sent is None
        return loaded or set(), self.worker.take_load_errors(), self.worker.build_connector_worker_meta()

    def drain(self):
        """Let every copy end, as before a preemption, and collect what is reported then."""
        return self.run(SimpleCPUOffloadMetadata(need_flush=True))


@pytest.fixture
def machine():
    made = Machine().register()
    yield made
    made.worker.shutdown()


def completed(*reports):
    """Store events in all reports, in the order in which they were reported; each report names each once."""
    events = []
    for _, _, meta in reports:
        if meta is not None:
            assert set(meta.completed_store_events.values()) <= {1}
            events += meta.completed_store_events
    return events


def test_block_comes_back_as_it_was_stored(machine):
    before = machine.block(2)
    reports = [machine.step(store=[(2, 1)]), machine.drain()]
    machine.fill(2, 0)
    machine.fill(5, 0)
    reports += [machine.step(load=[(1, 5)]), machine.drain()]
    assert machine.block(5) == before
    assert machine.block(2) == bytes(BLOCK_BYTES)
    assert completed(*reports) == [0]
    assert [loaded for loaded, _, _ in reports if loaded] == [{"r"}]


def test_tier_holds_as_many_blocks_as_its_bytes_allow():
    machine = Machine(num_cpu=3).register()
    assert machine.worker.num_cpu_blocks == 3
    machine.worker.shutdown()


BLOCKS = st.tuples(st.integers(0, NUM_GPU - 1), st.integers(0, NUM_CPU - 1))
PAIRS = st.lists(BLOCKS, min_size=1, max_size=NUM_CPU, unique_by=(lambda p: p[0], lambda p: p[1]))
STEPS = st.lists(
    st.tuples(st.none() | PAIRS, st.none() | PAIRS, st.booleans(), st.none() | st.integers(0, NUM_GPU - 1)), max_size=12
)


@CALM
@given(STEPS)
def test_any_steps_leave_the_bytes_that_doing_them_one_by_one_leaves(steps):
    machine = Machine().register()
    gpu = [machine.block(i) for i in range(NUM_GPU)]
    cpu = [bytes(BLOCK_BYTES)] * NUM_CPU
    reports, loads, stores = [], [], []
    for number, (load, store, flush, write) in enumerate(steps):
        if flush or write is not None:
            reports.append(machine.drain())
        if write is not None:  # the forward pass; only where no copy is under way
            machine.fill(write, number)
            gpu[write] = bytes([number]) * BLOCK_BYTES
        if load:
            loads.append(str(number))
            for g, c in load:
                gpu[g] = cpu[c]
        if store:
            stores.append(machine.events + bool(load))
            for g, c in store:
                cpu[c] = gpu[g]
        reports.append(machine.step([(c, g) for g, c in load or ()], store or (), [str(number)]))
    reports.append(machine.drain())
    assert [machine.block(i) for i in range(NUM_GPU)] == gpu
    for c in range(NUM_CPU):  # the tier is looked at through a load
        reports += [machine.step(load=[(c, c)], requests=()), machine.drain()]
        assert machine.block(c) == cpu[c]
    assert completed(*reports) == stores
    assert sorted(r for loaded, _, _ in reports for r in loaded) == sorted(loads)
    assert not any(errors for _, errors, _ in reports)
    machine.worker.shutdown()


def test_nothing_is_reported_before_it_was_asked_for_nor_twice(machine):
    assert machine.report() == (set(), set(), None)
    reports = [machine.step(load=[(0, 0)], store=[(1, 1)]), machine.drain()]
    assert completed(*reports) == [1]
    assert [r for loaded, _, _ in reports for r in loaded] == ["r"]
    assert machine.report() == (set(), set(), None)
    assert machine.drain() == (set(), set(), None)


def test_load_is_reported_for_all_its_requests_though_later_steps_do_not_name_it(machine):
    first = machine.step(load=[(0, 0), (1, 1)], requests=["r1", "r2"])
    later = machine.drain()
    assert first[0] | later[0] == {"r1", "r2"}


def test_flush_returns_only_when_every_copy_has_ended():
    machine = Machine(pages={"a": 1 << 20}, num_gpu=64, num_cpu=64).register()
    before = machine.caches["a"].clone()
    machine.step(store=[(i, 63 - i) for i in range(64)])
    machine.worker.handle_preemptions(SimpleCPUOffloadMetadata(need_flush=True))
    machine.caches["a"].zero_()  # the blocks are somebody else's now
    machine.step(load=[(63 - i, i) for i in range(64)])
    machine.worker.handle_preemptions(SimpleCPUOffloadMetadata(need_flush=True))
    assert torch.equal(machine.caches["a"], before)
    loaded, errors, meta = machine.report()
    assert (loaded or {"r"}, errors) == ({"r"}, set())
    assert meta is None or meta.failed_store_events == {}
    machine.worker.shutdown()


def test_store_that_fails_is_over_holds_nothing_and_is_said(machine):
    reports = [machine.step(store=[(NUM_GPU, 1)]), machine.drain()]
    assert completed(*reports) == [0]
    (failed,) = [meta.failed_store_events for _, _, meta in reports if meta is not None]
    assert list(failed) == [0]
    assert failed[0].startswith("store of 1 blocks: ")
    assert machine.report() == (set(), set(), None)


def test_load_that_fails_names_its_request_and_its_gpu_blocks_once(machine):
    before = [machine.block(i) for i in range(NUM_GPU)]
    reports = [machine.step(load=[(NUM_CPU, 3), (0, 4)], requests=["r1"]), machine.drain(), machine.drain()]
    assert [r for loaded, _, _ in reports for r in loaded] == ["r1"]
    # The blocks are said together with the request: vLLM reads both from one step's output.
    assert [(loaded, errors) for loaded, errors, _ in reports if loaded or errors] == [({"r1"}, {3, 4})]
    assert [machine.block(i) for i in range(NUM_GPU)] == before


def test_load_that_fails_names_its_requests_alone_where_blocks_belong_to_several_groups():
    machine = Machine(num_groups=2).register()
    machine.step(load=[(NUM_CPU, 3)], requests=["r1", "r2"])
    machine.worker.handle_preemptions(SimpleCPUOffloadMetadata(need_flush=True))
    loaded, errors, _ = machine.report()
    failed = machine.worker.take_failed_requests()
    # The first report may have been early enough to have had them.
    assert (loaded or {"r1", "r2"}, errors, failed) == ({"r1", "r2"}, set(), {"r1", "r2"})
    assert machine.worker.take_failed_requests() == set()
    machine.worker.shutdown()


def test_failure_does_not_touch_the_jobs_around_it(machine):
    before = machine.block(0)
    reports = [
        machine.step(store=[(0, 0)]),
        machine.step(store=[(99, 1)]),
        machine.step(load=[(99, 1)], requests=["bad"]),
        machine.step(load=[(0, 5)], requests=["good"], store=[(0, 2)]),
        machine.drain(),
    ]
    assert completed(*reports) == [0, 1, 4]
    assert {e for _, _, meta in reports if meta for e in meta.failed_store_events} == {1}
    assert set().union(*(loaded for loaded, _, _ in reports)) == {"bad", "good"}
    assert set().union(*(errors for _, errors, _ in reports)) == {1}
    assert machine.block(5) == before


def test_without_kv_caches_jobs_fail_and_are_reported():
    machine = Machine()
    machine.worker.register_kv_caches({})
    loaded, errors, meta = machine.step(load=[(0, 2)], store=[(1, 1)])
    assert loaded == {"r"}
    assert errors == {2}
    assert meta is not None
    assert meta.completed_store_events == {1: 1}
    assert "no KV cache was registered" in meta.failed_store_events[1]
    assert machine.drain() == (set(), set(), None)
    machine.worker.shutdown()


def copy_threads():
    return [t for t in threading.enumerate() if t.name == "restore-copy"]


def test_shutdown_does_what_was_asked_and_ends_the_thread():
    machine = Machine().register()
    assert len(copy_threads()) == 1
    report = machine.step(store=[(0, 0)])
    machine.worker.shutdown()
    assert copy_threads() == []
    assert completed(report, machine.report()) == [0]


def test_jobs_after_shutdown_fail_and_a_flush_returns():
    machine = Machine().register()
    machine.worker.shutdown()
    machine.worker.shutdown()
    _, _, meta = machine.step(store=[(0, 0)])
    assert meta is not None
    assert list(meta.failed_store_events) == [0]
    assert machine.drain() == (set(), set(), None)


def test_model_keeps_its_number_of_threads_here_and_in_threads_that_start_later(machine):
    before = torch.get_num_threads()
    machine.step(store=[(0, 0)])
    machine.drain()
    seen = []
    later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    later.start()
    later.join()
    assert [torch.get_num_threads(), *seen] == [before, before]


def test_tier_on_disk_is_refused_where_the_kv_cache_is_host_memory():
    stock = SimpleCPUOffloadWorker(VllmConfig(), None, 1, kv_offload_backend="disk", disk_path="x")
    with pytest.raises(ValueError, match='kv_offload_backend "disk" needs a KV cache on a GPU'):
        HostCopyWorker(stock)


# --- what crosses to the scheduler -----------------------------------------------------------------------------------


def test_reports_of_two_workers_add_up_and_one_failure_is_a_failure():
    first = ReStoreWorkerMetadata({1: 1, 2: 1})
    second = ReStoreWorkerMetadata({2: 1, 3: 1}, {2: "no"})
    for merged in (first.aggregate(second), second.aggregate(first)):
        assert merged.completed_store_events == {1: 1, 2: 2, 3: 1}
        assert merged.failed_store_events == {2: "no"}


def test_report_survives_the_way_to_another_process():
    meta = ReStoreWorkerMetadata({1: 1}, {1: "no"})
    assert pickle.loads(pickle.dumps(meta)) == meta
