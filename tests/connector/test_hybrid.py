"""Models with several KV-cache groups, and speculative decoding."""

from itertools import cycle

import pytest
from harness import BLOCK, full_attention, mamba, prompt, ring_buffer, sliding_window
from invariants import Watch, note_restores
from traffic import Player, actions

from connector.policy import Policy

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


def _align(config):
    config.cache_config.mamba_cache_mode = "align"


LAYOUTS = {
    "full and window": {"groups": [full_attention(), sliding_window(32)]},
    "two windows": {"groups": [full_attention(), sliding_window(32), sliding_window(64)]},
    "ring": {"groups": [full_attention(), ring_buffer()]},
    "large full": {"groups": [full_attention(32), sliding_window(32)]},
    "large window": {"groups": [full_attention(), sliding_window(64, 32)]},
    "mamba": {"groups": [full_attention(), mamba()], "configure": _align},
    "large mamba": {"groups": [full_attention(), mamba(32)], "configure": _align},
}


@BOTH
@pytest.mark.parametrize("layout", LAYOUTS)
def test_random_traffic_holds_in_every_layout(make_engine, layout, mode):
    """Window pages are nulled, freed and hashed again by others; none is copied under the wrong hash."""
    num_restored = 0
    for seed in range(3):
        engine = make_engine(
            gpu_blocks=60,
            cpu_blocks=24,
            copy_steps=seed,
            max_num_batched_tokens=96,
            policy=Policy(mode=mode, max_restore_blocks_per_step=seed),
            **LAYOUTS[layout],
        )
        watch = Watch(engine)
        orders = note_restores(engine)
        player = Player(engine)
        for action in actions(seed + 30, 70):
            if player.play(action) is not None:
                watch.check()
        engine.settle(2_000)
        watch.check()
        num_restored += sum(map(len, orders))
        watch.check_log()
        assert engine.sql("SELECT * FROM fault") == []
    assert num_restored > 0


