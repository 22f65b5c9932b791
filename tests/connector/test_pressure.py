"""A CPU tier that is too small for what runs: who is lost, who comes back, and when it ends."""

from collections import Counter

import pytest
from harness import prompt
from invariants import Watch, note_restores

from connector.policy import Policy

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


@BOTH
def test_blocks_lost_to_a_third_request_come_back_once_each_when_there_is_room(make_engine, mode):
    engine = make_engine(cpu_blocks=8, policy=Policy(mode=mode))
    watch = Watch(engine)
    for n, name in enumerate("abc"):
        engine.add(name, prompt(n, 4))
        engine.steps(2)
        watch.check()
    assert engine.prefix_in_cpu("a") < 4
    engine.finish("b")
    engine.finish("c")
    engine.steps(1)
    watch.check()
    lost = [key for key, there in zip(engine.keys("a"), engine.in_cpu("a"), strict=True) if not there]
    orders = note_restores(engine)
    engine.steps(6)
    watch.check()
    came_back = Counter(key for order in orders for key in order)
    assert came_back == Counter(lost)
    assert engine.prefix_in_cpu("a") == 4


def test_without_restore_the_first_requests_blocks_stay_lost(make_engine):
    engine = make_engine(cpu_blocks=8, policy=Policy(enabled=False))
    for n, name in enumerate("abc"):
        engine.add(name, prompt(n, 4))
        engine.steps(2)
    engine.finish("b")
    engine.finish("c")
    engine.steps(7)
    assert engine.in_cpu("a") == [False] * 4


def test_tracked_keeps_the_head_of_a_request_that_is_larger_than_the_tier(make_engine):
    engine = make_engine(cpu_blocks=8)
    watch = Watch(engine)
    engine.add("a", prompt(0, 10))
    for _ in range(12):
        engine.step()
        watch.check()
        # Once it is there, a live head is never evicted for a live tail.
        assert engine.prefix_in_cpu("a") in (0, 7)
    assert engine.in_cpu("a") == [True] * 7 + [False] * 3
    engine.close()
    assert engine.sql("SELECT count(*) FROM blocks_restored") == [(0,)]
    assert engine.sql("SELECT count(*) FROM blocks_evicted") == [(0,)]


def test_rescan_of_a_request_larger_than_the_tier_is_bounded_by_its_budget(make_engine):
    engine = make_engine(cpu_blocks=8, policy=Policy(mode="rescan", max_restore_blocks_per_step=2))
    watch = Watch(engine)
    engine.add("a", prompt(0, 10))
    engine.steps(3)
    orders = note_restores(engine)
    for _ in range(12):
        engine.step()
        watch.check()
    assert [len(order) for order in orders] == [2] * 12


def test_hole_nearest_the_head_is_repaired_first(make_engine):
    engine = make_engine(cpu_blocks=33, policy=Policy(max_restore_blocks_per_step=1))
    engine.add("a", prompt(0, 6))
    engine.add("b", prompt(1, 6))
    engine.steps(2)
    # The tier becomes too small for what runs: 10 of its 32 blocks are left over for 12.
    pool = engine.manager.cpu_block_pool
    unowned = pool.get_new_blocks(20)
    taken = [engine.keys("a")[i] for i in (1, 4)] + [engine.keys("b")[i] for i in (0, 5)]
    for key in taken:
        assert engine.evict_key(key)
    held = pool.get_new_blocks(2)
    orders = note_restores(engine)
    engine.steps(6)
    assert [key for order in orders for key in order][:2] == [engine.keys("b")[0], engine.keys("a")[1]]
    assert engine.prefix_in_cpu("a") >= 4
    assert engine.prefix_in_cpu("b") >= 4
    pool.free_blocks(unowned + held)


@BOTH
def test_shared_blocks_are_repaired_once_for_all_their_owners(make_engine, mode):
    """Ten requests share 2 blocks, which age out of the tier although every request hits them on the GPU."""
    engine = make_engine(gpu_blocks=128, cpu_blocks=8, policy=Policy(mode=mode, max_restore_blocks_per_step=2))
    watch = Watch(engine)
    orders = note_restores(engine)
    head = prompt(0, 2, extra=0)
    for n in range(10):
        engine.add(f"r{n}", head + prompt(n + 1, 2))
        for _ in range(2):
            engine.step()
            watch.check()
    shared = engine.keys("r0")[:2]
    num_running = engine.num_running
    assert num_running == 10
    for _ in range(12):
        engine.step()
        watch.check()
    came_back = Counter(key for order in orders for key in order)
    engine.close()
    lost = Counter()
    parents = dict(engine.sql("SELECT hash, parent_hash FROM block_hashes"))
    for tail, count in engine.sql("SELECT tail_hash, num_blocks FROM blocks_evicted"):
        for _ in range(count):
            lost[tail + bytes(4)] += 1
            tail = parents[tail]
    for key in shared:
        assert came_back[key] <= lost[key]
    if mode == "tracked":
        assert all(engine.manager._tier.has(key) for key in shared)
        assert not any(orders[-6:])


