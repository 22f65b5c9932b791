"""The ways in which vLLM can be set up: async scheduling, lazy offload, disk, no prefix cache, context parallelism,
KV-cache events; and a toggle between any two steps."""

import random

import pytest
from chaos import LAYOUTS
from harness import BLOCK, OURS, STOCK, prompt
from invariants import Watch, findable, note_restores
from traffic import Player, actions
from vllm.config import KVEventsConfig
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.lora.request import LoRARequest
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from connector.journal import hash_of
from connector.policy import Policy
from connector.scheduler import ReStoreScheduler, _stock_select

BOTH = pytest.mark.parametrize("mode", ["rescan", "tracked"])


@BOTH
def test_placeholders_of_async_scheduling_are_not_confirmed_tokens(make_engine, mode):
    engine = make_engine(cpu_blocks=33, is_async=True, policy=Policy(mode=mode))
    watch = Watch(engine)
    request = engine.add("a", prompt(0, 3, extra=15))
    for _ in range(40):
        step = engine.step()
        watch.check()
        known = request.num_tokens // BLOCK
        ids = engine.scheduler.kv_cache_manager.get_block_ids("a")[0]
        assert all(ids.index(b) < known for b in step.meta.store_gpu_blocks)
    engine.evict("a", 0, 4)
    for _ in range(4):
        engine.step()
        watch.check()
    assert engine.in_cpu("a")[:5] == [True] * 5


@BOTH
def test_what_is_not_confirmed_at_a_finish_is_no_dropped_block(make_engine, mode):
    """The request ends between the scheduling of a step and its output.

    It knows 64 tokens, so its fourth block has a hash, and vLLM has given the block this hash with the step that it
    just scheduled. Two tokens are on their way (positions 63 and 64), so 65 count as computed and 63 are: the fourth
    block is not full, nobody could store it, and nobody has dropped it.
    """
    engine = make_engine(cpu_blocks=33, is_async=True, policy=Policy(mode=mode))
    watch = Watch(engine)
    request = engine.add("a", prompt(0, 3, extra=8))
    while request.num_tokens < 4 * BLOCK:
        engine.step()
        watch.check()
    engine.schedule_ahead()
    assert (request.num_tokens, request.num_computed_tokens, request.num_output_placeholders) == (64, 65, 2)
    gpu = engine.scheduler.kv_cache_manager
    fourth = gpu.block_pool.blocks[gpu.get_block_ids("a")[0][3]]
    assert fourth.block_hash == engine.keys("a")[3]
    engine.finish("a")
    engine.settle()
    watch.check()
    assert engine.in_cpu("a") == [True] * 3 + [False]
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks, reason FROM blocks_dropped") == []


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_async", [False, True])
def test_policy_may_change_between_any_two_steps(make_engine, seed, is_async):
    rng = random.Random(seed)
    engine = make_engine(gpu_blocks=40, cpu_blocks=14, copy_steps=seed % 3, is_async=is_async)
    watch = Watch(engine)
    player = Player(engine)
    for action in actions(seed + 100, 60):
        if player.play(action) is None:
            continue
        watch.check()
        if rng.random() < 0.3:
            engine.set_policy(
                enabled=rng.random() < 0.7,
                mode=rng.choice(["rescan", "tracked"]),
                max_restore_blocks_per_step=rng.choice([0, 1, 3]),
            )
            watch.check()
    engine.settle(1_000)
    watch.check()
    watch.check_log()
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]


