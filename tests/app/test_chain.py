"""One request's page: the chain, where each block came from, why one was missing, what happened to it."""

import pytest

from connector.events import CacheReset


@pytest.fixture
def log(make_log):
    return make_log()


class Case:
    """A request `me` with 4 blocks and one token, and room to write what came before and after its lookup."""

    def __init__(self, log, kit, client_of, **engine):
        self.log, self.kit = log, kit
        self.engine = log.engine(**engine)
        self.hashes = [kit.block_hash("me", i) for i in range(4)]
        self.client = client_of(log)

    def tell(self):
        self.log.chain(self.engine, self.hashes)

    def write(self, name, *, step, first=0, last=None, hashes=None, **changes):
        hashes = hashes or self.hashes
        last = first if last is None else last
        self.log.step = step
        count = last - first + 1
        run = {
            "first_index": first,
            "num_blocks": count,
            "head_hash": hashes[first],
            "tail_hash": hashes[last],
            "cpu_block_ids": tuple(range(count)),
        }
        return self.log.write(self.engine, self.kit.event(name, **{**run, **changes}))

    def start(self, gpu=0, cpu=0, *, step=100, cut=None, request="me", hashes=None):
        hashes = hashes or self.hashes
        self.log.step = step
        about = {
            "request_id": request,
            "num_tokens": len(hashes) * 32 + 1,
            "num_blocks": len(hashes),
            "tail_hash": hashes[-1],
        }
        missing = None if cut is None else hashes[cut]
        self.log.write(self.engine, self.kit.event("started", **about))
        hit = {"gpu_hit_tokens": gpu, "cpu_hit_tokens": cpu, "cut_index": cut, "missing_hash": missing}
        self.log.write(self.engine, self.kit.event("lookup", **about, **hit))

    def read(self, request="me"):
        response = self.client.get(f"/restore/api/requests/{request}")
        assert response.status_code == 200, response.text
        return response.json()

    def why(self, index):
        return self.read()["chain"][index]["why_missing"]


@pytest.fixture
def case(log, kit, client_of):
    made = Case(log, kit, client_of)
    made.tell()
    return made


def test_sources_follow_the_lookup(case):
    case.start(gpu=32, cpu=32, cut=2)
    body = case.read()
    assert [b["source"] for b in body["chain"]] == ["gpu", "cpu", "missing", "computed"]
    assert [b["hash"] for b in body["chain"]] == [h.hex() for h in case.hashes]
    assert [b["index"] for b in body["chain"]] == [0, 1, 2, 3]
    assert body["is_chain_complete"] is True
    assert body["hash_block_size"] == 32
    assert body["request"]["cut_index"] == 2
    assert [b["why_missing"] is None for b in body["chain"]] == [True, True, False, True]


def test_prompt_that_was_found_whole_has_nothing_missing(case):
    case.start(gpu=64, cpu=64)
    assert [b["source"] for b in case.read()["chain"]] == ["gpu", "gpu", "cpu", "cpu"]


def test_request_that_waits_has_a_chain_of_pending_blocks(case, kit):
    case.log.write(case.engine, kit.event("started", request_id="me", num_blocks=4, tail_hash=case.hashes[3]))
    assert {b["source"] for b in case.read()["chain"]} == {"pending"}


def test_chain_grows_with_the_output(case, kit):
    case.start(gpu=128)
    more = [kit.block_hash("me", 4), kit.block_hash("me", 5)]
    case.log.chain(case.engine, more, parent=case.hashes[3], depth=4)
    case.log.write(case.engine, kit.event("finished", request_id="me", num_blocks=6, tail_hash=more[-1]))
    body = case.read()
    assert [b["source"] for b in body["chain"]] == ["gpu"] * 4 + ["computed"] * 2
    assert body["chain"][5]["hash"] == more[1].hex()


def test_evicted_block_names_the_step_and_the_other_party(case):
    case.write("stored", step=3, last=3)
    case.write("evicted", step=12, first=1, by_request_id="other")
    case.start(cpu=32, cut=1)
    assert case.why(1) == "evicted at step 12 by the store of other"


def test_newest_moment_before_the_lookup_decides(case):
    case.write("stored", step=3, last=3)
    case.write("evicted", step=12, first=1, by_request_id="other")
    case.write("stored", step=13, first=1)
    case.write("evicted", step=20, first=0, last=2)
    case.start(cut=1)
    case.write("stored", step=101, first=1)
    case.write("evicted", step=102, first=1, by_request_id="later")
    assert case.why(1) == "evicted at step 20"


