"""The switch over REST: what is applied, what is refused, and what the caller is told about the engines' answers."""

import pytest

from connector.engine_row import EngineInfo
from connector.policy import Policy, VersionedPolicy
from connector.recorder import Recorder


def answer(builder, kit, engine, version, **changes):
    """The engine says that it obeys a version."""
    builder.write(engine, kit.event("policy", policy_version=version, reason="toggle", **changes))


def test_policy_without_any_change_is_the_default(make_log, client_of):
    body = client_of(make_log()).get("/restore/api/policy").json()
    assert body["version"] == 0
    assert body["policy"] == {"enabled": True, "mode": "tracked", "max_restore_blocks_per_step": 64, "retention": "lru"}
    assert body["author"] is None


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "nothing to change"),
        ({"enabeld": True}, "enabeld"),
        ({"enabled": "yes"}, "enabled"),
        ({"enabled": 1}, "enabled"),
        ({"mode": "off"}, "'rescan' or 'tracked'"),
        ({"max_restore_blocks_per_step": -1}, "greater than or equal to 0"),
        ({"max_restore_blocks_per_step": 1_000_001}, "1000000"),
        ({"max_restore_blocks_per_step": True}, "max_restore_blocks_per_step"),
        ({"max_restore_blocks_per_step": 1.5}, "max_restore_blocks_per_step"),
        ({"retention": "LRU"}, "'lru' or 'adaptive'"),
        ({"enabled": None}, "may not be null"),
        ({"enabled": False, "mode": "nope"}, "mode"),
        ([], "body"),
    ],
)
def test_bad_change_is_refused_whole(make_log, client_of, body, says):
    log = make_log()
    log.live_engine()
    client = client_of(log)
    response = client.put("/restore/api/policy", json=body)
    assert response.status_code == 422
    assert says in response.json()["detail"]
    assert client.get("/restore/api/policy/history").json() == []


def test_body_that_is_no_json_is_refused(make_log, client_of):
    log = make_log()
    log.live_engine()
    headers = {"content-type": "application/json"}
    response = client_of(log).put("/restore/api/policy", content="{enabled", headers=headers)
    assert response.status_code == 422
    assert "JSON" in response.json()["detail"]


def test_partial_change_keeps_the_other_toggles(make_log, client_of):
    log = make_log()
    client = client_of(log, is_recorded=False, policy_wait_seconds=0)
    client.put("/restore/api/policy", json={"mode": "rescan"})
    body = client.put("/restore/api/policy", json={"max_restore_blocks_per_step": 0}).json()
    assert body["version"] == 2
    assert body["policy"] == {"enabled": True, "mode": "rescan", "max_restore_blocks_per_step": 0, "retention": "lru"}


@pytest.fixture
def start_engine():
    """An engine's real recorder, which answers for itself when no step runs."""
    started = []

    def start(builder, dp_index):
        info = EngineInfo("uid", dp_index, "m", "0.32.0", "0.1.0", 32, 100, 50, 1000, (), "yes")
        started.append(Recorder(builder.url, info))
        return started[-1]

    yield start
    for recorder in started:
        assert recorder.close()


def test_change_waits_for_every_live_engine(make_log, client_of, start_engine):
    log = make_log()
    log.engine()  # killed long ago: nobody waits for it
    one, two = start_engine(log, 0), start_engine(log, 1)
    for _ in range(17):
        two.begin_step()
    client = client_of(log, is_recorded=False, policy_wait_seconds=30)
    response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 200
    body = response.json()
    assert body["detail"] is None
    assert [(e["engine_id"], e["dp_index"], e["applied_step"], e["is_idle"]) for e in body["engines"]] == [
        (one.engine_id, 0, 0, True),
        (two.engine_id, 1, 17, True),
    ]
    for engine in body["engines"]:
        assert engine["applied"] == {
            "enabled": False,
            "mode": "tracked",
            "max_restore_blocks_per_step": 64,
            "retention": "lru",
        }
        assert (engine["applied_version"], engine["is_pending"], engine["reason"]) == (1, False, "toggle")
    assert one.begin_step() == (1, VersionedPolicy(1, Policy(enabled=False)))


