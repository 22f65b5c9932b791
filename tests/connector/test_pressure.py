"""A CPU tier that is too small for what runs: who is lost, who comes back, and when it ends."""

import random
from collections import Counter

import pytest
from harness import BLOCK, prompt
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
    engine.finish("a")
    engine.settle()
    engine.forget_gpu_prefixes()
    engine.add("again", prompt(0, 4))
    assert len(engine.step().meta.load_gpu_blocks) == 4


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


def test_tracked_repairs_the_head_that_a_request_has_evicted_itself_and_comes_to_rest(make_engine):
    """Off, 10 blocks go through 7 places: the last 3 take those of the first 3. The deepest 3 give them back."""
    engine = make_engine(cpu_blocks=8, policy=Policy(enabled=False))
    watch = Watch(engine)
    engine.add("a", prompt(0, 10))
    engine.steps(4)
    assert engine.in_cpu("a") == [False] * 3 + [True] * 7
    engine.set_policy(enabled=True)
    orders = note_restores(engine)
    for _ in range(8):
        engine.step()
        watch.check()
    assert orders == [engine.keys("a")[:3]] + [[]] * 7
    assert engine.in_cpu("a") == [True] * 7 + [False] * 3


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


def _count_losses(engine):
    """A counter that grows by each hash for which no block of the tier answers any more, noted where vLLM's pool takes
    the hash from a block."""
    pool = engine.manager.cpu_block_pool
    losses = Counter()
    inner = pool._maybe_evict_cached_block

    def noted(block):
        key = block.block_hash
        is_evicted = inner(block)
        if key is not None and pool.cached_block_hash_to_block.get_one_block(key) is None:
            losses[key] += 1
        return is_evicted

    pool._maybe_evict_cached_block = noted
    return losses


@BOTH
def test_shared_blocks_are_repaired_once_a_loss_for_all_their_owners_together(make_engine, mode):
    """Ten requests share 2 blocks, which age out of the tier although every request hits them on the GPU.

    They own 22 blocks. Off: step 1 stores the shared 2, which r1 to r9 hit; step 2 stores 7 of the 20 others into the
    tier's 7 places, so the shared 2 are lost; step 3 stores 7 more, step 4 the last 6. Each shared block is lost once,
    and ten requests want it back. With a budget of 2, one step brings both back before anything that lies deeper: once,
    not once for each owner.
    """
    engine = make_engine(
        gpu_blocks=128, cpu_blocks=8, policy=Policy(enabled=False, mode=mode, max_restore_blocks_per_step=2)
    )
    watch = Watch(engine)
    losses = _count_losses(engine)
    head = prompt(0, 2, extra=0)
    for n in range(10):
        engine.add(f"r{n}", head + prompt(n + 1, 2))
    for num_stored in (2, 7, 7, 6, 0):
        assert len(engine.step().meta.store_gpu_blocks) == num_stored
        watch.check()
    assert engine.num_running == 10
    shared = engine.keys("r0")[:2]
    assert [losses[key] for key in shared] == [1, 1]
    engine.set_policy(enabled=True)
    orders = note_restores(engine)
    engine.step()
    assert orders == [shared]
    for number in range(12):
        # Each second step, other content takes the place of one of them, or of both.
        for key in ([], shared[:1], [], shared[1:], [], shared)[number % 6]:
            engine.evict_key(key)
        engine.step()
        watch.check()
    came_back = Counter(key for order in orders for key in order)
    for key in shared:
        assert losses[key] >= 5
        # Of all its losses only the last one may still wait for its repair.
        assert came_back[key] == losses[key] - (not engine.manager._tier.has(key))
    if mode == "tracked":
        assert [losses[key] for key in shared] == [5, 5], "nothing but the test has pushed a shared head out"
        assert [came_back[key] for key in shared] == [5, 5]
        assert orders[2::2] == [[shared[0]], [shared[1]], shared] * 2
        # Once the other 5 places hold what lies next to the shared blocks, there is nothing else to bring back.
        assert not any(orders[3::2])


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


