"""A tier without bytes, on cases that are worked out by hand: one group of full attention, a hash a block."""

from connector.shadow import Asked, Chain, GroupShape, ShadowTier
from connector.shadow_groups import chain_of

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
