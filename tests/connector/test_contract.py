"""What the connector leans on in vLLM: each signature and each attribute, by name, so that an upgrade that moves one
says which. `docs/vllm-versions.md` tells what to do then."""

import dataclasses
import inspect
import itertools
import re

import pytest
import torch
import vllm
from configs import full_attention, kv_cache_config
from harness import STOCK, Engine, prompt
from invariants import findable
from leanings import SOURCES, Recording, foreign_names, resolve
from regimes import settings
from traffic import Player, actions
from vllm.config import VllmConfig
from vllm.v1.simple_kv_offload.metadata import SimpleCPUOffloadMetadata, SimpleCPUOffloadWorkerMetadata
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

from connector.policy import Policy
from connector.worker import HostCopyWorker
from connector.worker_meta import ReStoreWorkerMetadata

SUPPORTED = "0.32."

MANAGER = "vllm.v1.simple_kv_offload.manager"
WORKER = "vllm.v1.simple_kv_offload.worker"
METADATA = "vllm.v1.simple_kv_offload.metadata"
METRICS = "vllm.v1.simple_kv_offload.metrics"
CONNECTOR = "vllm.distributed.kv_transfer.kv_connector.v1.simple_cpu_offload_connector"
POOL = "vllm.v1.core.block_pool"
UTILS = "vllm.v1.core.kv_cache_utils"

# Overridden, or called by position or name. Parameters are those that vLLM has beside `self`.
SIGNATURES = {
    f"{MANAGER}:SimpleCPUOffloadScheduler": {
        "get_num_new_matched_tokens": "request num_computed_tokens",
        "update_state_after_alloc": "request blocks num_external_tokens",
        "request_finished": "request block_ids",
        "_queue_finished_eager_store": "request block_ids",
        "build_connector_meta": "scheduler_output",
        "_select_eager_blocks_to_store": "state block_ids_by_group",
        "update_connector_output": "connector_output",
        "_process_store_event": "event_idx",
        "_process_store_completion": "gpu_block_ids cpu_block_ids block_meta",
        "reset": "",
        "_release_transfer_refs": "transfer",
        "_cleanup_store_request": "req_id",
        "_cached_gpu_block": "resolved_hashes block_idx group_id",
        "has_pending_stores": "",
    },
    f"{WORKER}:SimpleCPUOffloadWorker": {
        "register_kv_caches": "kv_caches",
        "start_load_kv": "",
        "wait_for_save": "",
        "get_finished": "finished_req_ids",
        "build_connector_worker_meta": "",
        "handle_preemptions": "kv_connector_metadata",
        "bind_connector_metadata": "metadata",
        "clear_connector_metadata": "",
    },
    f"{METADATA}:SimpleCPUOffloadWorkerMetadata": {"aggregate": "other"},
    f"{CONNECTOR}:SimpleCPUOffloadConnector": {
        "__init__": "vllm_config role kv_cache_config",
        "on_new_request": "request",
        "bind_kv_cache_manager": "kv_cache_manager",
        "get_block_ids_with_load_errors": "",
        "get_kv_connector_stats": "",
        "get_transfer_results": "finished_req_ids",
        "shutdown": "",
    },
    f"{METRICS}:SimpleCPUOffloadStats": {"aggregate": "other"},
    f"{METRICS}:SimpleCPUOffloadPromMetrics": {
        "__init__": "vllm_config metric_types labelnames per_engine_labelvalues",
        "observe": "transfer_stats_data engine_idx",
    },
    "vllm.distributed.kv_transfer.kv_connector.factory:KVConnectorFactory": {
        "register_connector": "name module_path class_name"
    },
    f"{POOL}:BlockPool": {
        "get_new_blocks": "num_blocks",
        "free_blocks": "ordered_blocks",
        "touch": "blocks",
        "get_num_free_blocks": "",
        "evict_blocks": "block_ids",
    },
    f"{POOL}:BlockHashToBlockMap": {"get_one_block": "key"},
    f"{UTILS}:FreeKVCacheBlockQueue": {"remove": "block", "append_n": "blocks", "prepend_n": "blocks"},
    UTILS: {
        "generate_block_hash_extra_keys": "request start_token_idx end_token_idx start_mm_idx",
        "make_block_hash_with_group_id": "block_hash group_id",
        "maybe_convert_block_hash": "hash_bytes",
        "resolve_block_hashes": (
            "block_hashes hash_block_size block_size supports_fine_grained_hash_lookup alignment_tokens"
        ),
        "resolve_kv_cache_block_sizes": "kv_cache_config vllm_config",
    },
}

