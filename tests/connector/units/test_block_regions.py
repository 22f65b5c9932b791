"""Which bytes are a block: layouts worked out by hand, and the same regions as vLLM's own worker registers."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from vllm.config import VllmConfig
from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheTensor
from vllm.v1.simple_kv_offload.worker import SimpleCPUOffloadWorker

from connector.worker import HostCopyWorker, block_regions

CALM = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def allocation(size):
    """`size` bytes in which byte i has the value i modulo 251."""
    return (torch.arange(size) % 251).to(torch.uint8).view(torch.int8)


def config(num_blocks, *tensors):
    return KVCacheConfig(num_blocks=num_blocks, kv_cache_tensors=list(tensors), kv_cache_groups=[])


def placement(size, layers, layer_stride, block_stride, offset=0):
    return KVCacheTensor(size=size, layers=layers, layer_stride=layer_stride, block_stride=block_stride, offset=offset)


def spans(regions, memory):
    """Each region as (where it starts in `memory`, blocks, bytes of a block)."""
    return [(r.data_ptr() - memory.data_ptr(), *r.shape) for r in regions]


def test_layer_outermost_gives_a_region_a_layer():
    # 2 layers of 3 blocks of 8 bytes: layer 1 begins at byte 24.
    memory = allocation(48)
    caches = {"a": memory[:24].view(3, 8), "b": memory[24:].view(3, 8)}
    regions = block_regions(caches, config(3, placement(48, ["a", "b"], layer_stride=24, block_stride=8)))
    assert spans(regions, memory) == [(0, 3, 8), (24, 3, 8)]
    assert regions[1][2].tolist() == list(range(40, 48))


def test_layer_outermost_may_begin_behind_an_offset():
    memory = allocation(16 + 48)
    regions = block_regions({"b": memory}, config(3, placement(64, ["a", "b"], 24, 8, offset=16)))
    assert spans(regions, memory) == [(16, 3, 8), (40, 3, 8)]


def test_layer_with_two_halves_gives_a_region_a_half():
    # A layer's stride is two spans of all blocks: keys, then values.
    memory = allocation(2 * 48)
    regions = block_regions({"a": memory}, config(3, placement(96, ["a", "b"], layer_stride=48, block_stride=8)))
    assert spans(regions, memory) == [(0, 3, 8), (24, 3, 8), (48, 3, 8), (72, 3, 8)]


def test_block_outermost_gives_one_region_of_packed_blocks():
    # 3 blocks of 16 bytes, in each block layer a's page of 8 and layer b's page of 8.
    memory = allocation(48)
    regions = block_regions({"a": memory, "b": memory}, config(3, placement(48, ["a", "b"], 8, 16)))
    assert spans(regions, memory) == [(0, 3, 16)]
    assert regions[0][1].tolist() == list(range(16, 32))


def test_groups_that_overlay_each_other_in_packed_blocks_appear_once():
    # Two groups share the blocks of one allocation; the second's pages begin at byte 8 of a block.
    memory = allocation(48)
    tensors = [placement(48, ["a"], 8, 16), placement(48, ["b"], 8, 16, offset=8)]
    regions = block_regions({"a": memory, "b": memory[8:]}, config(3, *tensors))
    assert spans(regions, memory) == [(0, 3, 16)]


def test_layers_that_share_an_allocation_appear_once():
    memory = allocation(24)
    tensors = [placement(24, ["a"], 24, 8), placement(24, ["b"], 24, 8)]
    regions = block_regions({"a": memory, "b": memory}, config(3, *tensors))
    assert spans(regions, memory) == [(0, 3, 8)]


def test_allocations_of_different_page_size_each_give_their_regions():
    first, second = allocation(24), allocation(60)
    regions = block_regions(
        {"a": first, "b": second}, config(3, placement(24, ["a"], 24, 8), placement(60, ["b"], 60, 20))
    )
    assert spans(regions[:1], first) == [(0, 3, 8)]
    assert spans(regions[1:], second) == [(0, 3, 20)]


def test_layers_without_a_cache_here_are_left_out():
    memory = allocation(24)
    tensors = [placement(24, ["elsewhere"], 24, 8), placement(24, ["gone", "b"], 12, 4)]
    regions = block_regions({"b": memory}, config(3, *tensors))
    assert spans(regions, memory) == [(0, 3, 4), (12, 3, 4)]
    assert block_regions({"unknown": memory}, config(3, *tensors)) == []


def test_any_shape_and_type_is_seen_as_the_bytes_of_its_storage():
    cache = torch.arange(24, dtype=torch.float32).view(3, 2, 2, 2).permute(1, 0, 3, 2)
    regions = block_regions({"a": cache}, config(3, placement(96, ["a"], 96, 32)))
    assert regions[0][1].view(torch.float32).tolist() == list(range(8, 16))


def test_region_is_the_memory_itself():
    memory = allocation(24)
    block_regions({"a": memory}, config(3, placement(24, ["a"], 24, 8)))[0][1] = 0
    assert memory.tolist() == [*range(8), *([0] * 8), *range(16, 24)]


@pytest.mark.parametrize(
    ("size", "tensor", "reach"),
    [
        (47, placement(48, ["a", "b"], 24, 8), 48),
        (47, placement(48, ["a", "b"], 8, 16), 48),
        (63, placement(64, ["a", "b"], 24, 8, offset=16), 64),
        (0, placement(24, ["a"], 24, 8), 24),
    ],
)
def test_allocation_that_is_too_small_is_refused(size, tensor, reach):
    with pytest.raises(ValueError, match=rf"KV cache 'a' has {size} bytes, but its blocks reach to byte {reach}"):
        block_regions({"a": allocation(size)}, config(3, tensor))


# --- the same as vLLM's own ------------------------------------------------------------------------------------------


@st.composite
def layouts(draw):
    """One to three allocations, each layer-outermost or packed, some layers of other ranks, some shared."""
    num_blocks = draw(st.integers(1, 5))
    caches, tensors = {}, []
    for n in range(draw(st.integers(1, 3))):
        layers = [f"{n}.{i}" for i in range(draw(st.integers(1, 3)))]
        page = 4 * draw(st.integers(1, 6))
        if draw(st.booleans()):
            halves = draw(st.integers(1, 2))
            offset = draw(st.sampled_from([0, 16, 64]))
            layer_stride = halves * page * num_blocks
            size = offset + len(layers) * layer_stride + draw(st.sampled_from([0, 12]))
            tensor = placement(size, layers, layer_stride, page, offset)
        else:
            block = page * (len(layers) + draw(st.integers(0, 1)))
            size = num_blocks * block
            # A packed placement may begin behind another one's pages, but a lone page fills its block.
            offset = page if page < size and block > page * len(layers) else 0
            tensor = placement(size, layers, page, block, offset)
        memory = allocation(size)
        here = draw(st.lists(st.sampled_from(layers), min_size=1, unique=True))
        caches |= dict.fromkeys(here, memory)
        tensors += [tensor] * draw(st.integers(1, 2))
    return caches, config(num_blocks, *tensors)


@cache
def vllm_config():
    return VllmConfig()


def stock_worker(kv_cache_config, capacity):
    return SimpleCPUOffloadWorker(vllm_config(), kv_cache_config, capacity)


class NoStream(SimpleNamespace):
    """Takes the place of a CUDA stream, of which this machine has none."""

    @staticmethod
    def priority_range():
        return (0, 0)


@CALM
@given(layouts(), st.integers(1, 4000))
def test_regions_and_size_of_the_tier_are_those_of_vllms_own_worker(layout, capacity):
    caches, kv_cache_config = layout
    stock = stock_worker(kv_cache_config, capacity)
    # Only what needs a GPU is left out: its streams, and the copy engine that is built last.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "Stream", NoStream)
        patch.setattr(stock, "_init_cpu_mode", lambda *_: None)
        stock.register_kv_caches(caches)
    ours = HostCopyWorker(stock_worker(kv_cache_config, capacity))
    ours.register_kv_caches(caches)
    ours.shutdown()
    assert stock.gpu_kv_caches is not None
    assert [(r.data_ptr(), r.shape, r.stride(), r.dtype) for r in block_regions(caches, kv_cache_config)] == [
        (r.data_ptr(), r.shape, r.stride(), r.dtype) for r in stock.gpu_kv_caches.values()
    ]
    assert ours.num_cpu_blocks == stock.num_cpu_blocks
