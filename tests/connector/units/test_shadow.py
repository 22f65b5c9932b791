"""A tier without bytes, on cases that are worked out by hand: one group of full attention, a hash a block."""

from connector.retention import REUSES_TO_LEARN
from connector.reuse import NUM_BUCKETS
from connector.shadow import Asked, Chain, GroupShape, ShadowTier
from connector.shadow_groups import chain_of
from connector.shadow_turns import Turns

FULL = [GroupShape(0, 1, None)]
A, B, C = ([f"{name}{n}".encode() for n in range(3)] for name in "abc")


def line(hashes: list[bytes], groups: list[GroupShape] = FULL) -> Chain:
    return chain_of(groups, hashes)


def ask(hashes: list[bytes], on_gpu: int = 0, usable: int | None = None, groups: list[GroupShape] = FULL) -> Asked:
    return Asked(line(hashes, groups), len(hashes) if usable is None else usable, len(hashes), on_gpu)


def serve(tier: ShadowTier, name: str, chain: list[bytes], step: int, on_gpu: int = 0) -> int:
    """A request comes, is computed and copied whole, and ends. Returns what the tier gave it."""
    tier.step(step)
    found = tier.lookup(name, ask(chain, on_gpu))
    tier.cursor_moved(name, 0, len(chain))
    tier.copies_over(step)
    tier.loaded(name)
    tier.finished(name, line(chain), len(chain))
    return found


def test_least_recently_used_chain_goes_first_head_first() -> None:
    tier = ShadowTier("off", 6, FULL)
    serve(tier, "1", A, 1)
    serve(tier, "2", B, 2)
    assert serve(tier, "3", A, 3) == 3  # the hit puts A behind B
    serve(tier, "4", C[:1], 4)
    assert [hash_ + bytes(4) in tier for hash_ in A + B] == [True] * 3 + [False, True, True]
    assert serve(tier, "5", B, 5) == 0


def test_pinned_blocks_are_no_victims() -> None:
    tier = ShadowTier("off", 3, FULL)
    serve(tier, "1", A, 1)
    tier.waits("2", ask(A))
    assert serve(tier, "3", B, 2) == 0
    assert tier.num_evicted == 0
    assert tier.lookup("2", ask(A)) == 3


def two_at_once(policy: str, on_gpu: int) -> ShadowTier:
    """Two requests with one content, the second before the copies of the first are over."""
    tier = ShadowTier(policy, 6, FULL)  # type: ignore[arg-type]
    tier.step(1)
    for name, shared in (("1", 0), ("2", on_gpu)):
        tier.lookup(name, ask(A, shared))
        tier.cursor_moved(name, 0, 3)
    return tier


def test_stock_copies_twice_what_two_requests_compute_at_the_same_time() -> None:
    tier = two_at_once("off", on_gpu=0)
    assert tier.num_stored == 6
    tier.copies_over(1)
    tier.finished("1", line(A), 3)
    tier.finished("2", line(A), 3)
    serve(tier, "3", B, 2)  # takes the first three blocks: their twins still answer
    assert tier.num_evicted == 0
    assert serve(tier, "4", A, 3) == 3


def test_stock_copies_once_what_is_shared_on_the_gpu() -> None:
    assert two_at_once("off", on_gpu=2).num_stored == 4


def test_stock_copies_once_what_one_computes_and_another_has_found_meanwhile() -> None:
    """The second finds on the GPU what the first has begun to compute, and is walked first."""
    tier = ShadowTier("off", 6, FULL)
    tier.step(1)
    tier.lookup("1", ask(A))
    tier.lookup("2", ask(A, on_gpu=2))
    tier.cursor_moved("2", 0, 2)
    tier.cursor_moved("1", 0, 3)
    assert tier.num_stored == 3


def test_stock_copies_twice_what_is_computed_although_another_had_found_it() -> None:
    """The second computes the last block of its prompt itself, which the first has found on the GPU."""
    tier = ShadowTier("off", 6, FULL)
    tier.step(1)
    tier.lookup("1", ask(A, on_gpu=3))
    tier.lookup("2", ask(A, on_gpu=2))
    tier.cursor_moved("1", 0, 3)
    tier.cursor_moved("2", 0, 3)
    assert tier.num_stored == 4


def test_restore_copies_nothing_twice() -> None:
    assert two_at_once("tracked", on_gpu=0).num_stored == 3


def test_restore_copies_again_what_a_running_request_lost_within_its_budget() -> None:
    tier = ShadowTier("tracked", 6, FULL, budget=2)
    tier.step(1)
    tier.lookup("1", ask(A))
    tier.cursor_moved("1", 0, 3)
    tier.copies_over(1)
    for step, chain in ((2, B), (3, C)):  # nobody's, once they are over; the second takes A's places
        serve(tier, chain[0].decode(), chain, step)
    assert tier.num_evicted == 3
    tier.step(4)
    assert tier.num_restored == 2
    tier.step(5)
    assert tier.num_restored == 3