def test_tracked_comes_to_rest_in_a_tier_that_is_too_small(make_engine):
    """Every exchange brings a block nearer a head, so the exchanges end."""
    engine = make_engine(gpu_blocks=200, cpu_blocks=24, policy=Policy(max_restore_blocks_per_step=0))
    watch = Watch(engine)
    for n in range(12):
        engine.add(f"r{n}", prompt(n, n % 5 + 1, extra=1))
        engine.step()
        watch.check()
    orders = note_restores(engine)
    for _ in range(10):
        engine.step()
        watch.check()
    assert not any(orders[-5:])
    # 23 blocks: 12 heads, then the blocks that follow them.
    depths = Counter()
    for n in range(12):
        for i, there in enumerate(engine.in_cpu(f"r{n}")):
            depths[i] += there
    assert depths[0] == 12
    assert depths.total() == 23


def test_budget_spreads_five_lost_blocks_over_three_steps(make_engine):
    for mode in ("rescan", "tracked"):
        engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode, max_restore_blocks_per_step=2))
        watch = Watch(engine)
        engine.add("a", prompt(0, 10))
        engine.steps(3)
        orders = note_restores(engine)
        engine.evict("a", 1, 3, 5, 6, 9)
        for _ in range(5):
            engine.step()
            watch.check()
        assert [len(order) for order in orders] == [2, 2, 1, 0, 0]
        assert engine.in_cpu("a") == [True] * 10


@BOTH
def test_pinned_tier_has_no_room_until_the_pin_goes(make_engine, mode):
    """A waiting request's CPU hit holds every block of the tier."""
    engine = make_engine(gpu_blocks=15, cpu_blocks=9, policy=Policy(enabled=False, mode=mode))
    watch = Watch(engine)
    engine.add("runs", prompt(0, 4))
    engine.steps(2)
    engine.add("old", prompt(1, 8))
    engine.steps(2)
    engine.finish("old")
    engine.steps(1)
    assert engine.in_cpu("runs") == [False] * 4
    assert engine.in_cpu("old") == [True] * 8
    gpu = engine.scheduler.kv_cache_manager.block_pool
    gpu.evict_blocks({b.block_id for b in gpu.blocks if b.ref_cnt == 0})
    engine.add("filler", prompt(2, 0, extra=1))
    engine.step()
    engine.set_policy(enabled=True)
    orders = note_restores(engine)
    engine.add("waits", prompt(1, 8))
    for _ in range(3):
        engine.step()
        watch.check()
        assert engine.manager.cpu_block_pool.get_num_free_blocks() == 0
    assert not any(orders)
    engine.abort("waits")
    for _ in range(2):
        engine.step()
        watch.check()
    assert engine.in_cpu("runs") == [True] * 4
    engine.close()
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]


def test_what_a_finish_leaves_without_a_copy_is_in_the_log(make_engine):
    engine = make_engine(cpu_blocks=5, copy_steps=6)
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.add("b", prompt(1, 3))
    engine.step()
    engine.finish("b")
    watch.check()
    engine.finish("a")
    engine.settle()
    watch.check()
    assert engine.in_cpu("a") == [True] * 4
    engine.close()
    assert engine.sql("SELECT request_id, first_index, num_blocks, reason FROM blocks_dropped") == [
        ("b", 0, 3, "cpu_full")
    ]


def test_blocks_that_wait_for_their_repair_at_a_finish_are_in_the_log(make_engine):
    engine = make_engine(cpu_blocks=33, policy=Policy(max_restore_blocks_per_step=1))
    engine.add("a", prompt(0, 6))
    engine.steps(2)
    engine.evict("a", 1, 2, 5)
    engine.finish("a")
    engine.settle()
    assert engine.in_cpu("a") == [True, True, False, True, True, False]
    engine.close()
    assert engine.sql("SELECT request_id, num_blocks, reason FROM blocks_dropped") == [("a", 2, "budget")]


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_backlog_keeps_an_idle_engine_stepping_until_it_is_done(make_engine, mode):
    engine = make_engine(cpu_blocks=33, copy_steps=4, policy=Policy(mode=mode))
    engine.add("a", prompt(0, 4))
    engine.steps(7)
    engine.evict("a", 0, 2)
    engine.finish("a")
    assert engine.scheduler.has_requests()
    steps = engine.settle()
    assert len(steps) >= 5
    assert engine.in_cpu("a") == [True] * 4
    assert not engine.scheduler.has_requests()
