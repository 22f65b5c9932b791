"""Who owns what, on cases that are worked out by hand."""

from connector.owners import OwnerIndex


def _turns(owners: OwnerIndex) -> list[tuple[int, bytes]]:
    """(admission number, key) of what is lost, as a scan meets it."""
    turns: list[tuple[int, bytes]] = []
    with owners.scan() as scan:
        while (found := scan.peek()) is not None:
            turns.append((found[0], found[1].key))
            scan.set_aside()
    return turns


def _two_requests_and_two_lost_blocks_of_the_second() -> OwnerIndex:
    owners = OwnerIndex()
    for request_id in ("a", "b"):
        owners.admit(request_id)
    for index, key in enumerate((b"head", b"tail")):
        owners.own("b", 0, index, 16 * index, key)
        owners.lose(key)
    return owners


def test_lost_block_that_an_earlier_request_comes_to_own_is_met_at_its_turn() -> None:
    owners = _two_requests_and_two_lost_blocks_of_the_second()
    assert _turns(owners) == [(2, b"head"), (2, b"tail")]
    owners.own("a", 0, 1, 16, b"tail")
    assert _turns(owners) == [(1, b"tail"), (2, b"head")]
    assert owners.num_lost == 2


def test_block_that_was_deferred_is_met_at_its_new_turn_and_waits_for_the_next_walk() -> None:
    owners = _two_requests_and_two_lost_blocks_of_the_second()
    owners.own("a", 0, 0, 0, b"own")
    owners.lose(b"own")
    with owners.scan() as scan:
        scan.defer(2)  # nobody but the second can supply it
        met: list[tuple[int, bytes]] = []
        while (found := scan.peek()) is not None:
            met.append((found[0], found[1].key))
            scan.set_aside()
    assert met == [(2, b"head"), (2, b"own"), (2, b"tail")]
    assert _turns(owners) == [(1, b"own"), (2, b"head"), (2, b"tail")]


def test_block_is_given_up_by_one_owner_and_stays_lost_for_the_other() -> None:
    owners = _two_requests_and_two_lost_blocks_of_the_second()
    owners.own("a", 0, 0, 0, b"head")
    owners.give_up("a", b"head")
    block = owners.get(b"head")
    assert block is not None
    assert list(owners.owners_of(block)) == ["b"]
    assert owners.num_lost == 2
    owners.give_up("b", b"head")
    assert owners.get(b"head") is None
    assert _turns(owners) == [(2, b"tail")]
    assert owners.num_lost == 1