def test_block_of_an_earlier_request_that_was_never_stored(case):
    case.start(step=5, request="earlier")
    case.start(cut=2)
    assert case.why(2) == "never stored"


def test_block_that_only_a_shorter_earlier_request_shares(case, kit):
    branch = [*case.hashes[:2], kit.block_hash("branch", 2)]
    case.log.chain(case.engine, branch[2:], parent=branch[1], depth=2)
    case.start(step=5, request="earlier", hashes=branch)
    case.start(cut=1)
    assert case.why(1) == "never stored"


def test_block_beyond_what_an_earlier_request_shares(case, kit):
    branch = [*case.hashes[:2], kit.block_hash("branch", 2), kit.block_hash("branch", 3)]
    case.log.chain(case.engine, branch[2:], parent=branch[1], depth=2)
    case.start(step=5, request="earlier", hashes=branch)
    case.start(cut=2)
    assert case.why(2) == "never seen before this request"


def test_emptied_tier_is_the_reason_if_there_was_a_copy(case):
    case.write("stored", step=3, last=1)
    case.log.step = 8
    case.log.write(case.engine, CacheReset(2))
    case.start(cut=0)
    body = case.read()
    assert body["chain"][0]["why_missing"] == "lost at step 8, when the CPU tier was emptied"
    assert [m["kind"] for m in body["chain"][0]["history"]] == ["blocks_stored", "cache_reset"]
    assert body["chain"][2]["history"] == []


def test_emptied_tier_is_no_reason_without_a_copy(case):
    case.log.write(case.engine, CacheReset(0))
    case.start(cut=0)
    assert case.why(0) == "never seen before this request"


def test_copy_that_was_there_but_not_used_is_told_so(case):
    case.write("stored", step=3, last=3)
    case.start(cut=0)
    assert case.why(0) == "in the CPU tier since step 3, but the lookup could not use it"


def test_history_of_each_block_and_whether_it_is_held(case):
    case.write("stored", step=3, last=3, request_id="me")
    case.write("evicted", step=5, first=1, last=2, by_request_id="other")
    case.write("restored", step=6, first=2, request_id="me")
    case.start(gpu=0, cpu=32, cut=1)
    case.write("loaded", step=101, first=0, request_id="me")
    blocks = case.read()["chain"]
    assert [[(m["kind"], m["step"]) for m in b["history"]] for b in blocks] == [
        [("blocks_stored", 3), ("blocks_loaded", 101)],
        [("blocks_stored", 3), ("blocks_evicted", 5)],
        [("blocks_stored", 3), ("blocks_evicted", 5), ("blocks_restored", 6)],
        [("blocks_stored", 3)],
    ]
    assert [b["is_in_cpu_tier"] for b in blocks] == [True, False, True, True]
    assert blocks[1]["history"][1]["by_request_id"] == "other"


def test_run_that_ends_in_a_siblings_branch_covers_the_common_prefix(case, kit):
    sibling = case.hashes[:2] + [kit.block_hash("sibling", i) for i in (2, 3, 4)]
    case.log.chain(case.engine, sibling[2:], parent=sibling[1], depth=2)
    case.write("stored", step=4, first=1, last=4, hashes=sibling, request_id="sibling")
    case.start(cut=0)
    blocks = case.read()["chain"]
    assert [len(b["history"]) for b in blocks] == [0, 1, 0, 0]
    assert blocks[1]["history"][0]["request_id"] == "sibling"


def test_run_in_a_branch_that_begins_behind_the_common_prefix_is_not_ours(case, kit):
    sibling = case.hashes[:2] + [kit.block_hash("sibling", i) for i in (2, 3)]
    case.log.chain(case.engine, sibling[2:], parent=sibling[1], depth=2)
    case.write("evicted", step=4, first=2, last=3, hashes=sibling)
    case.start(cut=0)
    assert [b["history"] for b in case.read()["chain"]] == [[], [], [], []]


def test_eviction_of_a_siblings_common_block_is_the_reason(case, kit):
    sibling = [*case.hashes[:2], kit.block_hash("sibling", 2)]
    case.log.chain(case.engine, sibling[2:], parent=sibling[1], depth=2)
    case.write("stored", step=4, first=0, last=2, hashes=sibling)
    case.write("evicted", step=9, first=1, last=2, hashes=sibling, by_request_id="greedy")
    case.start(cpu=32, cut=1)
    assert case.why(1) == "evicted at step 9 by the store of greedy"


