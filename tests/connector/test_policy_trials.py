"""The policies that are tried beside `adaptive`, on sequences worked out by hand, and what must hold for each."""

import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "bench"))

from policy_trials import BELADY, POLICIES, Request, Row, of_workload, play
from trial_adaptive import Hand, worth_class
from trial_blocks import BlockLirs, BlockLru, BlockS3Fifo, BlockSieve
from trial_chains import HIGH, LOW, MAIN, SMALL, ChainLirs, ChainS3Fifo, ChainSieve, ChainTier

from connector.chains import ChainTree
from connector.replay.chat import ChatSpec, chat_talk
from connector.replay.workload_file import EngineSpec, Workload
from connector.retention import REUSES_TO_LEARN
from connector.views import View


def ask(tier, *keys):
    """Returns how many blocks are found. The time does not matter to those that are worked out by hand."""
    return tier.ask(keys, len(keys), 0.0)


def held(tier):
    """The blocks that a tier of chains holds."""
    return sorted(key for chain in tier.tree for key in chain.keys[: tier.view.count(chain)])


# --- block by block ---------------------------------------------------------------------------------------------------


def test_lru_gives_up_the_head_and_with_it_the_rest():
    tier = BlockLru(4)
    ask(tier, 1, 2, 3)
    ask(tier, 7, 8)  # takes the place of 1
    assert list(tier.order) == [2, 3, 7, 8]
    assert ask(tier, 1, 2, 3) == 0


def test_s3fifo_block_by_block():
    tier = BlockS3Fifo(4)  # of which the small queue gets 1; 3 ghosts
    ask(tier, 1, 2, 3, 4)
    ask(tier, 2)
    ask(tier, 2)
    ask(tier, 5)  # 1 was not used again
    assert (list(tier.small), list(tier.main), list(tier.ghosts)) == ([2, 3, 4, 5], [], [1])
    ask(tier, 6)  # 2 was used twice and goes over, so 3 goes
    assert (list(tier.small), list(tier.main), list(tier.ghosts)) == ([4, 5, 6], [2], [1, 3])
    ask(tier, 1)  # a ghost comes back
    assert (list(tier.small), list(tier.main), list(tier.ghosts)) == ([5, 6], [2, 1], [3, 4])
    for key in (2, 5, 5, 6, 6):
        ask(tier, key)
    ask(tier, 9)  # 5 and 6 go over; in the main queue 2 was used and goes round, 1 was not
    assert (list(tier.small), list(tier.main)) == ([9], [5, 6, 2])
    assert tier.uses == {5: 0, 6: 0, 2: 0, 9: 0}


def test_s3fifo_forgets_the_oldest_ghost():
    tier = BlockS3Fifo(4)
    ask(tier, *range(8))  # 0 to 3 have left again
    assert list(tier.ghosts) == [1, 2, 3]


def test_one_use_is_too_few_to_leave_the_small_queue_for_the_main_one():
    tier = BlockS3Fifo(4)
    ask(tier, 1, 2, 3, 4)
    ask(tier, 1)
    ask(tier, 5)
    assert (list(tier.small), list(tier.main), list(tier.ghosts)) == ([2, 3, 4, 5], [], [1])


def test_sieve_block_by_block():
    tier = BlockSieve(3)
    ask(tier, 1, 2, 3)
    ask(tier, 1)
    ask(tier, 4)  # the hand passes 1, and takes 2
    assert tier.keys() == [1, 3, 4]
    ask(tier, 3)
    ask(tier, 5)  # it passes 3, and takes 4, the newest
    assert tier.keys() == [1, 3, 5]
    ask(tier, 6)  # so it begins anew, and 1 has lost its mark
    assert tier.keys() == [3, 5, 6]