@BOTH
def test_what_was_lost_while_off_comes_back_when_on(make_engine, mode):
    engine = make_engine(cpu_blocks=33, policy=Policy(enabled=False, mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    engine.steps(2)
    engine.evict("a", 0, 3)
    engine.steps(3)
    assert engine.in_cpu("a") == [False, True, True, False]
    engine.set_policy(enabled=True)
    engine.steps(2)
    watch.check()
    assert engine.in_cpu("a") == [True] * 4
    watch.check_log()
    applied = engine.sql("SELECT enabled, mode, step FROM policy_applied ORDER BY seq")
    assert applied == [(0, mode, 0), (1, mode, 6)]


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"lazy_offload": True}, "lazy_offload"),
        ({"kv_offload_backend": "disk", "disk_capacity_bytes": 33 * 1_024}, "disk"),
    ],
)
def test_where_restore_does_not_apply_it_says_so_and_is_stock(make_engine, tmp_path, extra, word):
    if "kv_offload_backend" in extra:
        extra = extra | {"disk_path": str(tmp_path / "tier")}
    ours = make_engine(connector=OURS, extra=extra, gpu_blocks=24, cpu_blocks=33)
    stock = make_engine(connector=STOCK, extra=extra, gpu_blocks=24, cpu_blocks=33)
    assert not isinstance(ours.manager, ReStoreScheduler)
    players = Player(stock), Player(ours)
    for action in actions(5, 60):
        theirs, mine = (player.play(action) for player in players)
        if mine is not None:
            assert mine.meta == theirs.meta
    ours.close()
    ((support,),) = ours.sql("SELECT restore_support FROM engines")
    assert word in support


def test_without_prefix_caching_the_engine_runs_and_says_why_nothing_is_stored(make_engine):
    def configure(config):
        config.cache_config.enable_prefix_caching = False

    engine = make_engine(configure=configure)
    assert engine.manager is None
    engine.add("a", prompt(0, 4), max_tokens=5)
    engine.add("same", prompt(0, 4), max_tokens=5)
    engine.step()
    engine.set_policy(enabled=False)
    engine.step()
    engine.set_policy(enabled=True, mode="rescan")
    engine.add("gone", prompt(0, 4))
    engine.step()
    engine.abort("gone")
    engine.reset_tier()
    steps = engine.settle()
    assert all(step.meta.store_event < 0 and step.meta.load_event < 0 for step in steps)
    assert [engine.requests[r].num_output_tokens for r in ("a", "same")] == [5, 5]
    gpu = engine.scheduler.kv_cache_manager.block_pool
    assert gpu.get_num_free_blocks() == gpu.num_gpu_blocks - 1
    engine.close()
    assert engine.sql("SELECT restore_support FROM engines") == [("prefix caching is disabled",)]
    assert engine.sql("SELECT count(*) FROM blocks_stored") == [(0,)]
    assert engine.sql("SELECT count(*) FROM fault") == [(0,)]


@BOTH
@pytest.mark.parametrize("world", [2, 4])
def test_context_parallelism_scales_the_blocks(make_engine, world, mode):
    """Under decode-context parallelism a block covers 16 tokens on each of `world` ranks.

    3 full blocks and one that lacks one token are `world` * 64 - 1 tokens: 3 blocks are stored, not 3 * `world`, and
    not the fourth. A lookup of the same prompt hits 3 blocks of `world` * 16 tokens, or as many as lie before a hole.
    """

    def configure(config):
        config.parallel_config.decode_context_parallel_size = world

    engine = make_engine(cpu_blocks=33, configure=configure, policy=Policy(mode=mode))
    watch = Watch(engine)
    size = world * BLOCK
    tokens = prompt(0, 4, extra=-1, block_size=size)
    assert len(tokens) == world * 64 - 1
    engine.add("a", tokens)
    first = engine.step()
    # The new token fills the fourth block, which the step after next stores.
    stored = [engine.step().meta.store_gpu_blocks for _ in range(2)]
    ids = engine.scheduler.kv_cache_manager.get_block_ids("a")[0]
    assert first.meta.store_gpu_blocks == []
    assert stored == [ids[:3], [ids[3]]]
    assert len(ids) == 5
    engine.evict("a", 1, 2)
    orders = note_restores(engine)
    step = engine.step()
    assert step.meta.store_gpu_blocks == ids[1:3]
    for _ in range(3):
        engine.step()
        watch.check()
    assert orders == [[engine.keys("a")[1], engine.keys("a")[2]], [], [], []]
    assert engine.in_cpu("a") == [True] * 4
    engine.finish("a")
    engine.settle()
    for request_id, hole, hit in (("b", None, 3), ("c", 1, 1)):
        engine.forget_gpu_prefixes()
        if hole is not None:
            engine.evict("a", hole)
        engine.add(request_id, tokens)
        step = engine.step()
        assert len(step.meta.load_gpu_blocks) == hit
        assert engine.requests[request_id].num_computed_tokens == hit * size
        engine.finish(request_id)
        engine.settle()
    watch.check()
    watch.check_log()
    assert engine.sql("SELECT first_index, num_blocks FROM blocks_restored") == [(1, 2)]
    looked_up = "SELECT num_tokens, gpu_hit_tokens, cpu_hit_tokens, num_blocks, cut_index FROM lookup ORDER BY seq"
    # The log counts in blocks of the hashes, here those of the group.
    assert engine.hash_block_size == size
    n = len(tokens)
    assert engine.sql(looked_up) == [(n, 0, 0, 3, 0), (n, 0, 3 * size, 3, None), (n, 0, size, 3, 1)]


