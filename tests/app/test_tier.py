"""What lies in each CPU block as of a row of the log, and in which order the blocks would go."""

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def tier(make_log, client_of, kit):
    """A tier of six blocks, told what happens to its blocks; ask the API for it."""

    class Tier:
        def __init__(self):
            self.log = make_log()
            self.engine = self.log.engine(num_cpu_blocks=6)
            self.client = client_of(self.log)
            self.hashes = [kit.block_hash("c", i) for i in range(8)]
            self.log.chain(self.engine, self.hashes)

        def run(self, kind, first, ids, **changes):
            """A run of the chain in these CPU blocks, from a block index on."""
            last = first + len(ids) - 1
            e = kit.event(
                kind, first_index=first, num_blocks=len(ids), head_hash=self.hashes[first], tail_hash=self.hashes[last],
                cpu_block_ids=tuple(ids), **changes,
            )  # fmt: skip
            self.log.now += 1
            return self.log.write(self.engine, e)

        def get(self, **query):
            response = self.client.get("/restore/api/tier", params=query)
            assert response.status_code == 200, response.text
            return response.json()

        def column(self, name, **query):
            return {b["id"]: b[name] for b in self.get(**query)["blocks"]}

    return Tier()


def test_blocks_say_what_lies_in_them(tier):
    tier.run("stored", 0, (1, 2), request_id="a")
    tier.run("restored", 2, (3,), request_id="b")
    tier.run("loaded", 1, (2,), request_id="c")
    body = tier.get()
    assert (body["num_blocks"], body["states"], body["is_complete"]) == (6, {"cached": 3, "free": 3}, True)
    one, two, three, four, *_ = body["blocks"]
    assert one | {"eviction_rank": None} == {
        "id": 1, "state": "cached", "hash": tier.hashes[0].hex(), "kv_group": 0, "index": 0, "request_id": "a",
        "conversation_id": None, "is_restored": False, "stored_wall_ns": T0 + SECOND, "age_ns": 2 * SECOND,
        "num_hits": 0, "eviction_rank": None,
    }  # fmt: skip
    assert (two["hash"], two["index"], two["num_hits"]) == (tier.hashes[1].hex(), 1, 1)
    assert (three["hash"], three["is_restored"], three["request_id"]) == (tier.hashes[2].hex(), True, "b")
    assert (four["state"], four["hash"], four["eviction_rank"]) == ("free", None, None)


def test_least_recently_used_goes_first_and_a_load_is_a_use(tier):
    tier.run("stored", 0, (5, 4, 3))
    tier.run("stored", 3, (1,))
    tier.run("loaded", 0, (5,))
    ranks = tier.column("eviction_rank")
    assert [i for i, _ in sorted(ranks.items(), key=lambda r: (r[1] is None, r[1]))][:4] == [4, 3, 1, 5]
    assert tier.get()["is_order_approximate"] is False


def test_block_that_was_evicted_for_a_copy_is_in_flight_until_the_copy_is_told_of(tier):
    tier.run("stored", 0, (1, 2))
    tier.run("evicted", 0, (1,))
    assert tier.column("state")[1] == "in_flight"
    assert tier.get()["is_order_approximate"] is True
    tier.run("stored", 5, (1,), request_id="new")
    after = {b["id"]: b for b in tier.get()["blocks"]}[1]
    assert (after["state"], after["hash"], after["request_id"]) == ("cached", tier.hashes[5].hex(), "new")


def test_blocks_of_a_hit_whose_load_is_under_way_are_pinned(tier, kit):
    tier.run("stored", 0, (1, 2, 3))
    hit = kit.event(
        "lookup", request_id="r", tail_hash=tier.hashes[3], num_tokens=130, gpu_hit_tokens=32, cpu_hit_tokens=64
    )
    tier.log.write(tier.engine, hit)
    assert tier.column("state") == {1: "cached", 2: "pinned", 3: "pinned", 4: "free", 5: "free", 6: "free"}
    assert tier.column("eviction_rank")[2] is None
    tier.run("loaded", 1, (2, 3), request_id="r")
    assert tier.column("state")[2] == "cached"