def test_other_engine_with_the_same_hashes_is_another_tier(case, kit):
    other = case.log.engine()
    case.log.chain(other, case.hashes)
    run = {"num_blocks": 4, "head_hash": case.hashes[0], "tail_hash": case.hashes[3], "cpu_block_ids": (0, 1, 2, 3)}
    case.log.write(other, kit.event("stored", **run))
    case.start(cut=0)
    assert case.why(0) == "never seen before this request"


def test_group_of_larger_blocks_covers_several_hashes(log, kit, client_of):
    groups = '[{"block_size": 32, "kind": "sliding_window"}, {"block_size": 64, "kind": "full_attention"}]'
    case = Case(log, kit, client_of, kv_groups=groups)
    case.tell()
    # Group 1, its block 1: hashes 2 and 3, named by hash 3.
    case.write("stored", step=3, first=1, hashes=case.hashes[1::2], kv_group=1)
    case.start(cut=0)
    assert [len(b["history"]) for b in case.read()["chain"]] == [0, 0, 1, 1]
    case.write("stored", step=4, first=2)
    case.write("evicted", step=5, first=2)
    blocks = case.read()["chain"]
    assert [m["kv_group"] for m in blocks[2]["history"]] == [1, 0, 0]
    # One group has lost it, so a lookup would not find it.
    assert [b["is_in_cpu_tier"] for b in blocks] == [False, False, False, True]


def test_long_history_shows_the_newest_and_counts_all(case):
    for step in range(1, 76):
        case.write("stored", step=step)
        case.write("evicted", step=step)
    case.start(cut=0)
    block = case.read()["chain"][0]
    assert block["num_moments"] == 150
    assert len(block["history"]) == 100
    assert block["history"][-1]["step"] == 75
    assert block["history"][0]["step"] == 26


def test_history_that_is_left_out_is_told_and_what_it_may_decide_is_not_guessed(case, monkeypatch):
    case.write("stored", step=1, last=3, request_id="first")
    case.write("evicted", step=2, first=0, by_request_id="old")
    for step in range(3, 13):
        case.write("loaded", step=step, first=0, last=1)
    case.write("stored", step=13, first=0)
    seq = case.write("evicted", step=14, first=1)
    case.start(cut=2)
    monkeypatch.setattr("app.queries.runs.MAX_BLOCKS", 20)
    body = case.read()
    # Of block 0's runs the newest 10 are 1 + 9 × 2 = 19 blocks; the next one would be beyond the share.
    assert body["history_first_seq"] == seq - 10
    assert body["history_last_seq"] == seq + 2
    assert [b["num_moments"] for b in body["chain"]] == [10, 10, 0, 0]
    assert [b["is_in_cpu_tier"] for b in body["chain"]] == [True, False, None, None]
    # The reason is looked up however far back it lies.
    assert body["chain"][2]["why_missing"] == "in the CPU tier since step 1, but the lookup could not use it"


def test_what_the_request_itself_did_is_never_left_out(case, monkeypatch):
    case.start(step=2, cut=0)
    case.write("stored", step=3, last=3, request_id="me")
    for step in range(4, 10):
        case.write("loaded", step=step, request_id="other")
    monkeypatch.setattr("app.queries.runs.MAX_BLOCKS", 4)
    blocks = case.read()["chain"]
    assert [b["history"][0]["step"] for b in blocks] == [3, 3, 3, 3]


def test_history_without_a_gap_says_so(case):
    case.write("stored", step=1, last=3)
    seq = case.write("evicted", step=2, first=0)
    case.start(cut=0)
    body = case.read()
    assert (body["history_first_seq"], body["history_last_seq"]) == (None, seq + 2)


def test_tier_that_was_emptied_since_holds_nothing_even_where_history_is_left_out(case, monkeypatch):
    case.write("stored", step=1, last=3)
    for step in range(2, 12):
        case.write("loaded", step=step)
    case.log.write(case.engine, CacheReset(4))
    case.start(cut=0)
    monkeypatch.setattr("app.queries.runs.MAX_BLOCKS", 4)
    body = case.read()
    assert body["history_first_seq"] is not None
    assert [b["is_in_cpu_tier"] for b in body["chain"]] == [False] * 4