@pytest.mark.parametrize("seed", range(6))
def test_restores_of_tracked_between_two_changes_of_what_runs_are_bounded(make_engine, seed):
    """Requests come and go in a tier of 7 places while about 30 blocks are wanted.

    A change is an arrival or an end. Between two changes:

    - Whoever gets a place, by a re-store or a first store, takes that of a block which nobody wants or which lies
      deeper; and of these, since the whole queue of 7 is looked at, the deepest. So the depths in the tier only sink.
    - Re-stores go by depth, the shallowest lost block first. A block that was re-stored can be pushed out only by a
      shallower one, and then as one of the deepest. It finds no deeper victim after that, so it does not come back.

    So each content is re-stored at most once between two changes. At their end the tier holds those that were re-stored
    (at most 7), but for those that first stores have pushed out (at most one a first store): the re-stores between two
    changes are at most 7 plus the first stores between them. `rescan` has no such bound: it fills its budget each step.
    """
    rng = random.Random(seed)
    engine = make_engine(gpu_blocks=200, cpu_blocks=8, policy=Policy(max_restore_blocks_per_step=0))
    watch = Watch(engine)
    orders = note_restores(engine)
    num_intervals_with_restores = 0
    for number in range(60):
        live = [r for r, request in engine.requests.items() if not request.is_finished()]
        if len(live) > 9 or (len(live) > 5 and rng.random() < 0.4):
            engine.finish(rng.choice(live))
        else:
            engine.add(f"r{number}", prompt(number % 12, rng.randrange(1, 6), extra=rng.randrange(1, BLOCK)))
        # What was chosen at a finish leaves with the first step after it, and belongs to what lies before the change.
        carried = sum(len(transfer.gpu_block_ids) for transfer in engine.manager._pending_finished_stores)
        orders.clear()
        num_copies = 0
        for _ in range(rng.randrange(1, 12)):
            num_copies += len(engine.step().meta.store_gpu_blocks)
            watch.check()
        came_back = Counter(key for order in orders for key in order)
        num_first = num_copies - came_back.total()
        assert came_back.total() <= 7 + num_first + carried
        if not carried:
            assert all(count == 1 for count in came_back.values()), "a block came back twice though nothing has changed"
        num_intervals_with_restores += bool(came_back)
    assert num_intervals_with_restores > 5
    assert watch.exchanges.num_seen > 5


def test_copies_on_their_way_are_room(make_engine):
    """16 places for 16 blocks, 8 of which are still being copied. What was lost of the others comes back in the order
    of a scan, request by request; were the tier too small, `b`'s head would be the first."""
    engine = make_engine(cpu_blocks=17, policy=Policy(max_restore_blocks_per_step=1))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.add("b", prompt(1, 4))
    engine.steps(2)
    engine.conditions.copy_steps = lambda rank, is_store: 9
    engine.add("c", prompt(2, 8))
    engine.steps(2)
    assert [len(task.sources) for task in engine.tasks] == [8]
    orders = note_restores(engine)
    engine.evict("a", 3)
    engine.evict("b", 0)
    engine.steps(2)
    watch.check()
    assert orders == [[engine.keys("a")[3]], [engine.keys("b")[0]]]


def test_copies_that_were_chosen_and_not_ordered_yet_are_room(make_engine):
    """8 places for 8 blocks, 3 of which were chosen as `c`, who shares them with `a`, ended."""
    engine = make_engine(cpu_blocks=9, policy=Policy(max_restore_blocks_per_step=4))
    watch = Watch(engine)
    shared = prompt(0, 3, extra=0)
    engine.add("a", shared + prompt(1, 2))
    engine.add("b", prompt(2, 3))
    engine.add("c", shared + prompt(3, 0, extra=3))
    engine.steps(2)
    orders = note_restores(engine)
    engine.evict("a", 0, 1, 2, 4)
    engine.evict("b", 0)
    engine.finish("c")
    engine.step()
    watch.check()
    assert orders == [engine.keys("a")[:3] + engine.keys("a")[4:5]]


@BOTH
def test_shared_block_whose_first_owner_has_gone_comes_back_at_the_turn_of_another(make_engine, mode):
    """One re-store a step: what `a` chooses at its end is that of the next step. Then it is `b`'s turn, and `c`'s."""
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode, max_restore_blocks_per_step=1))
    watch = Watch(engine)
    shared = prompt(0, 2, extra=0)
    engine.add("a", shared + prompt(1, 1))
    engine.add("b", prompt(2, 3))
    engine.add("c", shared + prompt(3, 1))
    engine.steps(2)
    orders = note_restores(engine)
    engine.evict("a", 0, 1)
    engine.evict("b", 2)
    engine.finish("a")
    for _ in range(5):
        engine.step()
        watch.check()
    assert orders == [[engine.keys("c")[0]], [engine.keys("b")[2]], [engine.keys("c")[1]], [], []]


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
def test_budget_is_that_of_all_requests_together(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(mode=mode, max_restore_blocks_per_step=2))
    watch = Watch(engine)
    for n, name in enumerate("abc"):
        engine.add(name, prompt(n, 4))
    engine.steps(2)
    orders = note_restores(engine)
    engine.evict("a", 1)
    engine.evict("b", 0, 2)
    engine.evict("c", 1, 3)
    for _ in range(4):
        engine.step()
        watch.check()
    a, b, c = (engine.keys(name) for name in "abc")
    assert orders == [[a[1], b[0]], [b[2], c[1]], [c[3]], []]


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
    dropped = engine.sql("SELECT request_id, first_index, num_blocks, reason FROM blocks_dropped ORDER BY first_index")
    assert dropped == [("a", 2, 1, "budget"), ("a", 5, 1, "budget")]


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
