"""The tree of block hashes. Keys are numbers here: what counts is that equal keys mean equal prefixes."""

from itertools import pairwise

from chain_invariants import check_tree
from hypothesis import given
from hypothesis import strategies as st

from connector.chains import ChainTree
from connector.retention import Retention


def grown(tree, keys, now=0.0):
    path = tree.arrive(keys)
    for key in keys[path.length :]:
        tree.advance(path, key, now)
    return path


def chains(tree):
    return sorted((chain.start, list(chain.keys)) for chain in tree)


def test_prompt_is_one_chain_and_its_next_turn_extends_it():
    tree = ChainTree(1, 100)
    first = grown(tree, [1, 2, 3])
    tree.leave(first, 1.0)
    second = tree.arrive([1, 2, 3])
    for key in (4, 5):
        tree.advance(second, key, 2.0)
    assert chains(tree) == [(0, [1, 2, 3, 4, 5])]
    assert second.length == 5


def test_branch_splits_the_chain_and_each_request_stays_on_its_own():
    tree = ChainTree(1, 100)
    first = grown(tree, [1, 2, 3, 4])
    second = grown(tree, [1, 2, 7])
    assert chains(tree) == [(0, [1, 2]), (2, [3, 4]), (2, [7])]
    assert [c.keys for c in first.chains()] == [[1, 2], [3, 4]]
    assert [c.keys for c in second.chains()] == [[1, 2], [7]]
    assert [c.num_owners for c in first.chains()] == [2, 1]


def test_request_that_stands_within_a_chain_follows_it_until_it_departs():
    tree = ChainTree(1, 100)
    first = grown(tree, [1, 2])
    second = tree.arrive([1, 2])
    tree.advance(first, 3, 0.0)
    tree.advance(second, 3, 0.0)
    tree.advance(first, 4, 0.0)
    tree.advance(second, 9, 0.0)
    assert chains(tree) == [(0, [1, 2, 3]), (3, [4]), (3, [9])]


def test_two_conversations_with_nothing_in_common_share_no_chain():
    tree = ChainTree(1, 100)
    grown(tree, [1, 2])
    grown(tree, [5])
    assert chains(tree) == [(0, [1, 2]), (0, [5])]


def test_oldest_idle_ghosts_are_forgotten_from_their_ends_and_running_ones_stay():
    tree = ChainTree(1, 4)
    running = grown(tree, [1, 2])
    old, young = grown(tree, [3, 4, 5]), grown(tree, [6, 7])
    for path, now in ((old, 1.0), (young, 2.0)):
        path.chain.last_used = now
        tree.leave(path, now)
    tree.forget(lambda chain, wanted: max(0, len(chain.keys) - wanted), 3.0)
    assert len(tree) == 4
    assert chains(tree) == [(0, [1, 2]), (0, [6, 7])]
    assert running.length == 2


PROMPTS = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), max_size=6)), max_size=40)


@given(PROMPTS, st.integers(1, 12))
def test_tree_and_its_tiers_add_up_whatever_comes(prompts, capacity):
    """Prompts of few symbols branch everywhere; several run at a time. A key names its whole prefix."""
    retention = Retention(capacity)
    running = []
    for now, (keep, symbols) in enumerate(prompts):
        keys = [tuple(symbols[: i + 1]) for i in range(len(symbols))]
        path = retention.arrive(keys, float(now))
        for key in keys[path.length :]:
            retention.advance(path, key, float(now))
        check_tree(retention)
        running.append(path)
        while len(running) > keep:
            retention.leave(running.pop(0), now + 0.5)
            check_tree(retention)
    for path in running:
        retention.leave(path, 1_000.0)
    check_tree(retention)
    assert len(retention.tree) <= 5 * capacity
    for chain in retention.tree:
        assert all(b[:-1] == a for a, b in pairwise(chain.keys))
        assert not chain.num_owners


WHAT = st.sampled_from(["come", "come", "go on", "go on", "go on", "end"])
DEEDS = st.lists(st.tuples(WHAT, st.integers(0, 5), st.integers(0, 2)), max_size=80)


@given(DEEDS, st.integers(1, 6))
def test_whoever_may_leave_can_be_found_whatever_waits_and_runs(deeds, capacity):
    """Requests wait with a prompt of which a part is known, run block by block beside one another, and end."""
    retention = Retention(capacity)
    paths = []
    for now, (deed, which, symbol) in enumerate(deeds):
        if deed == "come":
            known = [chain.keys[-1] for chain in retention.tree]
            prompt = known[which % len(known)] if known and symbol else ()
            keys = [prompt[: i + 1] for i in range(len(prompt))]
            paths.append((retention.arrive(keys, float(now)), list(prompt)))
        elif paths:
            path, symbols = paths[which % len(paths)]
            if deed == "go on":
                symbols.append(symbol)
                retention.advance(path, tuple(symbols), float(now))
                retention._take_in(retention.live, path, path.chains(), retention.rule, float(now))
            else:
                paths.remove((path, symbols))
                retention.leave(path, float(now))
        check_tree(retention)