# Built by us, by these names.
FIELDS = {
    f"{MANAGER}:StoreRequestState": "request block_ids num_stored_blocks",
    f"{MANAGER}:TransferMeta": "gpu_block_ids cpu_block_ids block_meta",
    f"{MANAGER}:BlockStoreMeta": "token_ids parent_block_hash lora_id lora_name extra_keys block_size",
    f"{METADATA}:SimpleCPUOffloadWorkerMetadata": "completed_store_events",
}

# Read by us, by class. Methods that have a signature above are not repeated.
ATTRIBUTES = {
    f"{MANAGER}:SimpleCPUOffloadScheduler": (
        "_abandoned_reqs_to_load _gpu_block_pool _in_flight_store_gpu_blocks _lazy_mode _pending_cpu_hits "
        "_pending_finished_stores _reqs_to_load _reqs_to_store _store_event_to_blocks _store_event_to_reqs "
        "cpu_block_pool cpu_coordinator cpu_kv_cache_config enable_kv_cache_events fa_gidx group_block_sizes "
        "hash_block_size kv_cache_config kv_event_medium num_cpu_blocks prefix_cacheable_group_ids"
    ),
    f"{MANAGER}:StoreRequestState": "block_ids finished num_stored_blocks request store_events",
    f"{MANAGER}:LoadRequestState": "load_event transfer_meta",
    f"{MANAGER}:TransferMeta": "cpu_block_ids gpu_block_ids",
    f"{METADATA}:SimpleCPUOffloadMetadata": (
        "load_cpu_blocks load_event load_event_to_reqs load_gpu_blocks need_flush store_cpu_blocks store_event "
        "store_gpu_blocks"
    ),
    f"{METADATA}:SimpleCPUOffloadWorkerMetadata": "completed_store_events",
    f"{WORKER}:SimpleCPUOffloadWorker": (
        "_completed_store_events _connector_metadata _pending_load_event_indices _pending_store_event_indices "
        "cpu_capacity_bytes disk_mode kv_cache_config num_cpu_blocks"
    ),
    f"{CONNECTOR}:SimpleCPUOffloadConnector": "_kv_transfer_config scheduler_manager worker_handler",
    f"{POOL}:BlockPool": "blocks cached_block_hash_to_block free_block_queue metrics_collector num_gpu_blocks",
    f"{POOL}:BlockHashToBlockMap": "",
    f"{UTILS}:FreeKVCacheBlockQueue": "fake_free_list_head fake_free_list_tail num_free_blocks",
    f"{UTILS}:KVCacheBlock": "block_hash block_hash_num_tokens block_id is_null next_free_block ref_cnt",
    "vllm.v1.request:Request": (
        "all_token_ids arrival_time block_hashes kv_transfer_params lora_request num_computed_tokens "
        "num_output_placeholders num_output_tokens num_preemptions num_prompt_tokens num_tokens request_id resumable "
        "session_id skip_reading_prefix_cache status"
    ),
    "vllm.lora.request:LoRARequest": "adapter_id name",
    "vllm.v1.outputs:KVConnectorOutput": "failed_recving finished_recving invalid_block_ids kv_connector_worker_meta",
    "vllm.v1.core.sched.output:SchedulerOutput": (
        "num_scheduled_tokens preempted_req_ids scheduled_cached_reqs total_num_scheduled_tokens"
    ),
    "vllm.v1.core.sched.output:CachedRequestData": "new_block_ids num_computed_tokens req_ids",
    "vllm.v1.core.kv_cache_manager:KVCacheManager": "coordinator",
    "vllm.v1.core.kv_cache_coordinator:KVCacheCoordinator": (
        "eagle_group_ids get_num_cacheable_tokens single_type_managers"
    ),
    "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager": (
        "has_positionally_stable_blocks req_to_blocks use_eagle"
    ),
    "vllm.v1.kv_cache_interface:KVCacheConfig": "kv_cache_groups kv_cache_tensors num_blocks",
    "vllm.v1.kv_cache_interface:KVCacheGroupSpec": "kv_cache_spec",
    "vllm.v1.kv_cache_interface:KVCacheTensor": "block_stride layer_stride layers offset size",
    "vllm.config:VllmConfig": "kv_transfer_config model_config num_speculative_tokens parallel_config",
    "vllm.config:ModelConfig": "served_model_name",
    "vllm.config:ParallelConfig": "data_parallel_index",
    "vllm.config:KVTransferConfig": "engine_id kv_connector_extra_config",
}
# Of vLLM's own values; nothing of these can be recorded.
MEMBERS = {
    "vllm.v1.kv_cache_interface:SlidingWindowSpec": "block_size sliding_window",
    "vllm.v1.kv_cache_interface:ChunkedLocalAttentionSpec": "attention_chunk_size block_size",
    "vllm.v1.kv_cache_interface:UniformTypeKVCacheSpecs": "kv_cache_specs",
    "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorRole": "SCHEDULER",
    "vllm.distributed.kv_transfer.kv_connector.v1.base:KVConnectorTransferResults": "failed_recving",
    "vllm.platforms:current_platform": "is_cpu",
}


