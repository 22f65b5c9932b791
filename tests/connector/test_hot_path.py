"""What must not grow and what must not be looked at again: the connector's own bookkeeping over a long life."""

from harness import BLOCK, prompt
from invariants import Watch

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


def test_a_tier_at_rest_is_not_looked_at_again(make_engine):
    """Four requests that do not fit, in their decode: once refused, nobody walks over the blocks that wait."""
    engine = make_engine(gpu_blocks=400, cpu_blocks=120, policy=Policy(max_restore_blocks_per_step=0))
    watch = Watch(engine)
    for n in range(4):
        engine.add(f"r{n}", prompt(n, 60), max_tokens=400)
    engine.steps(60)
    watch.check()
    looked_at: list[int] = []
    classify = engine.manager._classify_store_candidate

    def counted(block):
        looked_at.append(block.block_id)
        return classify(block)

    engine.manager._classify_store_candidate = counted
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
