"""What must not grow and what must not be looked at again: the connector's own bookkeeping over a long life."""

import sys
from dataclasses import asdict

import pytest
from harness import BLOCK, STOCK, prompt
from invariants import Watch, note_restores

from connector.owners import COMPACT_ABOVE, OwnerIndex
from connector.policy import Policy


def test_blocks_lost_and_found_for_ever_leave_nothing_behind():
    owners = OwnerIndex()
    owners.admit("a")
    for n in range(20):
        owners.own("a", 0, n, n * BLOCK, bytes([n]))
    for _ in range(2_000):
        for n in range(20):
            owners.lose(bytes([n]))
        with owners.scan() as walk:
            while (found := walk.peek()) is not None:
                owners.find(found[1].key)
    assert owners.num_lost == 0
    assert max(len(owners._scan_order), len(owners._depth_order)) <= COMPACT_ABOVE + 2 * 20 + 1


def _note_looks(engine):
    """A list that grows by each GPU block that vLLM considers for a store."""
    looked_at: list[int] = []
    classify = engine.manager._classify_store_candidate

    def noted(block):
        looked_at.append(block.block_id)
        return classify(block)

    engine.manager._classify_store_candidate = noted
    return looked_at


def test_a_tier_that_one_request_fills_is_not_looked_at_again(make_engine):
    """It owns just as many blocks as there are places; its 8th and all behind it wait."""
    engine = make_engine(cpu_blocks=8)
    engine.add("a", prompt(0, 20))
    engine.steps(4)
    looked_at = _note_looks(engine)
    engine.steps(20)
    assert looked_at == []


def test_a_tier_at_rest_is_not_looked_at_again(make_engine):
    """Four requests that do not fit, in their decode: once refused, nobody walks over the blocks that wait."""
    engine = make_engine(gpu_blocks=400, cpu_blocks=120, policy=Policy(max_restore_blocks_per_step=0))
    watch = Watch(engine)
    for n in range(4):
        engine.add(f"r{n}", prompt(n, 60), max_tokens=400)
    engine.steps(60)
    watch.check()
    looked_at = _note_looks(engine)
    steps = engine.steps(12)
    assert sum(len(step.meta.store_gpu_blocks) for step in steps) == 0
    # 4 requests with about 30 waiting blocks each: one walk over all would be about 120, in each of 12 steps.
    assert len(looked_at) <= 60


def test_streamed_sessions_are_stocks(make_engine):
    """The block table of a session is appended anew with each input, so no position is trusted."""
    for policy in (Policy(enabled=False), Policy(mode="rescan"), Policy()):
        engine = make_engine(cpu_blocks=33, policy=policy)
        engine.add("s", prompt(0, 6), max_tokens=3, resumable=True)
        engine.steps(4)
        assert engine.in_cpu("s")[:6] == [True] * 6
        assert len(engine.restore._owners) == 0


@pytest.mark.parametrize("mode", ["rescan", "tracked"])
def test_session_gets_from_every_policy_what_stock_gives_it(make_engine, mode):
    """Nothing that it loses comes back: while it runs, at its end, after a reset of the tier or a fault of ours."""
    engines = make_engine(connector=STOCK, cpu_blocks=33), make_engine(cpu_blocks=33, policy=Policy(mode=mode))
    stock, ours = engines

    def steps(count):
        for _ in range(count):
            theirs, mine = (engine.step() for engine in engines)
            assert asdict(mine.meta) == asdict(theirs.meta)

    def lose(index):
        steps(1)  # copies are over
        assert stock.evict_key(stock.keys("s")[index])
        ours.evict("s", index)
        steps(2)

    for engine in engines:
        engine.add("s", prompt(0, 6), max_tokens=200, resumable=True)
    steps(3)
    lose(1)
    for engine in engines:
        engine.extend("s", prompt(1, 3), max_tokens=200)
    steps(4)
    lose(2)
    ours.restore._fault("a hook", RuntimeError("as if by a mistake of ours"))
    ours.set_policy(enabled=True)
    lose(3)
    for engine in engines:
        engine.abort("s")
    steps(2)
    for engine in engines:
        engine.add("s2", prompt(2, 4), max_tokens=200, resumable=True)
    steps(3)
    for engine in engines:
        assert engine.reset_tier()
    steps(4)
    assert ours.in_cpu("s2") == [False] * 4
    assert ours.restore._restorer.policy.enabled


