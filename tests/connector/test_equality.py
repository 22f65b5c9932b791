"""Two engines, one input: `off` is stock vLLM, and `tracked` re-stores what `rescan` re-stores."""

import random
from collections import Counter
from dataclasses import asdict

import pytest
from harness import OURS, STOCK
from invariants import Watch, findable, note_restores, spare_room
from regimes import LAYOUTS, settings
from traffic import Player, actions, long_and_short

from connector.policy import Policy

SEEDS = range(4)
SHAPES = {
    "roomy": {"gpu_blocks": 64, "cpu_blocks": 80},
    "small tier": {"gpu_blocks": 64, "cpu_blocks": 8},
    "small gpu": {"gpu_blocks": 24, "cpu_blocks": 33},
    "chunked": {"gpu_blocks": 48, "cpu_blocks": 16, "max_num_batched_tokens": 40, "max_num_seqs": 6},
    "slow copies": {"gpu_blocks": 40, "cpu_blocks": 16, "copy_steps": 3},
    "async": {"gpu_blocks": 32, "cpu_blocks": 12, "copy_steps": 1, "is_async": True},
    **{
        layout: {"gpu_blocks": 64, "cpu_blocks": 40, "copy_steps": 1, **LAYOUTS[layout]}
        for layout in ("window", "async window", "large full", "large window", "ring", "mamba", "large mamba")
    },
}
NEVER_PREEMPTS = {"roomy", *LAYOUTS}