def test_lirs_block_by_block():
    a, b, c, d, e = range(5)
    tier = BlockLirs(3, hir_share=1 / 3)
    ask(tier, a, b, c, d)  # a and b fill the large part; c went for d, and is remembered
    assert (tier.low, list(tier.queue), list(tier.stack)) == ({a, b}, [d], [a, b, c, d])
    ask(tier, c)  # it came back sooner than a, which has to wait for its turn now
    assert (tier.low, list(tier.queue), list(tier.stack)) == ({b, c}, [a], [b, d, c])
    ask(tier, a)  # not in the stack: its last two uses lie too far apart
    assert (tier.low, list(tier.queue), list(tier.stack)) == ({b, c}, [a], [b, d, c, a])
    ask(tier, b)  # d lies below the oldest of low recency now
    assert list(tier.stack) == [c, a, b]
    ask(tier, a)  # and this time it is in the stack
    assert (tier.low, list(tier.queue), list(tier.stack)) == ({a, b}, [c], [b, a])
    ask(tier, e)
    ask(tier, c)  # nobody remembers c
    assert (tier.low, list(tier.queue), list(tier.stack)) == ({a, b}, [c], [b, a, e, c])


# --- chain by chain ---------------------------------------------------------------------------------------------------


def test_of_a_chain_the_end_goes():
    tier = ChainTier(4)
    ask(tier, 1, 2, 3)
    ask(tier, 7, 8)
    assert held(tier) == [1, 2, 7, 8]
    assert ask(tier, 1, 2, 3) == 2


def test_a_head_that_others_hang_on_stays_as_long_as_one_of_them():
    tier = ChainTier(5)
    ask(tier, 1, 2, 3)
    ask(tier, 1, 2, 4, 5)
    ask(tier, 7, 8)  # 3 is the oldest end; then that of 4, 5
    assert held(tier) == [1, 2, 4, 7, 8]
    ask(tier, 9, 10)  # the rest of it; now nothing hangs on the head
    assert held(tier) == [1, 7, 8, 9, 10]


def test_s3fifo_chain_by_chain():
    tier = ChainS3Fifo(10)  # of which the small queue gets 1 block; 9 blocks of ghosts
    talk, long, short, other = (1, 2, 3), tuple(range(11, 18)), (21, 22), tuple(range(31, 36))
    assert [ask(tier, *talk) for _ in range(3)] == [0, 3, 3]
    ask(tier, *long)
    ask(tier, *short)  # the talk was used twice and goes over, so the end of the long one goes
    assert held(tier) == sorted((*talk, *long[:5], *short))
    assert {tier.queues[tier.tree.find(key)] for key in (1,)} == {MAIN}
    ask(tier, *other)  # what is left of the long one: a ghost
    assert [list(chain.keys) for chain in tier.ghosts] == [list(long)]
    assert ask(tier, *long) == 0  # it comes back to the main queue, and both that were new go for it
    assert held(tier) == sorted((*talk, *long))
    assert tier.queues[tier.tree.find(11)] == MAIN
    ask(tier, 41, 42)  # nobody else is in the small queue, and the talk is the oldest of the main one
    assert held(tier) == sorted((1, *long, 41, 42))
    assert tier.queues[tier.tree.find(41)] == SMALL


@pytest.mark.parametrize(("uses_to_stay", "left"), [(2, [1]), (1, [1, 2, 3])])
def test_uses_that_a_chain_needs_to_leave_the_small_queue(uses_to_stay, left):
    tier = ChainS3Fifo(6, uses_to_stay)
    ask(tier, 1, 2, 3)
    ask(tier, 1, 2, 3)
    ask(tier, 11, 12, 13)
    ask(tier, 21, 22)
    assert held(tier) == sorted((*left, *((11, 12, 13) if left == [1] else (11,)), 21, 22))


def test_sieve_chain_by_chain():
    tier = ChainSieve(6)
    a, b, c, d, e, f = ((10 * n, 10 * n + 1) for n in range(6))
    for keys in (a, b, c, a):
        ask(tier, *keys)
    ask(tier, *d)  # the hand passes a, and takes b
    assert held(tier) == sorted((*a, *c, *d))
    assert ask(tier, *c) == 2
    ask(tier, *e)  # it passes c, and takes d, the newest
    assert held(tier) == sorted((*a, *c, *e))
    ask(tier, *f)  # so it begins anew, and a has lost its mark
    assert held(tier) == sorted((*c, *e, *f))