def test_long_chain_shows_fewer_moments_a_block(case, kit, monkeypatch):
    monkeypatch.setattr("app.queries.history.MAX_ALL_MOMENTS", 60)
    for step in range(1, 21):
        case.write("stored", step=step, last=3)
    case.start(cut=0)
    block = case.read()["chain"][2]
    assert block["num_moments"] == 20
    assert [m["step"] for m in block["history"]] == list(range(6, 21))


def test_block_that_an_earlier_request_generated_was_seen(case, kit):
    prompt = case.hashes[:2]
    case.start(step=5, request="earlier", hashes=prompt, cut=0)
    end = kit.event("finished", request_id="earlier", num_blocks=4, tail_hash=case.hashes[3])
    case.log.write(case.engine, end)
    case.start(cut=3)
    assert case.why(3) == "never stored"


def test_eviction_before_the_tier_was_emptied_stays_the_reason(case):
    case.write("stored", step=3, last=3)
    case.write("evicted", step=4, first=2, by_request_id="other")
    case.log.step = 8
    case.log.write(case.engine, CacheReset(3))
    case.start(cut=2)
    assert case.why(2) == "evicted at step 4 by the store of other"


def test_run_whose_way_to_its_head_was_lost_counts_for_its_head(case, kit):
    stray = [case.hashes[1], kit.block_hash("stray", 2), kit.block_hash("stray", 3)]
    case.write("stored", step=3, first=1, num_blocks=3, head_hash=stray[0], tail_hash=stray[2])
    case.start(cut=0)
    assert [b["num_moments"] for b in case.read()["chain"]] == [0, 1, 0, 0]


def test_chain_with_a_lost_part_says_so(log, kit, client_of):
    case = Case(log, kit, client_of)
    case.log.chain(case.engine, case.hashes[2:], parent=case.hashes[1], depth=2)
    case.start(cut=0)
    body = case.read()
    assert body["is_chain_complete"] is False
    assert [b["index"] for b in body["chain"]] == [2, 3]


def test_chain_with_a_lost_part_gives_no_reason_that_it_cannot_know(log, kit, client_of):
    case = Case(log, kit, client_of)
    case.log.chain(case.engine, case.hashes[2:], parent=case.hashes[1], depth=2)
    case.start(cut=2)
    missing = next(b for b in case.read()["chain"] if b["source"] == "missing")
    assert missing["why_missing"] == "not known: the log lost a part of this chain"


def test_prompt_shorter_than_a_block_has_no_chain(case, kit):
    case.log.write(case.engine, kit.event("started", request_id="short", num_blocks=0, tail_hash=None))
    case.log.write(case.engine, kit.event("lookup", request_id="short", num_blocks=0))
    body = case.read("short")
    assert body["chain"] == []
    assert body["is_chain_complete"] is True


def test_events_of_the_request_are_with_it(case):
    case.start(cut=0)
    case.write("stored", step=101, request_id="me")
    case.write("stored", step=102, request_id="someone")
    assert [e["kind"] for e in case.read()["events"]] == ["request_started", "lookup", "blocks_stored"]


def test_unique_start_of_an_id_is_enough(case, kit):
    for request in ("chatcmpl-abc-0-1", "chatcmpl-abd-0-2"):
        case.log.write(case.engine, kit.event("started", request_id=request))
    assert case.read("chatcmpl-abd")["request"]["request_id"] == "chatcmpl-abd-0-2"
    several = case.client.get("/restore/api/requests/chatcmpl-ab")
    assert several.status_code == 404
    assert "several" in several.json()["detail"]
    assert "chatcmpl-abc-0-1" in several.json()["detail"]


def test_whole_id_wins_over_ids_that_go_on(case, kit):
    for request in ("a", "ab"):
        case.log.write(case.engine, kit.event("started", request_id=request))
    assert case.read("a")["request"]["request_id"] == "a"


def test_id_may_hold_any_character(case, kit):
    case.log.write(case.engine, kit.event("started", request_id="team/a b?%ü"))
    assert case.read("team%2Fa%20b%3F%25%C3%BC")["request"]["request_id"] == "team/a b?%ü"


def test_unknown_id_is_404_and_names_it(case):
    response = case.client.get("/restore/api/requests/nobody")
    assert response.status_code == 404
    assert "'nobody'" in response.json()["detail"]