# Of vLLM's regimes those that the shapes above have not: layout, features, what the traffic has beside.
REGIMES = {
    "eagle": ("plain", ("eagle",), {}),
    "async eagle": ("plain", ("async", "eagle"), {}),
    "window eagle": ("window", ("eagle",), {}),
    "two ranks": ("plain", ("two ranks",), {}),
    "behind stock": ("plain", ("behind stock",), {}),
    "events": ("plain", ("events",), {}),
    "window events": ("window", ("events",), {}),
    "context parallel": ("plain", ("context parallel",), {}),
    "mamba context parallel": ("mamba", ("context parallel",), {}),
    "owners": ("plain", (), {"owners": True}),
    "priority": ("plain", ("priority",), {"owners": True}),
    "sessions": ("plain", (), {"sessions": True}),
    "async sessions": ("plain", ("async",), {"sessions": True}),
    "window sessions": ("window", (), {"sessions": True}),
    "failed loads": ("plain", (), {}),
    "failed loads fail": ("plain", ("failed loads fail",), {}),
    "window failed loads": ("window", (), {}),
    "window failed loads fail": ("window", ("failed loads fail",), {}),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_off_orders_exactly_what_stock_orders(make_engine, shape):
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += _compare_off_with_stock(make_engine, SHAPES[shape], actions(seed, 90))
    assert seen["loads"]
    assert seen["preemptions"] or shape in NEVER_PREEMPTS


@pytest.mark.parametrize("regime", REGIMES)
def test_off_is_stock_in_every_regime(make_engine, regime):
    """Where a load fails, one thing differs, also off: what could not be loaded is withdrawn from the tier. vLLM's own
    workers cannot say that a load failed; told so, stock would load the same blocks for ever."""
    layout, features, traffic = REGIMES[regime]
    shape = {"gpu_blocks": 32, "cpu_blocks": 24, "copy_steps": 1, **settings(layout, features)}
    loads_fail = "failed loads" in regime
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        seen += _compare_off_with_stock(make_engine, shape, actions(seed, 90, **traffic), loads_fail=loads_fail)
    assert seen["loads"]
    assert bool(seen["failed loads"]) == loads_fail
    assert bool(seen["KV-cache events"]) == ("events" in features)


def _compare_off_with_stock(make_engine, shape, story, *, loads_fail=False):
    """Play to both; what was seen of that which makes them tell anything."""
    theirs_too = {"children": [STOCK, STOCK]} if "children" in shape else {}
    stock = make_engine(connector=STOCK, stock_loads_fail=loads_fail, **shape | theirs_too)
    off = make_engine(connector=OURS, stock_loads_fail=loads_fail, policy=Policy(enabled=False), **shape)
    heard = [_listen(engine) for engine in (stock, off)]
    watch = Watch(off)
    if loads_fail:
        _withdraw_what_failed(stock)
        for engine in (stock, off):
            _fail_every_second_load(engine)
    players = Player(stock), Player(off)
    seen: Counter[str] = Counter()
    for number, action in enumerate(story):
        theirs, ours = (player.play(action) for player in players)
        if ours is not None:
            for their_meta, our_meta in zip(theirs.metas, ours.metas, strict=True):
                assert asdict(our_meta) == asdict(their_meta), f"action {number}"
            assert ours.scheduled == theirs.scheduled
            assert heard[1] == heard[0]
            seen["preemptions"] += len(ours.output.preempted_req_ids or ())
            seen["loads"] += sum(meta.load_event >= 0 for meta in ours.metas)
            watch.check()
    assert findable(off) == findable(stock)
    for engine in (stock, off):
        engine.close()
    seen["failed loads"] = off.num_loads_failed
    seen["KV-cache events"] = len(heard[1])
    return seen


def _listen(engine):
    """A list that grows by the connector's KV-cache events."""
    heard = []
    inner = engine.connector.take_events

    def take_events():
        events = list(inner())
        heard.extend(events)
        return events

    engine.connector.take_events = take_events
    return heard


def _fail_every_second_load(engine):
    count = 0

    def fails(rank, is_store):
        nonlocal count
        count += not is_store
        return None if is_store or count % 2 else "every second"

    engine.conditions.fails = fails


def _withdraw_what_failed(engine):
    """Teach a stock engine what ours does about a failed load."""
    manager = engine.manager
    inner = manager.update_connector_output

    def update_connector_output(output):
        for request_id in output.finished_recving or ():
            load = manager._reqs_to_load.get(request_id) or manager._abandoned_reqs_to_load.get(request_id)
            if load is not None and (
                request_id in output.failed_recving
                or not output.invalid_block_ids.isdisjoint(load.transfer_meta.gpu_block_ids)
            ):
                manager.cpu_block_pool.evict_blocks(set(load.transfer_meta.cpu_block_ids))
        inner(output)

    manager.update_connector_output = update_connector_output


# A tier with more blocks than the GPU has room for what runs, whatever runs. In a smaller tier the two differ on
# purpose: `tracked` refuses a block that would cost a running request one nearer its head, and `rescan` copies on.
ROOM = {"gpu_blocks": 48, "cpu_blocks": 70}
TRACKED_REGIMES = {
    **{layout: (layout, (), {}) for layout in LAYOUTS},
    **REGIMES,
}


@pytest.mark.parametrize(("budget", "copy_steps"), [(0, 0), (1, 2), (3, 1)])
@pytest.mark.parametrize("regime", TRACKED_REGIMES)
def test_tracked_restores_what_rescan_restores(make_engine, regime, budget, copy_steps):
    """Where the tier has room for what runs, step by step, and whatever else fills the tier."""
    layout, features, traffic = TRACKED_REGIMES[regime]
    num_restored = 0
    for seed in range(3):
        engines = [
            make_engine(
                copy_steps=copy_steps,
                **ROOM,
                **settings(layout, features),
                policy=Policy(mode=mode, max_restore_blocks_per_step=budget),
            )
            for mode in ("rescan", "tracked")
        ]
        if "failed loads" in regime:
            for engine in engines:
                _fail_every_second_load(engine)
        watches = [Watch(engine) for engine in engines]
        orders = [note_restores(engine) for engine in engines]
        players = [Player(engine) for engine in engines]
        for number, action in enumerate(actions(seed, 120, **traffic)):
            steps = [player.play(action) for player in players]
            if steps[0] is None:
                continue
            restored = [set(order[-1]) for order in orders]
            assert restored[0] == restored[1], f"seed {seed}, action {number}"
            assert steps[0].scheduled == steps[1].scheduled
            num_restored += len(orders[0][-1])
            _lose_some(engines, seed * 1_000 + number)
            for watch in watches:
                watch.check()
        for engine in engines:
            assert engine.manager._journal.num_faults == engine.num_loads_failed
            engine.close()
    assert num_restored > 20


# Smaller than the GPU's 64, and large enough for the two requests that run at a time: tier, budget, steps of a copy.
SMALL_BUT_ENOUGH = {
    "plain": (19, 0, 0),
    "chunked": (17, 1, 2),
    "async eagle": (29, 2, 1),
    "window": (24, 0, 0),
    "async window": (21, 1, 2),
    "large full": (13, 2, 1),
}


@pytest.mark.parametrize("layout", SMALL_BUT_ENOUGH)
def test_tracked_restores_what_rescan_restores_in_a_tier_that_is_just_large_enough(make_engine, layout):
    """Nothing but what the requests bring evicts anything here, and a re-store may push out another running request's
    block, which is then re-stored in turn."""
    cpu_blocks, budget, copy_steps = SMALL_BUT_ENOUGH[layout]
    engines = [
        make_engine(
            gpu_blocks=64,
            cpu_blocks=cpu_blocks,
            copy_steps=copy_steps,
            policy=Policy(mode=mode, max_restore_blocks_per_step=budget),
            **settings(layout) | {"max_num_seqs": 2},
        )
        for mode in ("rescan", "tracked")
    ]
    watches = [Watch(engine) for engine in engines]
    orders = [note_restores(engine) for engine in engines]
    players = [Player(engine) for engine in engines]
    least_room = cpu_blocks
    for number, action in enumerate(long_and_short(7, 100)):
        steps = [player.play(action) for player in players]
        if steps[0] is None:
            continue
        least_room = min(least_room, *map(spare_room, engines))
        assert least_room >= 0, "the case is that the tier has room for what runs"
        assert set(orders[0][-1]) == set(orders[1][-1]), f"action {number}"
        assert steps[0].scheduled == steps[1].scheduled
        for watch in watches:
            watch.check()
    assert least_room == 0, "and not more"
    assert sum(map(len, orders[0])) > 10


def _lose_some(engines, seed):
    """Evict the same few blocks from every engine's tier, as other content would."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        common = sorted(set.intersection(*(findable(engine) for engine in engines)))
        for key in rng.sample(common, min(len(common), rng.randrange(1, 5))):
            for engine in engines:
                engine.evict_key(key)
