"""The clairvoyant bound, against values worked out by hand and against every policy there could be."""

import random
from functools import cache

import pytest

from connector.replay.belady import best_hit_blocks
from connector.replay.history import History

BLOCK = 16


def one_after_another(*prompts: str) -> History:
    """Requests that never overlap. A letter is a block; a capital one is written by the answer."""
    history = History(BLOCK)
    for n, text in enumerate(prompts):
        # A key is all that lies before it too, as vLLM's hashes are.
        keys = [text[: i + 1].lower().encode() for i in range(len(text))]
        prompt = [key for key, letter in zip(keys, text, strict=True) if letter.islower()]
        history.arrived(str(n), len(prompt) * BLOCK + 1, prompt)
        history.ended(str(n), keys)
    return history


CASES = {
    "the same again": (("abc", "abc"), 3, 3),
    "no room for all of it": (("abc", "abc"), 2, 2),
    "no room at all": (("abc", "abc"), 0, 0),
    "a loop larger than the cache keeps what it began with": (("ab", "cd", "ab", "cd"), 2, 2),
    "the one that is asked for sooner is kept": (("ab", "cd", "cd", "ab"), 2, 2),
    "nobody asks again": (("ab", "cd", "ef"), 9, 0),
    "a shared head counts for each": (("ab", "ac", "ad"), 1, 2),
    "an answer that is asked about": (("aBC", "abcd"), 3, 3),
    "the head of a chain before its tail": (("abc", "xyz", "abc"), 1, 1),
}


@pytest.mark.parametrize(("prompts", "capacity", "hits"), CASES.values(), ids=CASES)
def test_bound_is_what_it_is_by_hand(prompts: tuple[str, ...], capacity: int, hits: int) -> None:
    assert best_hit_blocks(one_after_another(*prompts), capacity) == hits


def test_last_token_is_always_computed() -> None:
    history = History(BLOCK)
    for n in "12":
        history.arrived(n, 2 * BLOCK, [b"a", b"ab"])
        history.ended(n, [b"a", b"ab"])
    assert best_hit_blocks(history, 5) == 1, "the second block completes the prompt"


def test_blocks_of_a_running_request_are_found_and_take_no_place() -> None:
    history = History(BLOCK)
    for n in "12":
        history.arrived(n, 2 * BLOCK + 1, [b"a", b"ab"])
    for n in "12":
        history.ended(n, [b"a", b"ab"])
    history.arrived("3", 2 * BLOCK + 1, [b"a", b"ab"])
    history.ended("3", [b"a", b"ab"])
    assert best_hit_blocks(history, 0) == 2
    assert best_hit_blocks(history, 1) == 3


def best_of_all(prompts: tuple[tuple[str, ...], ...], capacity: int) -> int:
    """Tries every choice of what to keep after each request; a hit is a prefix without a gap."""

    @cache
    def best(n: int, kept: frozenset[str]) -> int:
        if n == len(prompts):
            return 0
        hits = 0
        while hits < len(prompts[n]) and prompts[n][hits] in kept:
            hits += 1
        return hits + max(best(n + 1, choice) for choice in choices(kept | set(prompts[n])))

    @cache
    def choices(blocks: frozenset[str]) -> tuple[frozenset[str], ...]:
        found: set[frozenset[str]] = set()
        todo = [blocks]
        while todo:
            held = todo.pop()
            if held in found:
                continue
            found.add(held)
            todo += [held - {b} for b in held]
        return tuple(f for f in found if len(f) <= capacity)

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(40))
def test_no_choice_of_what_to_keep_finds_more_and_one_finds_as_much(seed: int) -> None:
    rng = random.Random(seed)
    texts = [rng.choice("ab") + "".join(rng.choice("xy") for _ in range(rng.randrange(3))) for _ in range(6)]
    capacity = rng.randrange(1, 4)
    prompts = tuple(tuple(t[: i + 1] for i in range(len(t))) for t in texts)
    assert best_hit_blocks(one_after_another(*texts), capacity) == best_of_all(prompts, capacity), (texts, capacity)
