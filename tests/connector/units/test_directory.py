"""The bounded memory of what was seen."""

import pytest

from connector.directory import Directory, Evicted, Halves, Novelty


def chain(name: str, length: int) -> list[bytes]:
    return [f"{name}{i}".encode() for i in range(length)]


def test_chain_is_new_once():
    directory = Directory(100, 1)
    assert directory.tell("r1", chain("a", 3)) == Novelty(0, None, None)
    assert directory.tell("r2", chain("a", 3)) == Novelty(3, None, None)
    assert directory.tell("r3", chain("a", 5)) == Novelty(3, None, None)


def test_branch_names_what_came_there_the_last_time():
    directory = Directory(100, 1)
    directory.tell("r1", chain("a", 4))
    directory.tell("r2", [*chain("a", 2), b"x"])
    assert directory.tell("r3", [*chain("a", 2), b"y", b"z"]) == Novelty(2, b"x", "r2")


def test_head_has_no_sibling():
    directory = Directory(100, 1)
    directory.tell("r1", chain("a", 2))
    assert directory.tell("r2", chain("b", 2)) == Novelty(0, None, None)


@pytest.mark.parametrize("capacity", [2, 10, 100])
def test_it_holds_no_more_than_its_capacity_and_counts_what_it_forgot(capacity):
    directory = Directory(capacity, 1)
    for i in range(50):
        directory.tell(f"r{i}", chain(f"{i}-", 7))
    remembered = sum(directory.teller(h) is not None for i in range(50) for h in chain(f"{i}-", 7))
    assert remembered <= capacity
    assert remembered + directory.num_forgotten == 350


def test_newest_half_is_always_remembered():
    memory: Halves[int, int] = Halves(10)
    for i in range(100):
        memory.put(i, i)
        assert all(memory.get(j) == j for j in range(max(0, i - 4), i + 1))
    assert len(memory) <= 10


def test_what_is_put_again_is_not_counted_as_forgotten():
    memory: Halves[int, int] = Halves(10)
    for _ in range(100):
        memory.put(1, 1)
    assert (memory.num_forgotten, len(memory), memory.get(1)) == (0, 1, 1)


def test_evicted_stays_evicted_when_its_next_copy_is_dropped():
    directory = Directory(100, 1)
    gone = Evicted(3, 5, "r", None, 7, is_by_restore=False)
    directory.evicted(b"k", gone)
    directory.dropped(b"k", "cpu_full")
    assert directory.fate(b"k") == gone
    directory.stored(b"k")
    directory.dropped(b"k", "cpu_full")
    assert directory.fate(b"k") == "cpu_full"


def test_reset_counts_for_what_was_stored_before_it():
    directory = Directory(100, 1)
    directory.stored(b"old")
    directory.reset()
    directory.stored(b"new")
    assert [directory.was_reset(directory.fate(k)) for k in (b"old", b"new")] == [True, False]