def test_vllm_is_the_version_that_was_read():
    assert vllm.__version__.startswith(SUPPORTED), (
        f"vLLM {vllm.__version__} is not {SUPPORTED}x: read docs/vllm-versions.md before this number is changed"
    )


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in SIGNATURES.items() for n in names])
def test_signature_is_as_it_was(where, name):
    function = getattr(resolve(where), name, None)
    assert function is not None, f"vLLM's {where} has no {name} any more"
    parameters = " ".join(p for p in inspect.signature(function).parameters if p != "self")
    assert parameters == SIGNATURES[where][name], f"the parameters of {where}.{name} are now: {parameters}"


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in FIELDS.items() for n in names.split()])
def test_field_is_there(where, name):
    assert name in {f.name for f in dataclasses.fields(resolve(where))}, f"vLLM's {where} has no field {name} any more"


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    """What the connector reads in every regime that makes it read something else."""
    folder = tmp_path_factory.mktemp("contract")
    with Recording(ATTRIBUTES) as done:
        for number, (layout, features, policy, cpu_blocks) in enumerate(RUNS):
            _run_engine(folder / str(number), settings(layout, features), policy, cpu_blocks)
        _run_worker()
    return done


RUNS = (
    ("plain", ("events", "async"), Policy(), 12),
    ("window", ("events",), Policy(mode="rescan"), 40),
    ("mamba", ("context parallel",), Policy(), 20),
    ("large full", ("events",), Policy(), 70),
    ("plain", (), Policy(enabled=False), 16),
    ("window", (), Policy(retention="adaptive"), 12),
)


def _run_engine(folder, shape, policy, cpu_blocks):
    engine = Engine(folder, gpu_blocks=48, cpu_blocks=cpu_blocks, copy_steps=1, policy=policy, **shape)
    copies = itertools.count()
    engine.conditions.fails = lambda rank, is_store: None if next(copies) % 4 else "every fourth"
    player = Player(engine)
    for action in actions(1, 80, owners=True, sessions=True):
        player.play(action)
        if action.kind == "step":
            for key in sorted(findable(engine))[:1]:
                engine.evict_key(key)
    engine.close()


def _run_worker():
    config = kv_cache_config([full_attention()], 4)
    worker = HostCopyWorker(SimpleCPUOffloadWorker(VllmConfig(), config, 4 * full_attention().page_size_bytes))
    cache = torch.zeros(4 * full_attention().page_size_bytes, dtype=torch.int8)
    worker.register_kv_caches({"layer.0": cache})
    for load_from in (1, 99):  # the second fails
        meta = SimpleCPUOffloadMetadata(
            load_event=load_from,
            load_gpu_blocks=[2],
            load_cpu_blocks=[load_from],
            load_event_to_reqs={load_from: ["r"]},
            store_event=load_from,
            store_gpu_blocks=[1],
            store_cpu_blocks=[1],
            need_flush=True,
        )
        worker.bind_connector_metadata(meta)
        worker.start_load_kv()
        worker.wait_for_save()
        worker.handle_preemptions(meta)
        worker.get_finished(set())
        worker.build_connector_worker_meta().aggregate(ReStoreWorkerMetadata({load_from: 1}))
    worker.shutdown()


@pytest.fixture(scope="module")
def stock(tmp_path_factory):
    """Objects of the classes that we subclass, so that what they have can be told from what we add."""
    engine = Engine(tmp_path_factory.mktemp("stock"), connector=STOCK)
    config = kv_cache_config([full_attention()], 4)
    yield {
        f"{MANAGER}:SimpleCPUOffloadScheduler": engine.manager,
        f"{CONNECTOR}:SimpleCPUOffloadConnector": engine.connector,
        f"{WORKER}:SimpleCPUOffloadWorker": SimpleCPUOffloadWorker(VllmConfig(), config, 4_096),
        f"{METADATA}:SimpleCPUOffloadWorkerMetadata": SimpleCPUOffloadWorkerMetadata({}),
    }
    engine.close()


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in ATTRIBUTES.items() for n in names.split()])
def test_attribute_is_there(recording, stock, where, name):
    found = stock.get(where) or recording.instances.get(where)
    assert found is not None, f"no {where} came by: vLLM uses another class now"
    assert hasattr(found, name), f"vLLM's {where} has no {name} any more"


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in MEMBERS.items() for n in names.split()])
def test_member_is_there(where, name):
    found = resolve(where)
    assert hasattr(found, name) or name in {f.name for f in dataclasses.fields(found)}, f"vLLM's {where} has no {name}"