def test_lirs_chain_by_chain():
    tier = ChainLirs(10, hir_share=0.2)
    a, b = (1, 2, 3, 4), (11, 12, 13, 14)
    c, d = (21, 22, 23, 24, 25), (31, 32, 33)
    ask(tier, *a)
    ask(tier, *b)
    ask(tier, *c)  # new ones get 2 blocks together
    assert held(tier) == sorted((*a, *b, *c[:2]))
    ask(tier, *d)
    assert held(tier) == sorted((*a, *b, *d[:2]))
    assert ask(tier, *c) == 0  # it came back sooner than a: d gives 2 blocks for it, and a the end that is needed
    assert held(tier) == sorted((*a[:1], *b, *c))
    assert tier.queue_of(tier.tree.find(21)) == LOW
    assert ask(tier, *a) == 1  # its last two uses lie far apart; 9 blocks of low recency were too many, so b gives
    assert tier.queue_of(tier.tree.find(1)) == HIGH
    assert held(tier) == sorted((*a, *b[:1], *c))


def test_a_head_counts_as_used_after_what_hangs_on_it():
    tier = ChainLirs(10)
    ask(tier, 1, 2, 3)
    ask(tier, 1, 2, 9)
    assert [chain.keys for chain in tier.stack] == [[3], [9], [1, 2]]


# --- adaptive, and with pieces of others ------------------------------------------------------------------------------


def test_adaptive_goes_by_last_use_until_it_has_learned_and_so_does_each_variant():
    tiers = [POLICIES[name](20) for name in ("chain-lru", *(p for p in POLICIES if p.startswith("adaptive")))]
    prompts = [tuple(range(100 * n, 100 * n + 3 + n % 4)) for n in range(30)]
    total = 0
    for n, prompt in enumerate(prompts):
        # One of five blocks comes back twice while it lies there, and once when three of them have gone.
        back = {5: 3, 8: 6, 0: 10}.get(n % 12) if n else None
        for keys in (prompt,) if back is None else (prompt, prompts[n - back]):
            found = [tier.ask(keys, len(keys), 10.0 * n) for tier in tiers]
            assert found == [found[0]] * len(tiers)
            total += found[0]
    assert total == 5 * 5 + 2 * 2
    assert all(tier.retention.curve.num_reuses < REUSES_TO_LEARN for tier in tiers[1:])


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.startswith("adaptive")])
def test_other_order_inside_a_class_says_nothing_before_worth_does(policy):
    """Of two that came back, the one that came in first was used last."""
    tier = POLICIES[policy](10)
    first, second, third = (1, 2, 3, 4), (11, 12, 13, 14), (21, 22, 23, 24)
    for now, keys in enumerate((first, second, second, first, third)):
        tier.ask(keys, 4, float(now))
    assert [tier.ask(keys, 4, 9.0) for keys in (first, second)] == [4, 2]


def test_of_a_request_only_the_prompt_is_asked_for():
    tier = POLICIES["adaptive"](20)
    assert tier.ask((1, 2, 3, 4), 2, 0.0) == 0
    assert tier.retention.guard.asked == 2
    assert tier.ask((1, 2, 3, 4, 5), 3, 1.0) == 3


def test_hand_inside_a_class_passes_who_was_used_and_begins_anew_after_the_newest():
    tree, hand = ChainTree(1, 100), Hand()
    view = View(0, 8, worth_class, hand.order)

    def come_in(*keys):
        path = tree.arrive(keys)
        for key in keys:
            chain = tree.advance(path, key, 0.0)
        tree.leave(path, 0.0)
        hand.use(chain, is_there=False)
        view.grow(chain, len(keys))
        return chain

    def next_one():
        hand.pass_visited(view, None)
        return next(view.candidates(None))

    a, b, c = come_in(10, 11), come_in(20, 21), come_in(30, 31)
    hand.use(a, is_there=True)
    assert next_one() is b
    view.shrink(b, 2)
    hand.use(c, is_there=True)
    assert next_one() is a  # past c, the newest, and a has lost its mark
    d = come_in(40, 41)
    hand.use(a, is_there=True)
    assert next_one() is c
    view.shrink(c, 2)
    assert next_one() is d