def test_off_forgets_what_runs_at_a_reset_and_restore_does_not() -> None:
    for policy, found in (("off", 0), ("tracked", 3), ("unlimited", 3)):
        tier = ShadowTier(policy, 6, FULL)  # type: ignore[arg-type]
        tier.step(1)
        tier.lookup("1", ask(A))
        tier.cursor_moved("1", 0, 3)
        tier.copies_over(1)
        tier.reset()
        tier.finished("1", line(A), 3)
        tier.step(2)
        tier.copies_over(2)
        assert tier.lookup("2", ask(A)) == found, policy


def test_window_needs_its_last_pages_only() -> None:
    groups = [*FULL, GroupShape(1, 1, 2)]
    tier = ShadowTier("off", 20, groups)
    tier.step(1)
    tier.lookup("1", ask(A, groups=groups))
    tier.absent("1", 1, [0])
    for group in (0, 1):
        tier.cursor_moved("1", group, 3)
    tier.copies_over(1)
    assert tier.num_stored == 5
    assert tier.lookup("2", ask(A, groups=groups)) == 3
    assert tier.lookup("3", ask(A, usable=2, groups=groups)) == 0  # the page before the last two is gone


def held(tier: ShadowTier, *chains: list[bytes]) -> list[int]:
    """How many of each chain's blocks lie in the tier."""
    return [sum(hash_ + bytes(4) in tier for hash_ in chain) for chain in chains]


def come_and_go(tier: ShadowTier, name: str, chain: list[bytes], step: int) -> int:
    """As `serve`, a second a step, told of when it arrives."""
    tier.now = float(step)
    tier.step(step)
    tier.arrived(name, line(chain))
    return serve(tier, name, chain, step)


def test_adaptive_takes_the_end_of_the_least_recently_used_chain() -> None:
    """Where stock takes its head: see the first of these tests."""
    tier = ShadowTier("adaptive", 6, FULL)
    come_and_go(tier, "1", A, 1)
    come_and_go(tier, "2", B, 2)
    come_and_go(tier, "3", C[:1], 3)
    assert [hash_ + bytes(4) in tier for hash_ in A + B] == [True, True, False, True, True, True]
    assert come_and_go(tier, "4", A, 4) == 2


def test_adaptive_keeps_what_a_request_that_waits_for_its_turn_will_find() -> None:
    tier = ShadowTier("adaptive", 6, FULL)
    come_and_go(tier, "1", A, 1)
    come_and_go(tier, "2", B, 2)
    tier.arrived("waits", line(A))
    come_and_go(tier, "3", C, 3)
    assert held(tier, A, B, C) == [3, 0, 3]


def test_refused_block_waits_until_a_place_is_free() -> None:
    """All that lies there is pinned by a load: there is no place, and the request is asked for again afterwards."""
    tier = ShadowTier("adaptive", 3, FULL)
    come_and_go(tier, "1", A, 1)
    tier.step(2)
    assert tier.lookup("2", ask(A)) == 3
    tier.lookup("3", ask(B[:2]))
    tier.step(3)
    tier.cursor_moved("3", 0, 2)
    tier.step(4)
    assert tier.num_stored == 3
    tier.loaded("2")
    tier.finished("2", line(A), 3)
    tier.step(5)
    tier.step(6)
    tier.copies_over(6)
    assert tier.num_stored == 5
    assert held(tier, A, B) == [1, 2]


def test_block_behind_a_hole_is_never_copied() -> None:
    """The second request found its first block on the GPU only; there is no place for that one, so none for the next,
    though one were free."""
    tier = ShadowTier("adaptive", 3, FULL)
    come_and_go(tier, "1", A, 1)
    tier.step(2)
    tier.lookup("2", ask(A))
    tier.lookup("3", ask(B))
    tier.step(3)
    tier.cursor_moved("3", 0, 3)
    assert held(tier, A, B) == [3, 0]
    tier.finished("3", line(B), 3)
    tier.copies_over(4)
    assert held(tier, A, B) == [3, 0]
    assert tier.num_evicted == 0


def test_adaptive_takes_the_tier_as_it_finds_it_and_leaves_it_so() -> None:
    """What lay there before goes first, in vLLM's order, which is head first; but a chain that a request goes through
    belongs to it, and goes end first. Off again, vLLM's order goes on."""
    tier = ShadowTier("off", 6, FULL)
    serve(tier, "1", A, 1)
    serve(tier, "2", B, 2)
    tier.obey("adaptive", 64)
    assert come_and_go(tier, "3", A, 3) == 3
    come_and_go(tier, "4", C[:1], 4)
    assert [hash_ + bytes(4) in tier for hash_ in A + B] == [True] * 3 + [False, True, True]
    tier.obey("off", 64)
    serve(tier, "5", C, 5)  # the first is there; the other two take what is the least recently used
    assert held(tier, A, B, C) == [3, 0, 3]


