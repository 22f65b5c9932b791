"""What `adaptive` goes by, as the API tells it from a log: its rule and since when, its guard, curve and counts."""

import csv
import io

import pytest

from connector.events import RetentionState, RuleSwitched, StoresRefused

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
STATE = RetentionState(
    rule="lru", is_guard_on=False, lru_hit_blocks=0.0, worth_hit_blocks=0.0, asked_blocks=0.0, guard_lead=0.01,
    num_reuses=0, num_to_learn=8, horizon_s=60.0, edges_s=(0.0, 0.5), worth=((1.0, 1.0), (1.0, 1.0)),
    returns=(0.0, 0.0),
)  # fmt: skip


def changed(**changes):
    return RetentionState(**{name: getattr(STATE, name) for name in STATE.__slots__} | changes)


@pytest.fixture
def tier(make_log, client_of, kit):
    """An engine that a test tells what to say, one second after another; ask the API for its retention."""

    class Tier:
        def __init__(self):
            self.log = make_log()
            self.engine = self.log.engine()
            self.client = client_of(self.log)

        def say(self, *items):
            self.log.now += 1
            self.log.step += 1
            self.log.write(self.engine, *items)

        def obey(self, version, retention, **changes):
            self.say(kit.event("policy", policy_version=version, retention=retention, **changes))

        def evict(self, num_blocks, worth):
            incoming = None if worth is None else 0.9
            ids = tuple(range(num_blocks))
            self.say(
                kit.event(
                    "evicted",
                    num_blocks=num_blocks,
                    head_hash=b"h",
                    tail_hash=b"t",
                    cpu_block_ids=ids,
                    victim_worth=worth,
                    incoming_worth=incoming,
                )
            )

        def refuse(self):
            self.say(StoresRefused("r", 0, 4, 2, b"t", b"h", "worth", False, 0.25, 0.125))

        def switch(self, to_rule, reason, lru, worth, asked):
            before = "worth" if to_rule == "lru" else "lru"
            self.say(RuleSwitched(before, to_rule, reason, lru, worth, asked, 9))

        def get(self, **query):
            response = self.client.get("/restore/api/retention", params=query)
            assert response.status_code == 200, response.text
            return response.json()

    return Tier()


def test_under_vllms_own_order_there_is_no_rule_and_nothing_is_counted(tier):
    tier.obey(1, "lru")
    tier.evict(3, None)
    assert tier.get() == {
        "engine_id": tier.engine, "retention": "lru", "since_wall_ns": None, "state": None, "rule": None,
        "rule_since_wall_ns": None, "switches": [], "num_switches": None, "evicted_blocks": None,
        "evicted_by_worth_blocks": None, "num_refusals": None,
    }  # fmt: skip


def test_state_tells_the_guards_shadows_and_the_curve_by_class(tier):
    tier.obey(1, "adaptive")
    tier.say(STATE)
    body = tier.get()
    assert (body["state"]["lru_hit_rate"], body["state"]["worth_hit_rate"]) == (None, None)
    tier.say(
        changed(
            rule="worth",
            lru_hit_blocks=30.0,
            worth_hit_blocks=50.0,
            asked_blocks=200.0,
            num_reuses=11,
            worth=((0.5, 0.25), (0.75, 0.5)),
            returns=(1.5, 9.0),
        )
    )
    assert tier.get()["state"] == {
        "step": 3, "wall_ns": T0 + 3 * SECOND, "rule": "worth", "is_guard_on": False, "lru_hit_rate": 0.15,
        "worth_hit_rate": 0.25, "asked_blocks": 200.0, "guard_lead": 0.01, "num_reuses": 11, "num_to_learn": 8,
        "horizon_s": 60.0, "edges_s": [0.0, 0.5],
        "classes": [
            {"turns": 0, "returns": 1.5, "worth": [0.5, 0.25]}, {"turns": None, "returns": 9.0, "worth": [0.75, 0.5]},
        ],
    }  # fmt: skip