# --- all of them ------------------------------------------------------------------------------------------------------


def talks(seed, num_requests=300):
    """Talks that go on, with heads that they share, and prompts that nobody asks for again."""
    rng = random.Random(seed)
    open_talks: list[list[int]] = []
    fresh = 100
    for n in range(num_requests):
        if open_talks and rng.random() < 0.6:
            keys = rng.choice(open_talks[-8:])
        else:
            keys = [rng.randrange(3)]
            open_talks.append(keys)
        num_new = rng.randrange(1, 6)
        keys += range(fresh, fresh + num_new)
        fresh += num_new
        yield Request(tuple(keys), len(keys), float(n))


@pytest.mark.parametrize("policy", POLICIES)
def test_finds_everything_where_everything_fits_and_no_more_than_the_bound_where_not(policy):
    requests = list(talks(1))
    roomy = Row("roomy", 10_000, requests)
    if policy != "adaptive-probation":  # a tenth of the tier is all that it has for what is new
        assert play(policy, roomy) == pytest.approx(play(BELADY, roomy))
    for capacity in (20, 60):
        row = Row("tight", capacity, requests)
        assert 0 < play(policy, row) <= play(BELADY, row)


@pytest.mark.parametrize("policy", [p for p in POLICIES if p.startswith("chain-")])
def test_tier_of_chains_holds_no_more_than_it_can_and_nothing_behind_a_hole(policy):
    tier = POLICIES[policy](40)
    for request in talks(2):
        expected = 0
        there = set(held(tier))
        while expected < request.num_asked and request.keys[expected] in there:
            expected += 1
        assert tier.ask(request.keys, request.num_asked, request.at_seconds) == expected
        assert len(held(tier)) == tier.view.used <= 40
        for chain in tier.tree:
            if tier.view.count(chain) and chain.parent is not None and chain.parent.keys:
                assert tier.view.count(chain.parent) == len(chain.parent.keys)


def test_what_a_lirs_tier_counts_as_of_low_recency_is_what_it_holds_of_it():
    tier = ChainLirs(60, hir_share=0.1)
    for request in talks(3):
        tier.ask(request.keys, request.num_asked, request.at_seconds)
        assert tier.num_low == sum(tier.view.count(c) for c in tier.tree if tier.queue_of(c) == LOW)


def test_what_an_s3fifo_tier_counts_as_new_is_what_its_small_queue_holds():
    tier = ChainS3Fifo(60)
    for request in talks(4):
        tier.ask(request.keys, request.num_asked, request.at_seconds)
        there = [c for c in tier.tree if tier.view.count(c)]
        assert tier.num_small == sum(tier.view.count(c) for c in there if tier.queue_of(c) == SMALL)
        assert tier.num_ghosts == sum(tier.ghosts.values()) <= 54


def test_each_turn_of_a_workload_goes_on_with_all_that_was_said():
    spec = ChatSpec(
        active=2, total=3, turns=(3, 3), system_len=32, first_len=40, user_len=20, output_len=30, think_seconds=1
    )
    workload = Workload("few", spec, gpu_blocks=10, cpu_blocks=10, engine=EngineSpec(block_size=16))
    requests = list(of_workload(workload, seed=1))
    assert len(requests) == 9
    assert [r.at_seconds for r in requests] == sorted(r.at_seconds for r in requests)
    lengths: list[int] = []
    for talk in (chat_talk(spec, 1, n) for n in range(3)):
        said = spec.system_len
        for turn in talk.turns:
            lengths.append(said + turn.num_new)
            said += turn.num_new + turn.num_output
    assert sorted(r.num_asked for r in requests) == sorted((n - 1) // 16 for n in lengths)
    ends = [r for r in requests if not any(o is not r and o.keys[: len(r.keys)] == r.keys for o in requests)]
    assert len(ends) == 3
    for end in ends:
        turns = [r for r in requests if end.keys[: len(r.keys)] == r.keys]
        assert len(turns) == 3
        for before, after in pairwise(turns):
            assert len(before.keys) <= len(after.keys)
            assert before.num_asked <= after.num_asked