@pytest.mark.parametrize("where", ATTRIBUTES)
def test_what_is_read_is_what_is_listed(recording, stock, where):
    signed = set().union(*SIGNATURES.values())
    read = {name for name in recording.names[where] if where not in stock or hasattr(stock[where], name)} - signed
    listed = set(ATTRIBUTES[where].split())
    unlisted, unread = sorted(read - listed), sorted(listed - read)
    assert not unlisted, f"the connector reads {unlisted} of {where}, which this contract does not list"
    assert not unread, f"the connector reads {unread} of {where} no longer, or in no run here"


def test_every_name_in_the_source_is_listed():
    """Also on a path that no run takes. Only names that the connector itself has as well can hide from this."""
    listed = {n for table in (ATTRIBUTES, MEMBERS, FIELDS) for names in table.values() for n in names.split()}
    listed |= {name for names in SIGNATURES.values() for name in names}
    unlisted = {name: place for name, place in foreign_names().items() if name not in listed}
    assert not unlisted, f"the connector reads what this contract does not list: {unlisted}"


def test_every_stock_method_that_is_called_or_overridden_is_named_here():
    """The tables above follow the connector's source."""
    named = {name for names in SIGNATURES.values() for name in names}
    for file in ("kv_connector.py", "scheduler.py", "worker.py", "worker_meta.py"):
        called = set(re.findall(r"super\(\)\.(\w+)\(", (SOURCES / file).read_text()))
        assert called <= named, f"{file} calls {sorted(called - named)}, which this contract does not name"
    for ours, stock in (
        ("connector.scheduler:ReStoreScheduler", f"{MANAGER}:SimpleCPUOffloadScheduler"),
        ("connector.worker:HostCopyWorker", f"{WORKER}:SimpleCPUOffloadWorker"),
        ("connector.kv_connector:ReStoreConnector", f"{CONNECTOR}:SimpleCPUOffloadConnector"),
    ):
        functions = {n for n, value in vars(resolve(ours)).items() if inspect.isfunction(value)}
        overridden = {n for n in functions if hasattr(resolve(stock), n)} - {"__init__"}
        assert overridden <= named, f"{ours} overrides {sorted(overridden - named)}, which this contract does not name"


def test_key_is_a_hash_and_its_group_in_four_bytes():
    from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id, make_block_hash_with_group_id

    from connector.journal import group_of, hash_of

    key = make_block_hash_with_group_id(bytes(range(32)), 7)
    assert hash_of(key) == get_block_hash(key) == bytes(range(32))
    assert group_of(key) == get_group_id(key) == 7


def test_pool_tells_its_collector_of_an_eviction_before_it_forgets_the_hash(make_engine):
    engine = make_engine()
    engine.add("a", prompt(0, 2))
    engine.steps(2)
    key = engine.keys("a")[1]
    engine.evict_key(key)
    assert [k for _, k in engine.manager._tier._observer._evicted] == [key]


def test_copies_that_wait_for_the_next_step_leave_with_it(make_engine):
    """A re-store is put into the stock queue of finished requests' stores."""
    engine = make_engine(cpu_blocks=33)
    engine.add("a", prompt(0, 2))
    engine.steps(2)
    engine.evict("a", 0)
    engine.finish("a")
    (waiting,) = engine.manager._pending_finished_stores
    step = engine.step()
    assert step.meta.store_gpu_blocks == waiting.gpu_block_ids
    assert engine.manager._pending_finished_stores == []


def test_selection_is_asked_for_each_scheduled_request(make_engine, monkeypatch):
    engine = make_engine(cpu_blocks=33)
    asked = []
    inner = engine.manager._select_eager_blocks_to_store
    monkeypatch.setattr(
        engine.manager,
        "_select_eager_blocks_to_store",
        lambda state, ids: (asked.append(state.request.request_id), inner(state, ids))[1],
    )
    engine.add("a", prompt(0, 2))
    engine.add("b", prompt(1, 2))
    engine.steps(2)
    assert asked == ["a", "b", "a", "b"]
    engine.finish("a")
    assert asked[-1] == "a"