@pytest.mark.parametrize("policy", ["off", "rescan", "tracked"])
def test_kv_cache_events_of_the_tier_stay_right(make_engine, policy):
    """A reader of vLLM's own events knows what the tier holds, and each re-stored block is announced like any other."""

    def configure(config):
        config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")

    chosen = Policy(enabled=False) if policy == "off" else Policy(mode=policy)
    engine = make_engine(gpu_blocks=40, cpu_blocks=12, configure=configure, policy=chosen)
    watch = Watch(engine)
    orders = note_restores(engine)
    heard = []
    inner = engine.connector.take_events

    def listen():
        events = list(inner())
        heard.extend(events)
        return events

    engine.connector.take_events = listen
    player = Player(engine)
    for action in actions(11, 80, resets=False):
        if player.play(action) is not None:
            watch.check()
    engine.settle(1_000)
    listen()
    known = set()
    for event in heard:
        assert not isinstance(event, AllBlocksCleared)  # nobody has reset anything
        assert event.medium == "CPU"
        assert isinstance(event, BlockStored | BlockRemoved)
        if isinstance(event, BlockStored):
            assert len(event.token_ids) == event.block_size == BLOCK
            known.update(event.block_hashes)
        else:
            known.difference_update(event.block_hashes)
    assert known == {maybe_convert_block_hash(hash_of(key)) for key in findable(engine)}
    assert any(orders) == (policy != "off")


@pytest.mark.parametrize("layout", ["plain", "large full"])
def test_restored_block_is_described_to_vllm_as_its_first_copy_was(make_engine, layout):
    """Also for the finer boundaries within a block, where hashes are finer than the group's blocks."""

    def configure(config):
        config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")

    engine = make_engine(cpu_blocks=33, configure=configure, **LAYOUTS[layout])
    engine.add("a", prompt(0, 8), cache_salt="mine", lora_request=LoRARequest("style", 3, "/nowhere"))
    engine.step()
    state = engine.manager._reqs_to_store["a"]
    state.block_ids[0].extend(engine.scheduler.kv_cache_manager.get_block_ids("a")[0])
    gpu_block_ids, _, metas = _stock_select(engine.manager, state, (state.block_ids[0],))
    keys = engine.keys("a")
    assert len(keys) == len(gpu_block_ids)
    for index, (key, meta) in enumerate(zip(keys, metas, strict=True)):
        assert engine.manager._restorer._layout.event_meta(state.request, 0, index, key) == meta


