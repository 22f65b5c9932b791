"""What the connector leans on in vLLM: each signature and each attribute, by name, so that an upgrade that moves one
says which. `docs/vllm-versions.md` tells what to do then."""

import dataclasses
import importlib
import inspect
import re
from functools import reduce
from pathlib import Path

import pytest
import vllm
from harness import prompt

SUPPORTED = "0.32."
SOURCES = Path(__file__).resolve().parents[2] / "connector"

MANAGER = "vllm.v1.simple_kv_offload.manager"
WORKER = "vllm.v1.simple_kv_offload.worker"
METADATA = "vllm.v1.simple_kv_offload.metadata"
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
        "get_transfer_results": "finished_req_ids",
        "shutdown": "",
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

FIELDS = {
    f"{MANAGER}:StoreRequestState": "request block_ids num_stored_blocks store_events finished",
    f"{MANAGER}:LoadRequestState": "request transfer_meta load_event finished",
    f"{MANAGER}:TransferMeta": "gpu_block_ids cpu_block_ids block_meta",
    f"{MANAGER}:BlockStoreMeta": "token_ids parent_block_hash lora_id lora_name extra_keys block_size",
    f"{METADATA}:SimpleCPUOffloadMetadata": (
        "load_event load_gpu_blocks load_cpu_blocks load_event_to_reqs store_event store_gpu_blocks store_cpu_blocks "
        "need_flush"
    ),
    f"{METADATA}:SimpleCPUOffloadWorkerMetadata": "completed_store_events",
    "vllm.v1.outputs:KVConnectorOutput": "finished_recving kv_connector_worker_meta invalid_block_ids failed_recving",
    "vllm.v1.core.sched.output:SchedulerOutput": ("num_scheduled_tokens total_num_scheduled_tokens preempted_req_ids"),
}

# Read from a live engine, starting at its scheduler half or at a request.
ATTRIBUTES = (
    "manager._abandoned_reqs_to_load",
    "manager._gpu_block_pool.blocks",
    "manager._in_flight_store_gpu_blocks",
    "manager._lazy_mode",
    "manager._pending_finished_stores",
    "manager._reqs_to_load",
    "manager._reqs_to_store",
    "manager._store_event_to_blocks",
    "manager._store_event_to_reqs",
    "manager.cpu_block_pool.blocks",
    "manager.cpu_block_pool.cached_block_hash_to_block",
    "manager.cpu_block_pool.free_block_queue.fake_free_list_head.next_free_block",
    "manager.cpu_block_pool.free_block_queue.fake_free_list_tail",
    "manager.cpu_block_pool.free_block_queue.num_free_blocks",
    "manager.cpu_block_pool.metrics_collector",
    "manager.cpu_block_pool.num_gpu_blocks",
    "manager.cpu_coordinator.get_num_cacheable_tokens",
    "manager.cpu_coordinator.single_type_managers",
    "manager.cpu_kv_cache_config.kv_cache_tensors",
    "manager.enable_kv_cache_events",
    "manager.group_block_sizes",
    "manager.hash_block_size",
    "manager.kv_cache_config.num_blocks",
    "manager.kv_event_medium",
    "manager.num_cpu_blocks",
    "manager.prefix_cacheable_group_ids",
    "block.block_hash",
    "block.block_hash_num_tokens",
    "block.block_id",
    "block.is_null",
    "block.ref_cnt",
    "group.has_positionally_stable_blocks",
    "group.req_to_blocks",
    "request.all_token_ids",
    "request.arrival_time",
    "request.block_hashes",
    "request.lora_request",
    "request.num_computed_tokens",
    "request.num_output_placeholders",
    "request.num_output_tokens",
    "request.num_preemptions",
    "request.num_prompt_tokens",
    "request.num_tokens",
    "request.session_id",
    "request.skip_reading_prefix_cache",
    "request.status.name",
)


def _resolve(where):
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def test_vllm_is_the_version_that_was_read():
    assert vllm.__version__.startswith(SUPPORTED), (
        f"vLLM {vllm.__version__} is not {SUPPORTED}x: read docs/vllm-versions.md before this number is changed"
    )


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in SIGNATURES.items() for n in names])
def test_signature_is_as_it_was(where, name):
    function = getattr(_resolve(where), name, None)
    assert function is not None, f"vLLM's {where} has no {name} any more"
    parameters = " ".join(p for p in inspect.signature(function).parameters if p != "self")
    assert parameters == SIGNATURES[where][name], f"the parameters of {where}.{name} are now: {parameters}"


@pytest.mark.parametrize(("where", "name"), [(w, n) for w, names in FIELDS.items() for n in names.split()])
def test_field_is_there(where, name):
    assert name in {f.name for f in dataclasses.fields(_resolve(where))}, f"vLLM's {where} has no field {name} any more"


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    from harness import Engine

    engine = Engine(tmp_path_factory.mktemp("contract"))
    request = engine.add("a", prompt(0, 2))
    engine.step()
    manager = engine.manager
    yield {
        "manager": manager,
        "request": request,
        "block": manager.cpu_block_pool.blocks[1],
        "group": manager.cpu_coordinator.single_type_managers[0],
    }
    engine.close()


@pytest.mark.parametrize("path", ATTRIBUTES)
def test_attribute_is_there(roots, path):
    root, *names = path.split(".")
    missing = object()
    found = reduce(lambda value, name: getattr(value, name, missing), names, roots[root])
    assert found is not missing, f"vLLM has no {path} any more"


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
        functions = {n for n, value in vars(_resolve(ours)).items() if inspect.isfunction(value)}
        overridden = {n for n in functions if hasattr(_resolve(stock), n)} - {"__init__"}
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