def test_silent_engine_makes_it_202_and_the_change_is_stored(make_log, client_of, kit):
    log = make_log()
    engine = log.live_engine()
    log.write(engine, kit.event("policy"))
    client = client_of(log, is_recorded=False, policy_wait_seconds=0.2)
    response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 202
    body = response.json()
    assert body["engines"][0]["is_pending"] is True
    assert body["engines"][0]["applied"]["enabled"] is True
    assert f"engine {engine} has not answered" in body["detail"]
    assert client.get("/restore/api/policy").json()["policy"]["enabled"] is False


def test_engine_that_cannot_restore_is_not_waited_for_and_said_to_obey_nothing(make_log, client_of, kit):
    log = make_log()
    mute = log.live_engine(restore_support="prefix caching is disabled")
    able = log.live_engine(dp_index=1)
    log.write(mute, kit.event("policy"))
    log.write(able, kit.event("policy", policy_version=1))
    client = client_of(log, is_recorded=False, policy_wait_seconds=3600)
    response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 202
    body = response.json()
    assert body["detail"] == f"engine {mute} obeys nothing, since it cannot re-store: prefix caching is disabled"
    assert [(e["engine_id"], e["is_pending"], e["restore_support"]) for e in body["engines"]] == [
        (mute, False, "prefix caching is disabled"),
        (able, False, "yes"),
    ]


def test_without_a_live_engine_the_next_one_will_obey(make_log, client_of):
    log = make_log()
    log.engine()
    response = client_of(log, is_recorded=False).put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 202
    assert response.json()["engines"] == []
    assert "the next one that starts" in response.json()["detail"]


def test_recorded_log_cannot_be_changed(make_log, client_of):
    log = make_log()
    log.engine()
    client = client_of(log)
    assert client.get("/restore/api/policy").json()["can_change"] is False
    response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 409
    assert "recorded" in response.json()["detail"]
    assert client.get("/restore/api/policy/history").json() == []


def test_log_that_an_engine_writes_can_be_changed_from_a_dashboard_of_its_own(make_log, client_of):
    log = make_log()
    log.live_engine()
    client = client_of(log, policy_wait_seconds=0)
    assert client.put("/restore/api/policy", json={"enabled": False}).status_code == 202


def test_history_says_who_when_from_and_to(make_log, client_of, kit):
    log = make_log()
    engine = log.live_engine()
    client = client_of(log, is_recorded=False, policy_wait_seconds=0)
    client.headers["user-agent"] = "probe/1.0 (some machine)"
    client.put("/restore/api/policy", json={"enabled": False})
    log.step = 5
    answer(log, kit, engine, 1, enabled=False)
    log.step = 9
    answer(log, kit, engine, 1, enabled=False)
    client.put("/restore/api/policy", json={"enabled": True, "mode": "rescan"})
    newest, oldest = client.get("/restore/api/policy/history").json()
    assert (newest["version"], oldest["version"]) == (2, 1)
    assert oldest["author"] == "127.0.0.1 (probe/1.0)"
    assert (oldest["before"]["enabled"], oldest["after"]["enabled"]) == (True, False)
    assert (newest["before"]["mode"], newest["after"]["mode"]) == ("tracked", "rescan")
    assert [a["applied_step"] for a in oldest["applied"]] == [5]
    assert newest["applied"] == []
    assert len(client.get("/restore/api/policy/history?limit=1").json()) == 1
    assert client.get("/restore/api/policy/history?limit=1").json()[0]["before"]["enabled"] is False


def test_engine_that_turned_restore_off_by_itself_says_so(make_log, client_of, kit):
    log = make_log()
    engine = log.live_engine()
    log.write(engine, kit.event("policy"))
    log.write(engine, kit.event("policy", enabled=False, reason="fault"))
    (state,) = client_of(log).get("/restore/api/policy").json()["engines"]
    assert (state["reason"], state["applied"]["enabled"], state["is_pending"]) == ("fault", False, False)