def test_session_is_stored_as_stock_stores_it_while_others_wait_for_a_place(make_engine):
    """A request of 10 blocks has taken the 7 places of the tier, and its last 3 blocks wait: they lie too deep. The
    session's last 2 lie as deep, and are stored all the same."""
    engine = make_engine(cpu_blocks=8)
    engine.add("a", prompt(0, 10))
    engine.steps(3)
    assert engine.in_cpu("a") == [True] * 7 + [False] * 3
    orders = note_restores(engine)
    engine.add("s", prompt(1, 9), resumable=True)
    # It computes; 7 of its blocks are stored; `a` takes its 7 places back, which fills the tier; the last 2 are stored.
    assert [len(step.meta.store_gpu_blocks) for step in engine.steps(4)] == [0, 7, 7, 2]
    assert [len(order) for order in orders] == [0, 0, 7, 0]
    assert engine.in_cpu("s")[7:] == [True] * 2


def test_a_fault_that_stays_is_told_once_and_counted(make_engine):
    engine = make_engine(cpu_blocks=33)

    def broken(*args):
        raise RuntimeError("always")

    engine.restore._journal.note_first_tokens = broken
    engine.add("a", prompt(0, 3), max_tokens=30)
    engine.settle()
    engine.close()
    assert engine.restore._journal.num_faults > 20
    assert engine.sql("SELECT origin, message FROM fault") == [("first_tokens", "RuntimeError: always")]
    assert engine.requests["a"].num_output_tokens == 30


def test_hashes_that_were_told_are_remembered_within_bounds(make_engine):
    engine = make_engine(gpu_blocks=600, cpu_blocks=33)
    journal = engine.restore._journal
    journal._memory = 100
    for n in range(12):
        engine.add(f"r{n}", prompt(n, 20), max_tokens=2)
        engine.settle()
        assert len(journal._told) + len(journal._told_before) <= 2 * 100
    engine.close()
    # Each chain is whole in the log, whatever was forgotten meanwhile.
    assert engine.sql("SELECT count(*), count(DISTINCT hash) FROM block_hashes") == [(240, 240)]


POLICIES = {
    "off": Policy(enabled=False),
    "tracked": Policy(),
    "adaptive": Policy(retention="adaptive"),
    "adaptive-off": Policy(enabled=False, retention="adaptive"),
}
HOOKS = ("build_connector_meta", "update_connector_output", "get_kv_connector_stats")


def _calls(step, connector) -> int:
    """Python calls, vLLM's included, that the connector makes within its hooks of one step."""
    count = 0

    def counted(frame, event, arg):
        nonlocal count
        count += event == "call"

    def watched(hook):
        def call(*args):
            sys.setprofile(counted)
            try:
                return hook(*args)
            finally:
                sys.setprofile(None)

        return call

    hooks = {name: getattr(connector, name) for name in HOOKS}
    for name, hook in hooks.items():
        setattr(connector, name, watched(hook))
    step()
    for name in HOOKS:
        delattr(connector, name)
    return count


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_an_idle_step_makes_the_same_calls_however_much_runs(make_engine, policy):
    """One token a request more, no block full: nobody is looked at, neither by vLLM's code nor by ours."""

    def calls(num_requests, num_blocks):
        engine = make_engine(gpu_blocks=400, cpu_blocks=400, policy=policy)
        for n in range(num_requests):
            engine.add(f"r{n}", prompt(n, num_blocks))
        engine.steps(4)
        assert all(all(engine.in_cpu(f"r{n}")) for n in range(num_requests))
        assert engine.num_running == num_requests
        # Once a second the step gets its row in the log: of several steps the one without counts.
        return min(_calls(engine.step, engine.connector) for _ in range(8))

    assert calls(2, 3) == calls(16, 20)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_request_is_looked_at_when_it_has_filled_a_block(make_engine, policy):
    engine = make_engine(gpu_blocks=400, cpu_blocks=400, policy=policy)
    for n in range(4):
        engine.add(f"r{n}", prompt(n, 3, extra=1 + 4 * n))
    engine.steps(2)
    looked_at: list[str] = []
    select = engine.manager._select_eager_blocks_to_store

    def noted(state, block_ids_by_group):
        looked_at.append(state.request.request_id)
        return select(state, block_ids_by_group)

    engine.manager._select_eager_blocks_to_store = noted
    for _ in range(3):
        ordered = [len(step.meta.store_gpu_blocks) for step in engine.steps(BLOCK)]
        assert sorted(ordered) == [0] * 12 + [1] * 4
    # Whose prompt went further into its block fills it earlier.
    assert looked_at == ["r3", "r2", "r1", "r0"] * 3