def test_counts_and_switches_begin_when_adaptive_came_in_force(tier):
    tier.obey(1, "adaptive")
    tier.say(changed(rule="worth"))
    tier.switch("worth", "learned", 4.0, 4.0, 8.0)
    tier.evict(5, 0.25)
    tier.refuse()
    tier.obey(2, "lru")
    tier.evict(7, None)
    assert tier.get()["evicted_blocks"] is None
    assert tier.get()["state"]["rule"] == "worth"  # what was learned the last time
    tier.obey(3, "adaptive")
    since = tier.log.now
    body = tier.get()
    # Nothing was said yet: what was learned before is gone.
    assert (body["state"], body["switches"], body["num_switches"]) == (None, [], 0)
    assert (body["since_wall_ns"], body["rule_since_wall_ns"]) == (T0 + since * SECOND, T0 + since * SECOND)
    tier.evict(2, None)
    tier.switch("worth", "learned", 1.0, 2.0, 8.0)
    tier.evict(3, 0.5)
    tier.obey(4, "adaptive", enabled=False)  # another toggle: it stays in force
    tier.evict(4, 0.5)
    tier.refuse()
    tier.switch("lru", "guard_on", 6.0, 2.0, 16.0)
    body = tier.get()
    assert body["since_wall_ns"] == T0 + since * SECOND
    assert (body["evicted_blocks"], body["evicted_by_worth_blocks"], body["num_refusals"]) == (9, 7, 1)
    assert body["rule"] == "lru"
    tier.say(changed(rule="worth"))  # its change was lost on the way to the log
    assert tier.get()["rule"] == "worth"
    assert [(s["to_rule"], s["reason"], s["lru_hit_rate"], s["worth_hit_rate"]) for s in body["switches"]] == [
        ("lru", "guard_on", 0.375, 0.125),
        ("worth", "learned", 0.125, 0.25),
    ]
    assert body["rule_since_wall_ns"] == body["switches"][0]["wall_ns"] == T0 + 15 * SECOND
    short = tier.get(limit=1)
    assert (len(short["switches"]), short["num_switches"]) == (1, 2)


def test_newest_engine_is_shown_unless_another_is_named(tier):
    tier.obey(1, "adaptive")
    tier.say(STATE)
    newest = tier.log.engine(dp_index=1)
    assert tier.get()["engine_id"] == newest
    assert tier.get()["retention"] is None
    assert tier.get(engine=tier.engine)["state"]["rule"] == "lru"
    missing = tier.client.get("/restore/api/retention", params={"engine": 99})
    assert missing.status_code == 404
    assert missing.json()["detail"] == "this log has no engine 99"


def test_tables_come_as_csv(tier):
    tier.obey(1, "adaptive")
    tier.say(changed(worth=((0.5, 0.25), (0.75, 0.5))))
    tier.switch("worth", "learned", 4.0, 4.0, 8.0)

    def rows(table):
        answer = tier.client.get("/restore/api/retention", params={"format": "csv", "table": table})
        return list(csv.DictReader(io.StringIO(answer.text)))

    assert [(r["to_rule"], r["reason"], r["lru_hit_rate"]) for r in rows("switches")] == [("worth", "learned", "0.5")]
    assert [(r["turns"], r["worth"]) for r in rows("classes")] == [("0", "[0.5, 0.25]"), ("", "[0.75, 0.5]")]


def test_refusals_and_switches_are_rows_like_others(tier):
    tier.refuse()
    tier.switch("worth", "learned", 4.0, 4.0, 8.0)
    page = tier.client.get("/restore/api/events", params={"kind": ["stores_refused", "rule_switched"]}).json()
    refused, switched = page["events"]
    assert refused["request_id"] == "r"
    assert refused["data"] == {
        "kv_group": 0, "first_index": 4, "num_blocks": 2, "tail_hash": b"t".hex(), "head_hash": b"h".hex(),
        "reason": "worth", "is_restore": False, "victim_worth": 0.25, "incoming_worth": 0.125,
    }  # fmt: skip
    assert (switched["data"]["to_rule"], switched["data"]["asked_blocks"]) == ("worth", 8.0)
