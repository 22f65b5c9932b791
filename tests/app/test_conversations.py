"""Which request goes on from which, and where a conversation lost its prefix."""

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def talk(make_log, client_of, kit):
    """Write turns, each a prompt and an output of whole blocks; ask the API who belongs together."""

    class Talk:
        def __init__(self):
            self.log = make_log()
            self.engine = self.log.engine()
            self.client = client_of(self.log)
            self.told = set()

        def hashes(self, path):
            """A chain whose blocks are named by all that came before."""
            return [kit.block_hash(path[: i + 1]) for i in range(len(path))]

        def turn(self, request, prompt, output="", *, finish=True, engine=None, session=None, **lookup):
            engine = engine or self.engine
            chain = self.hashes(prompt + output)
            self.log.chain(engine, chain)
            tail = chain[len(prompt) - 1]
            self.log.now += 1
            self.log.write(
                engine,
                kit.event("started", request_id=request, num_blocks=len(prompt), tail_hash=tail, session_id=session),
                kit.event("lookup", request_id=request, tail_hash=tail, num_tokens=32 * len(prompt), **lookup),
            )
            if finish:
                end = kit.event("finished", request_id=request, num_blocks=len(chain), tail_hash=chain[-1])
                self.log.write(engine, end)

        def list(self, **query):
            return self.client.get("/restore/api/conversations", params=query).json()

        def grouped(self):
            ids = [c["id"] for c in self.list()["conversations"]]
            return {i: [t["request"]["request_id"] for t in self.one(i)["turns"]] for i in ids}

        def one(self, request):
            response = self.client.get(f"/restore/api/conversations/{request}")
            assert response.status_code == 200, response.text
            return response.json()

    return Talk()


def test_request_goes_on_from_the_one_whose_prompt_and_output_it_begins_with(talk):
    talk.turn("a1", "SSa", "x")
    talk.turn("b1", "SSb", "y")
    talk.turn("a2", "SSaxa", "z")
    talk.turn("a3", "SSaxazb", "w")
    talk.turn("b2", "SSbyc", "v")
    assert talk.grouped() == {"b1": ["b1", "b2"], "a1": ["a1", "a2", "a3"]}
    assert [(t["turn"], t["previous_request_id"], t["shared_blocks"]) for t in talk.one("a3")["turns"]] == [
        (1, None, 0), (2, "a1", 4), (3, "a2", 6),
    ]  # fmt: skip


def test_questions_behind_one_system_prompt_are_conversations_of_their_own(talk):
    # Their answers fill no block, so that each ends with the last block of the prompt that all share.
    for n in range(5):
        talk.turn(f"q{n}", "SSSS")
    assert talk.grouped() == {f"q{n}": [f"q{n}"] for n in (4, 3, 2, 1, 0)}


def test_two_answers_to_one_turn_are_branches_of_one_number(talk):
    talk.turn("a1", "Sa", "x")
    talk.turn("a2", "Saxb", "y")
    talk.turn("a2-again", "Saxc", "z")
    assert [(t["turn"], t["request"]["request_id"]) for t in talk.one("a1")["turns"]] == [
        (1, "a1"), (2, "a2"), (2, "a2-again"),
    ]  # fmt: skip


def test_turn_whose_output_filled_no_block_is_left_out_of_the_line_only(talk):
    talk.turn("a1", "Sa", "x")
    talk.turn("a2", "Saxb")
    talk.turn("a3", "Saxbc", "y")
    turns = talk.one("a3")["turns"]
    assert [(t["request"]["request_id"], t["previous_request_id"]) for t in turns] == [
        ("a1", None), ("a2", "a1"), ("a3", "a1"),
    ]  # fmt: skip


def test_session_groups_what_the_chain_does_not(talk):
    talk.turn("a1", "Sa", session="s")
    talk.turn("b1", "Tb", session="s")
    talk.turn("c1", "Uc", session="other")
    assert talk.grouped() == {"c1": ["c1"], "a1": ["a1", "b1"]}
    assert [t["by_session"] for t in talk.one("b1")["turns"]] == [False, True]


def test_engines_have_chains_of_their_own(talk):
    other = talk.log.engine()
    talk.turn("a1", "Sa", "x")
    talk.turn("a2", "Saxb", engine=other)
    assert talk.grouped() == {"a2": ["a2"], "a1": ["a1"]}