@BOTH
def test_lost_block_of_each_group_comes_back(make_engine, mode):
    engine = make_engine(
        gpu_blocks=64, cpu_blocks=33, groups=[full_attention(), sliding_window(64)], policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    assert engine.in_cpu("a", 0) == [True] * 3
    there = engine.in_cpu("a", 1)
    assert there[-1]
    engine.evict("a", 1, group=0)
    engine.evict("a", 2, group=1)
    for _ in range(3):
        engine.step()
        watch.check()
    assert engine.in_cpu("a", 0) == [True] * 3
    assert engine.in_cpu("a", 1) == there
    engine.close()
    assert engine.sql("SELECT kv_group, first_index FROM blocks_restored ORDER BY 1") == [(0, 1), (1, 2)]


@BOTH
def test_pages_that_left_the_window_do_not_make_the_tier_too_small(make_engine, mode):
    """10 blocks and, of the window of 32 tokens, at most 3 pages are held; 10 pages went through it. A tier of 16 has
    room for what is held, so both modes take what was lost in the order of a scan (group, then index); were it too
    small, `tracked` would take the window's page, which is nearer the head, before the last full block."""
    engine = make_engine(
        gpu_blocks=64, cpu_blocks=17, groups=[full_attention(), sliding_window(32)], policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("a", prompt(0, 10))
    engine.steps(10)  # what the passing pages had pushed out is back
    orders = note_restores(engine)
    assert engine.in_cpu("a", 0) == [True] * 10
    full, page = engine.keys("a", 0)[9], engine.keys("a", 1)[8]
    for key in (full, page):
        assert engine.evict_key(key)
    engine.steps(3)
    watch.check()
    assert [order for order in orders if order] == [[full, page]]


@pytest.mark.parametrize(("window", "places"), [(128, 40), (256, 60)])
def test_first_stores_go_on_as_pages_leave_the_window(make_engine, window, places):
    """One request of 72 blocks, and nothing else. Both groups store until the tier is full, full attention nearest the
    head first; each page that leaves the window then gives its place to a block that waits. In the end full attention
    has the whole tier, or all but the pages that are still in the window."""
    engine = make_engine(gpu_blocks=512, cpu_blocks=places + 1, groups=[full_attention(), sliding_window(window)])
    watch = Watch(engine)
    engine.add("a", prompt(0, 2), max_tokens=10_000)
    while engine.requests["a"].num_computed_tokens < 72 * BLOCK:
        engine.step()
        watch.check()
    table = engine.scheduler.kv_cache_manager.coordinator.single_type_managers[1].req_to_blocks["a"]
    dead = [i for i, there in enumerate(engine.in_cpu("a", 1)) if there and (i >= len(table) or table[i].is_null)]
    assert dead == []
    assert engine.prefix_in_cpu("a") >= places - 3


@BOTH
def test_page_that_left_the_window_is_not_copied_for_its_old_owner(make_engine, mode):
    engine = make_engine(
        gpu_blocks=24, cpu_blocks=64, groups=[full_attention(), sliding_window(32)], policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    state = engine.manager._reqs_to_store["a"]
    old_page = state.block_ids[1][2]
    key = engine.keys("a", 1)[2]
    while engine.scheduler.kv_cache_manager.get_block_ids("a")[1][2] == old_page:
        engine.step()
    gpu = engine.scheduler.kv_cache_manager.block_pool
    engine.add("b", prompt(1, 5))
    while gpu.blocks[old_page].block_hash == key:
        engine.step()
    watch.check()
    orders = note_restores(engine)
    engine.evict_key(key)
    for _ in range(3):
        engine.step()
        watch.check()
    assert key not in [k for order in orders for k in order]


@BOTH
def test_page_that_left_the_window_is_passed_over_though_nobody_has_taken_it_yet(make_engine, mode):
    """In the request's block table it is a null block."""
    engine = make_engine(
        gpu_blocks=64, cpu_blocks=64, groups=[full_attention(), sliding_window(32)], policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("a", prompt(0, 3))
    engine.steps(2)
    page, key = engine.manager._reqs_to_store["a"].block_ids[1][2], engine.keys("a", 1)[2]
    while engine.scheduler.kv_cache_manager.get_block_ids("a")[1][2] == page:
        engine.step()
    assert engine.scheduler.kv_cache_manager.block_pool.blocks[page].block_hash == key
    orders = note_restores(engine)
    assert engine.evict_key(key)
    for _ in range(3):
        engine.step()
        watch.check()
    assert not any(orders)
    if mode == "tracked":
        assert engine.manager._owners.num_lost == 0, "nothing waits that nobody can supply"


@BOTH
def test_request_that_decodes_past_its_window_comes_to_rest(make_engine, mode):
    engine = make_engine(
        gpu_blocks=64, cpu_blocks=64, groups=[full_attention(), sliding_window(32)], policy=Policy(mode=mode)
    )
    watch = Watch(engine)
    engine.add("a", prompt(0, 4), max_tokens=400)
    orders = note_restores(engine)
    for _ in range(120):
        engine.step()
    watch.check()
    assert not any(orders)


def test_pages_that_left_the_window_do_not_keep_live_blocks_out_of_a_small_tier(make_engine):
    """A request of 16 blocks in two groups wants 16 + 3 blocks of the tier's 24: 13 window pages have served."""
    engine = make_engine(gpu_blocks=64, cpu_blocks=25, groups=[full_attention(), sliding_window(32)])
    watch = Watch(engine)
    engine.add("a", prompt(0, 4), max_tokens=400)
    while len(engine.requests["a"].block_hashes) < 17:
        engine.step()
    engine.steps(4)
    watch.check()
    assert engine.in_cpu("a", 0)[:16] == [True] * 16
    assert engine.in_cpu("a", 1)[14:16] == [True] * 2


@BOTH
def test_speculative_decoding_does_not_restore_the_volatile_block(make_engine, mode):
    """An EAGLE head drops the last block of a hit; what is rejected is never stored as confirmed."""
    engine = make_engine(gpu_blocks=64, cpu_blocks=33, num_draft_tokens=3, policy=Policy(mode=mode))
    engine.accept = cycle([0, 3, 1, 2]).__next__
    watch = Watch(engine)
    orders = note_restores(engine)
    engine.add("a", prompt(0, 4, extra=9), max_tokens=400)
    engine.add("b", prompt(0, 4, extra=12), max_tokens=400)
    for _ in range(30):
        engine.step()
        watch.check()
    assert not any(orders)
    assert engine.requests["a"].num_output_tokens > 40
    engine.evict("a", 1, 5)
    for _ in range(4):
        engine.step()
        watch.check()
    assert sum(map(len, orders)) == 2
    engine.settle()
    watch.check()
    watch.check_log()


@BOTH
def test_speculative_decoding_under_async_scheduling(make_engine, mode):
    engine = make_engine(gpu_blocks=48, cpu_blocks=12, num_draft_tokens=2, is_async=True, policy=Policy(mode=mode))
    engine.accept = cycle([0, 2, 1]).__next__
    watch = Watch(engine)
    player = Player(engine)
    for action in actions(3, 60):
        if player.play(action) is not None:
            watch.check()
    engine.settle(1_000)
    watch.check()
    watch.check_log()


def test_volatile_last_block_is_not_needed_by_a_lookup(make_engine):
    engine = make_engine(gpu_blocks=64, cpu_blocks=33, num_draft_tokens=3)
    engine.add("a", prompt(0, 6))
    engine.steps(3)
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    again = engine.add("b", prompt(0, 6))
    engine.step()
    assert again.num_computed_tokens == 5 * BLOCK
