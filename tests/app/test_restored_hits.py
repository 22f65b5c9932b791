"""Tokens of CPU hits that are there thanks to a re-store."""

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


@pytest.fixture
def story(make_log, client_of, kit):
    """Write a log of copies into and loads from CPU blocks; `hits` asks the API for restored and CPU tokens."""

    class Story:
        def __init__(self):
            self.log = make_log()
            self.engine = self.log.engine()
            self.client = client_of(self.log)

        def copy(self, kind, *ids, first=0, group=0, engine=None):
            e = kit.event(kind, num_blocks=len(ids), first_index=first, cpu_block_ids=ids, kv_group=group)
            self.log.write(engine or self.engine, e)

        def hit(self, request, gpu, cpu, *, at=None, engine=None, **changes):
            e = kit.event(
                "lookup", request_id=request, num_tokens=1000, gpu_hit_tokens=gpu, cpu_hit_tokens=cpu, **changes
            )
            self.log.write(engine or self.engine, e, at=at)

        def load(self, request, *ids, first=0, group=0, engine=None):
            e = kit.event(
                "loaded", request_id=request, num_blocks=len(ids), first_index=first, cpu_block_ids=ids, kv_group=group
            )
            self.log.write(engine or self.engine, e)

        def hits(self):
            tokens = self.client.get("/restore/api/summary").json()["tokens"]
            return tokens["restored_hit_tokens"], tokens["cpu_hit_tokens"]

    return Story()


def test_only_blocks_that_a_restore_wrote_count(story):
    story.copy("stored", 0, 1, 2)
    story.copy("restored", 1)
    story.hit("a", 0, 96)
    story.load("a", 0, 1, 2)
    assert story.hits() == (32, 96)


def test_a_later_first_store_into_the_same_place_ends_it(story):
    story.copy("restored", 5)
    story.copy("stored", 5)
    story.hit("a", 0, 32)
    story.load("a", 5)
    assert story.hits() == (0, 32)


def test_every_later_hit_on_a_restored_block_counts(story):
    story.copy("restored", 5, 6)
    for request in "ab":
        story.hit(request, 64, 64)
        story.load(request, 5, 6, first=2)
    assert story.hits() == (128, 128)


def test_a_store_after_the_load_does_not_change_the_past(story):
    story.copy("restored", 5)
    story.hit("a", 0, 32)
    story.load("a", 5)
    assert story.hits() == (32, 32)
    story.copy("stored", 5)
    story.hit("b", 0, 32)
    story.load("b", 5)
    assert story.hits() == (32, 64)


def test_lookup_after_a_preemption_counts_neither_way(story):
    story.copy("restored", 5)
    story.hit("a", 0, 32)
    story.load("a", 5)
    story.hit("a", 0, 32, is_resumed=True)
    story.load("a", 5)
    assert story.hits() == (32, 32)


def test_engines_have_tiers_of_their_own(story):
    other = story.log.engine()
    story.copy("restored", 5)
    story.copy("stored", 5, engine=other)
    story.hit("a", 0, 32, engine=other)
    story.load("a", 5, engine=other)
    assert story.hits() == (0, 32)


def test_tokens_count_once_where_two_groups_hold_them(story):
    groups = '[{"block_size": 32, "kind": "full"}, {"block_size": 64, "kind": "sliding_window"}]'
    engine = story.log.engine(kv_groups=groups)
    story.copy("restored", 1, 2, engine=engine)
    story.copy("restored", 3, engine=engine, group=1)
    story.hit("a", 0, 128, engine=engine)
    # Group 0: tokens 0 to 64; group 1: block 1, tokens 64 to 128 from elsewhere, then block 0, tokens 0 to 64.
    story.load("a", 1, 2, engine=engine)
    story.load("a", 3, engine=engine, group=1)
    assert story.hits() == (64, 128)


def test_hit_that_begins_inside_a_block_counts_only_its_own_tokens(story):
    story.copy("restored", 5, 6)
    story.hit("a", 16, 32)
    story.load("a", 5, 6)
    assert story.hits() == (32, 32)


def test_they_belong_to_the_moment_of_the_lookup(story):
    story.copy("restored", 5)
    story.hit("a", 0, 32, at=9)
    story.log.now = 11
    story.load("a", 5)
    query = {"since": T0, "until": T0 + 20 * SECOND, "bucket": 10}
    points = story.client.get("/restore/api/timeline", params=query).json()["points"]
    assert [p["restored_hit_tokens"] for p in points] == [32, None]


def test_long_log_is_read_in_pieces(story, monkeypatch):
    monkeypatch.setattr("app.queries.restored.CHUNK", 3)
    story.copy("stored", 0)
    for n in range(10):
        story.copy("restored", n)
        story.hit(f"r{n}", 0, 32)
        story.load(f"r{n}", n)
    assert story.hits() == (320, 320)