def test_conversation_says_where_it_lost_its_prefix(talk):
    talk.turn("a1", "Sa", "xy")
    talk.turn("a2", "Saxyb", "z", gpu_hit_tokens=32, cpu_hit_tokens=32, cut_index=2, lost_tokens=64)
    # Cut behind what the turn before had: nothing of the prefix was lost.
    talk.turn("a3", "Saxybzcc", "w", cpu_hit_tokens=192, restored_hit_tokens=96, cut_index=6)
    body = talk.one("a2")
    assert [t["lost_from_index"] for t in body["turns"]] == [None, 2, None]
    row = body["conversation"]
    assert (row["id"], row["num_turns"], row["num_lost_prefixes"]) == ("a1", 3, 1)
    # Prompts of 2, 5 and 8 blocks of 32 tokens; 2 and 6 blocks were found.
    assert (row["prompt_tokens"], row["gpu_hit_tokens"], row["cpu_hit_tokens"], row["restored_hit_tokens"]) == (
        480, 32, 224, 96,
    )  # fmt: skip
    assert (row["hit_rate"], row["lost_tokens"]) == (256 / 480, 64)
    assert (row["first_wall_ns"], row["last_wall_ns"]) == (T0 + SECOND, T0 + 3 * SECOND)


@pytest.mark.parametrize(
    ("cut", "lost_from_index"),
    [
        # The block that the last token of the turn before completed: nobody had computed it.
        ({"cause": "never_seen", "cause_detail": "never_computed", "lost_tokens": 0}, None),
        ({"cause": "in_flight", "cause_detail": "computing", "lost_tokens": 0}, None),
        ({"cause": "cache_skipped", "lost_tokens": 0}, None),
        ({"cause": "last_token_rule", "lost_tokens": 0}, None),
        # A draft head has a block computed again that was there.
        ({"cause": "last_token_rule", "cause_detail": "draft_head", "lost_tokens": 32}, 3),
        # The turn before had it, and the directory of seen hashes has forgotten that.
        ({"cause": "never_seen", "cause_detail": "maybe_forgotten", "lost_tokens": 0}, 3),
        ({"cause": "evicted", "cause_detail": "no_owner", "lost_tokens": 32}, 3),
        # A log from before causes were kept.
        ({"cause": None, "cause_detail": None}, 3),
    ],
)
def test_cut_at_what_nobody_had_computed_is_no_lost_prefix(talk, cut, lost_from_index):
    talk.turn("a1", "Sa", "xy")
    talk.turn("a2", "Saxyb", "z", gpu_hit_tokens=96, cut_index=3, **cut)
    body = talk.one("a2")
    assert [t["lost_from_index"] for t in body["turns"]] == [None, lost_from_index]
    assert body["conversation"]["num_lost_prefixes"] == (lost_from_index is not None)


def test_hit_rate_by_turn_is_over_all_conversations(talk):
    talk.turn("a1", "Sa", "x", gpu_hit_tokens=32)
    talk.turn("b1", "Sb", "x")
    talk.turn("a2", "Saxb", "y", cpu_hit_tokens=64)
    rates = talk.list(limit=1)["by_turn"]
    assert [(r["turn"], r["num_turns"], r["prompt_tokens"], r["hit_rate"]) for r in rates] == [
        (1, 2, 128, 0.25), (2, 1, 128, 0.5),
    ]  # fmt: skip


def test_pages_go_from_the_newest_to_the_oldest(talk):
    for name in "abcde":
        talk.turn(name, f"S{name}")
    first = talk.list(limit=2)
    second = talk.list(limit=2, before=first["next_before"])
    third = talk.list(limit=2, before=second["next_before"])
    assert [[c["id"] for c in p["conversations"]] for p in (first, second, third)] == [["e", "d"], ["c", "b"], ["a"]]
    assert (third["next_before"], third["num_conversations"]) == (None, 5)


def test_what_is_written_later_is_seen_later(talk):
    talk.turn("a1", "Sa", "x")
    assert talk.grouped() == {"a1": ["a1"]}
    talk.turn("a2", "Saxb", "y", finish=False)
    assert talk.grouped() == {"a1": ["a1", "a2"]}


def test_only_the_newest_requests_are_kept(talk, monkeypatch):
    monkeypatch.setattr("app.queries.conversation_index.MAX_REQUESTS", 2)
    for name in "abc":
        talk.turn(name, f"S{name}")
    page = talk.list()
    assert [c["id"] for c in page["conversations"]] == ["c", "b"]
    assert page["first_seq"] is not None
    for name in "defg":
        talk.turn(name, f"S{name}")
    assert [c["id"] for c in talk.list()["conversations"]] == ["g", "f"]
    assert talk.client.get("/restore/api/conversations/a").status_code == 404


def test_unknown_conversation_is_not_found(talk):
    response = talk.client.get("/restore/api/conversations/none")
    assert response.status_code == 404
    assert "none" in response.json()["detail"]