def test_restored_block_is_announced_as_its_first_copy_was(make_engine):
    def configure(config):
        config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")

    engine = make_engine(cpu_blocks=33, configure=configure)
    heard = []
    inner = engine.connector.take_events
    engine.connector.take_events = lambda: heard.extend(inner()) or []
    engine.add("a", prompt(0, 4), cache_salt="mine")
    engine.steps(2)
    first = {e.block_hashes[0]: e for e in heard}
    heard.clear()
    engine.evict("a", 0, 2)
    engine.steps(2)
    removed = [e for e in heard if isinstance(e, BlockRemoved)]
    stored = [e for e in heard if isinstance(e, BlockStored)]
    assert len(removed) == len(stored) == 2
    assert all(e == first[e.block_hashes[0]] for e in stored)


@BOTH
def test_kv_cache_events_tell_of_store_loss_restore_and_reset(make_engine, mode):
    """4 blocks are stored, 2 lost, 2 re-stored, all cleared, and 4 stored again; each told once, none out of place."""

    def configure(config):
        config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, publisher="null")

    engine = make_engine(cpu_blocks=33, configure=configure, policy=Policy(mode=mode))
    watch = Watch(engine)
    engine.add("a", prompt(0, 4))
    hashes = [maybe_convert_block_hash(h) for h in engine.requests["a"].block_hashes]
    known = set()

    def told():
        """What the tier says since the last call; a reader who follows from the start knows what it holds."""
        events = list(engine.connector.take_events())
        for event in events:
            if isinstance(event, AllBlocksCleared):
                known.clear()
                continue
            assert (event.medium, event.group_idx, event.locality) == ("CPU", 0, "LOCAL")
            assert len(event.block_hashes) == 1
            (known.update if isinstance(event, BlockStored) else known.difference_update)(event.block_hashes)
        assert known == {maybe_convert_block_hash(hash_of(key)) for key in findable(engine)}
        watch.check()
        return [(type(event), *getattr(event, "block_hashes", ())) for event in events]

    # vLLM's scheduler collects the events in each step; here nobody does but `told`.
    engine.scheduler.connector = _WithoutEvents(engine.scheduler.connector)
    engine.steps(2)
    assert told() == [(BlockStored, h) for h in hashes]
    engine.evict("a", 0, 2)
    assert told() == [(BlockRemoved, hashes[0]), (BlockRemoved, hashes[2])]
    engine.steps(2)
    assert told() == [(BlockStored, hashes[0]), (BlockStored, hashes[2])]
    engine.step()
    assert told() == []
    # A reset that has to wait for a copy clears nothing yet, and what the late copy held is never announced.
    engine.evict("a", 1)
    engine.conditions.copy_steps = lambda rank, is_store: 2
    engine.step()
    assert engine.reset_tier() is False
    assert told() == [(BlockRemoved, hashes[1])]
    while engine.tasks:
        assert told() == []
        engine.step()
    engine.conditions.copy_steps = lambda rank, is_store: 0
    engine.steps(2)
    assert told() == [(BlockStored, hashes[1])]
    assert engine.reset_tier() is True
    assert told() == [(AllBlocksCleared,)]
    assert known == set()
    engine.steps(2)
    assert told() == [(BlockStored, h) for h in hashes]


class _WithoutEvents:
    """A connector whose events are left for a test to take."""

    def __init__(self, connector):
        self._connector = connector

    def __getattr__(self, name):
        return getattr(self._connector, name)

    def take_events(self):
        return ()


def test_with_another_vllm_the_engine_does_what_stock_does_and_says_so(make_engine, monkeypatch):
    monkeypatch.setattr("vllm.__version__", "0.33.1")
    engine = make_engine(cpu_blocks=33)
    assert not isinstance(engine.manager, ReStoreScheduler)
    engine.add("a", prompt(0, 3), max_tokens=4)
    engine.settle()
    assert engine.in_cpu("a") == [True] * 3
    engine.close()
    ((said,),) = engine.sql("SELECT restore_support FROM engines")
    assert "vLLM 0.33.1" in said
