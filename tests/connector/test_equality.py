"""Two engines, one input: `off` is stock vLLM, and `tracked` re-stores what `rescan` re-stores."""

import random
from dataclasses import asdict

import pytest
from chaos import LAYOUTS
from harness import OURS, STOCK
from invariants import Watch, findable, note_restores
from traffic import Player, actions

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


@pytest.mark.parametrize("shape", SHAPES)
def test_off_orders_exactly_what_stock_orders(make_engine, shape):
    saw_preemption = saw_load = False
    for seed in SEEDS:
        stock = make_engine(connector=STOCK, **SHAPES[shape])
        off = make_engine(connector=OURS, policy=Policy(enabled=False), **SHAPES[shape])
        watch = Watch(off)
        players = Player(stock), Player(off)
        for number, action in enumerate(actions(seed, 90)):
            theirs, ours = (player.play(action) for player in players)
            if ours is not None:
                assert asdict(ours.meta) == asdict(theirs.meta), f"seed {seed}, action {number}"
                assert ours.scheduled == theirs.scheduled
                saw_preemption |= bool(ours.output.preempted_req_ids)
                saw_load |= ours.meta.load_event >= 0
                watch.check()
        assert findable(off) == findable(stock)
        for engine in (stock, off):
            engine.close()
    assert saw_load
    assert saw_preemption or shape in ("roomy", *LAYOUTS)


@pytest.mark.parametrize(("budget", "copy_steps"), [(0, 0), (1, 2), (3, 1)])
@pytest.mark.parametrize("layout", ["plain", "async", "window", "large full", "mamba"])
def test_tracked_restores_what_rescan_restores(make_engine, layout, budget, copy_steps):
    """Where the tier has room for what runs, step by step, and whatever else fills the tier."""
    num_restored = 0
    for seed in range(3):
        engines = [
            make_engine(
                gpu_blocks=48,
                cpu_blocks=70,
                copy_steps=copy_steps,
                **LAYOUTS[layout],
                policy=Policy(mode=mode, max_restore_blocks_per_step=budget),
            )
            for mode in ("rescan", "tracked")
        ]
        watches = [Watch(engine) for engine in engines]
        orders = [note_restores(engine) for engine in engines]
        players = [Player(engine) for engine in engines]
        for number, action in enumerate(actions(seed, 120)):
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
            assert engine.manager._journal.num_faults == 0
            engine.close()
    assert num_restored > 20


def _lose_some(engines, seed):
    """Evict the same few blocks from every engine's tier, as other content would."""
    rng = random.Random(seed)
    if rng.random() < 0.5:
        common = sorted(set.intersection(*(findable(engine) for engine in engines)))
        for key in rng.sample(common, min(len(common), rng.randrange(1, 5))):
            for engine in engines:
                engine.evict_key(key)