def test_blocks_of_a_hit_that_waits_for_a_place_are_pinned_until_its_request_ends(tier, kit):
    tier.run("stored", 0, (1, 2, 3))

    def found(kind, cpu_hit_tokens):
        told = kit.event(
            kind, request_id="r", tail_hash=tier.hashes[3], gpu_hit_tokens=0, cpu_hit_tokens=cpu_hit_tokens
        )
        tier.log.write(tier.engine, told)
        return tier.get()["states"]

    assert found("waits", 64) == {"pinned": 2, "cached": 1, "free": 3}
    assert found("waits", 96) == {"pinned": 3, "free": 3}
    # It got a place, and less than before is still there to be loaded.
    assert found("lookup", 32) == {"pinned": 1, "cached": 2, "free": 3}
    tier.log.write(tier.engine, kit.event("finished", request_id="r", status="FINISHED_ABORTED"))
    assert tier.get()["states"] == {"cached": 3, "free": 3}


def test_reset_empties_it(tier):
    from connector.events import CacheReset

    tier.run("stored", 0, (1, 2))
    tier.log.write(tier.engine, CacheReset(2))
    tier.run("stored", 2, (6,))
    assert tier.get()["states"] == {"free": 5, "cached": 1}


def test_it_is_as_of_the_row_that_was_asked_for(tier):
    before = tier.run("stored", 0, (1,))
    tier.run("evicted", 0, (1,))
    tier.run("stored", 4, (1,))
    assert tier.column("hash", seq=before)[1] == tier.hashes[0].hex()
    assert tier.get(seq=before)["wall_ns"] == T0 + SECOND
    assert tier.column("hash")[1] == tier.hashes[4].hex()


def test_churn_and_age_of_what_was_evicted(tier):
    tier.run("evicted", 0, (1, 2, 3, 4), num_loaded=1, age_ns=2 * SECOND)
    tier.run("evicted", 4, (5,), num_loaded=0, age_ns=5000 * SECOND)
    body = tier.get()
    assert (body["evicted_blocks"], body["evicted_unhit_blocks"], body["churn"]) == (5, 4, 0.8)
    filled = [(b["from_ns"], b["to_ns"], b["num_blocks"]) for b in body["eviction_age"] if b["num_blocks"]]
    assert filled == [(SECOND, 3_162_277_660, 4), (3_162_277_660_168, None, 1)]
    later = tier.get(since=T0 + 2 * SECOND)
    assert (later["evicted_blocks"], later["churn"]) == (1, 1.0)
    assert tier.get(since=T0 + 30 * SECOND, until=T0 + 40 * SECOND)["churn"] is None


def test_blocks_of_a_conversation_carry_its_id(tier, kit):
    chain = tier.hashes
    tier.log.write(tier.engine, kit.event("started", request_id="t1", num_blocks=2, tail_hash=chain[1]))
    tier.log.write(tier.engine, kit.event("finished", request_id="t1", num_blocks=3, tail_hash=chain[2]))
    tier.log.write(tier.engine, kit.event("started", request_id="t2", num_blocks=5, tail_hash=chain[4]))
    tier.run("stored", 3, (1, 2), request_id="t2")
    assert tier.column("conversation_id")[2] == "t1"


def test_hot_block_is_not_followed_back_for_ever(tier, monkeypatch):
    monkeypatch.setattr("app.queries.tier.ENOUGH_ROWS", 6)
    tier.run("stored", 0, (1,), request_id="long-ago")
    tier.run("stored", 1, (2, 3, 4, 5, 6))
    for _ in range(4):
        tier.run("loaded", 0, (1,))
    body = tier.get()
    hot = body["blocks"][0]
    assert (hot["state"], hot["hash"], hot["request_id"]) == ("cached", tier.hashes[0].hex(), "long-ago")
    for _ in range(4):
        tier.run("loaded", 0, (1, 2, 3, 4, 5, 6))
    hot = tier.get()["blocks"][0]
    assert (hot["state"], hot["hash"], hot["request_id"], hot["num_hits"]) == (
        "cached", tier.hashes[0].hex(), None, None,
    )  # fmt: skip


def test_part_of_the_blocks(tier):
    tier.run("stored", 0, (1, 2))
    body = tier.get(first_id=2, limit=2)
    assert [b["id"] for b in body["blocks"]] == [2, 3]
    assert body["states"] == {"cached": 2, "free": 4}


def test_engine_that_is_not_there_is_not_found(tier):
    assert tier.client.get("/restore/api/tier?engine=9").status_code == 404
    assert tier.get(engine=tier.engine)["engine_id"] == tier.engine