def test_adaptive_copies_again_what_a_running_request_lost_where_another_rests() -> None:
    tier = ShadowTier("adaptive", 4, FULL)
    tier.now = 1.0
    tier.step(1)
    tier.arrived("1", line(A))
    tier.lookup("1", ask(A))
    tier.cursor_moved("1", 0, 3)
    tier.copies_over(1)
    tier.now = 2.0
    tier.arrived("2", line(B))
    tier.lookup("2", ask(B))
    tier.step(2)
    tier.cursor_moved("2", 0, 3)  # one place is empty; of two that run the least recently used gives the others
    tier.copies_over(2)
    assert held(tier, A, B) == [1, 3]
    tier.finished("2", line(B), 3)
    tier.now = 3.0
    tier.step(3)
    tier.copies_over(3)
    assert held(tier, A, B) == [3, 1]
    assert tier.num_restored == 2


def test_what_adaptive_took_for_something_better_is_not_copied_again_until_somebody_comes_for_it() -> None:
    """Four places. A has three of them when B comes, which is worth more and takes two. Then the tables turn: B rests
    and is worth nothing. A is not taken back for the request that still runs, but for the next that asks for it."""
    tier = ShadowTier("adaptive", 4, FULL)
    tier.now = 1.0
    tier.step(1)
    tier.arrived("1", line(A))
    tier.lookup("1", ask(A))
    tier.cursor_moved("1", 0, 3)
    tier.copies_over(1)
    tier.arrived("2", line(B))
    tier.lookup("2", ask(B))
    assert tier._keeper is not None
    retention = tier._keeper.retention
    curve = retention.curve
    curve.num_reuses = REUSES_TO_LEARN
    (first,) = (chain for chain in retention.tree if retention.live.count(chain))
    first.num_turns = 2
    retention.live.note(first)
    worths = {turns: curve.worth[turns] for turns in (1, 2, 3)}  # A is asked for a third time at the end
    for turns, worth in ((1, 0.9), (2, 0.1)):
        worths[turns][:] = [worth] * NUM_BUCKETS
    tier.step(2)
    tier.cursor_moved("2", 0, 3)
    tier.copies_over(2)
    assert held(tier, A, B) == [1, 3]
    tier.finished("2", line(B), 3)
    for turns, worth in ((1, 0.0), (2, 0.9), (3, 0.9)):
        worths[turns][:] = [worth] * NUM_BUCKETS
    for step in (3, 4):
        tier.step(step)
        tier.copies_over(step)
    assert held(tier, A, B) == [1, 3]
    assert tier.num_restored == 0
    tier.step(5)
    tier.arrived("3", line(A))
    tier.lookup("3", ask(A))
    tier.cursor_moved("3", 0, 3)
    tier.copies_over(5)
    assert held(tier, A, B) == [3, 1]
    assert tier.num_restored == 0


def test_without_restore_adaptive_copies_nothing_again() -> None:
    tier = ShadowTier("adaptive-off", 3, FULL)
    tier.step(1)
    tier.arrived("1", line(A))
    tier.lookup("1", ask(A))
    tier.cursor_moved("1", 0, 3)
    tier.copies_over(1)
    come_and_go(tier, "2", B, 2)
    tier.step(3)
    assert held(tier, A, B) == [0, 3]
    assert tier.num_restored == 0


def test_who_waits_is_asked_in_the_order_in_which_requests_began_to_run() -> None:
    turns = Turns()
    for number, name in enumerate(("one", "two", "three")):
        turns.admitted(name, number, is_resumed=False, has_load=False)
    turns.begin_step()
    for name in ("three", "one"):
        turns.waits(name, is_waiting=True)
    turns.admitted("new", 3, is_resumed=False, has_load=False)
    turns.admitted("resumed", 4, is_resumed=True, has_load=False)
    turns.waits("resumed", is_waiting=True)
    turns.begin_step()
    assert list(turns.until("new")) == []  # who is new comes first
    assert list(turns.until("two")) == ["one"]
    assert list(turns.rest()) == ["three", "resumed"]
    turns.stops("three")
    turns.begin_step()
    assert list(turns.rest()) == ["one", "resumed"]


def test_request_whose_load_is_over_has_its_turn_from_when_it_is_first_heard_of() -> None:
    turns = Turns()
    turns.admitted("loads", 0, is_resumed=True, has_load=True)
    turns.admitted("runs", 1, is_resumed=False, has_load=False)
    turns.begin_step()
    turns.waits("runs", is_waiting=True)
    turns.begin_step()
    turns.is_due("loads")
    assert list(turns.rest()) == ["runs", "loads"]
