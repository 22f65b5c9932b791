"""What is said when something is wrong."""

import os
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest


def test_well(make_log, client_of, kit):
    log = make_log()
    log.write(log.live_engine(), kit.event("policy"))
    log.engine()
    response = client_of(log).get("/restore/healthz")
    assert response.status_code == 200
    body = response.json()
    assert body.pop("schema_revision")
    assert body == {
        "status": "ok",
        "detail": None,
        "log": log.path,
        "num_live_engines": 1,
        "last_seq": 1,
        "is_recorded": True,
    }


def test_health_inside_vllm_says_that_it_is_no_recorded_log(make_log, client_of):
    assert client_of(make_log(), is_recorded=False).get("/restore/healthz").json()["is_recorded"] is False


def break_it(path, how):
    if how == "missing":
        return "no log at"
    if how == "text":
        path.write_text("hello, this is no database")
        return "not a SQLite database"
    conn = sqlite3.connect(path)
    conn.execute("CREATE TABLE alembic_version (version_num TEXT)" if how == "newer" else "CREATE TABLE t (x)")
    if how == "newer":
        conn.execute("INSERT INTO alembic_version VALUES ('29990101z')")
    conn.commit()
    conn.close()
    return "newer vllm-restore" if how == "newer" else "without this log's tables"


@pytest.mark.parametrize("how", ["missing", "text", "foreign", "newer"])
def test_log_that_cannot_be_used_is_503_with_the_reason(tmp_path, client_of, how):
    path = tmp_path / "bad.db"
    says = break_it(path, how)
    client = client_of(str(path))
    for url in (
        "policy",
        "policy/history",
        "engines",
        "summary",
        "timeline",
        "requests",
        "requests/x",
        "events",
        "events/stream",
    ):
        response = client.get(f"/restore/api/{url}")
        assert response.status_code == 503, url
        assert says in response.json()["detail"]
    response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 503
    health = client.get("/restore/healthz")
    assert health.status_code == 503
    assert health.json()["status"] == "degraded"
    assert says in health.json()["detail"]


def overwrite(path):
    path.write_bytes(b"garbage " * 10_000)


def replace_by_garbage(path):
    overwrite(path.with_name("other"))
    path.with_name("other").rename(path)


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


def empty(path):
    os.truncate(path, 0)


def make_newer(path):
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '29990101z'")
        conn.commit()


@pytest.mark.parametrize(
    ("break_now", "says"),
    [
        (overwrite, "log.db is not a SQLite database, though its -wal is of one"),
        (replace_by_garbage, "log.db is not a SQLite database, though its -wal is of one"),
        (replace_by_folder, "log.db is a folder"),
        (replace_by_pipe, "log.db is no file but a pipe"),
        (empty, "log.db is empty, and the rows of its -wal belong to another file"),
        (make_newer, "it was written by a newer vllm-restore"),
    ],
)
def test_health_says_what_became_of_a_log_whose_wal_stays(make_log, client_of, kit, tmp_path, break_now, says):
    """An engine has the log open, so that every page can still be read from the -wal."""
    log = make_log()
    with log.writer.connect() as conn:
        conn.connection.driver_connection.execute("VACUUM")
        log.write(log.live_engine(), kit.event("policy"))
        client = client_of(log)
        assert client.get("/restore/healthz").status_code == 200
        assert client.get("/restore/api/summary").status_code == 200
        break_now(tmp_path / "log.db")
        health = client.get("/restore/healthz")
    assert health.status_code == 503
    assert (health.json()["status"], says in health.json()["detail"]) == ("degraded", True)
    if break_now not in (overwrite, empty, make_newer):  # else the old file is still open, and what it says is true
        assert says in client.get("/restore/api/summary").json()["detail"]


@pytest.mark.skipif(os.geteuid() != 0, reason="who owns the log may always read it")
@pytest.mark.parametrize("is_known", [False, True])
def test_log_that_may_not_be_read_is_503_and_not_taken_for_deleted(make_log, client_of, is_known):
    client = client_of(make_log())
    if is_known:
        assert client.get("/restore/healthz").status_code == 200
    os.seteuid(65534)  # who may not enter the folder of this test
    try:
        answers = [client.get(f"/restore/{url}") for url in ("healthz", "api/summary")]
    finally:
        os.seteuid(0)
    assert [r.status_code for r in answers] == [503, 503]
    assert all(r.json()["detail"].endswith("Permission denied") for r in answers)
    assert client.get("/restore/healthz").status_code == 200


def test_database_that_is_no_file_is_503(client_of):
    response = client_of("postgresql://somewhere/db").get("/restore/api/policy")
    assert response.status_code == 503
    assert "SQLite file" in response.json()["detail"]
    assert client_of("postgresql://somewhere/db").get("/restore/healthz").status_code == 503


def test_log_that_appears_later_is_found(tmp_path, client_of, empty_log):
    path = tmp_path / "late.db"
    client = client_of(str(path))
    assert client.get("/restore/api/summary").status_code == 503
    path.write_bytes(empty_log.read_bytes())
    assert client.get("/restore/api/summary").status_code == 200
    assert client.get("/restore/healthz").status_code == 200


def test_dead_engine_is_degraded_but_the_log_can_be_read(make_log, client_of):
    client = client_of(make_log())
    context = client.app.state.context
    context.engine_client = SimpleNamespace(errored=False, is_running=True)
    assert client.get("/restore/healthz").status_code == 200
    context.engine_client = SimpleNamespace(errored=True, is_running=False)
    response = client.get("/restore/healthz")
    assert response.status_code == 503
    assert "engine has died" in response.json()["detail"]
    assert client.get("/restore/api/summary").status_code == 200


def test_unknown_path_and_wrong_method_have_the_same_shape(make_log, client_of):
    client = client_of(make_log())
    assert "openapi.json" in client.get("/restore/api/nope").json()["detail"]
    response = client.post("/restore/api/policy", json={})
    assert response.status_code == 405
    assert response.json() == {"detail": "Method Not Allowed"}


@pytest.mark.parametrize(
    "url",
    [
        "timeline?since=0&until=9223372036854775807",
        "timeline?since=9223372036854775000&until=9223372036854775807&bucket=86400",
        "timeline?since=9223372036854775808",
        "timeline?bucket=nan",
        "timeline?bucket=1e999",
        "summary?until=9223372036854775808",
        "summary?since=9223372036854775807",
        "timeline?since=9223372036854775807",
        "requests?before=99999999999999999999999",
        "requests?limit=99999999999999999999999",
        "requests?before=" + "9" * 5000,
        "events?after=9223372036854775808",
        "events?before=9223372036854775808",
        "events?limit=9223372036854775808",
        "events/stream?after=9223372036854775808",
        "policy/history?limit=9223372036854775808",
    ],
)
def test_number_that_is_too_large_is_refused_in_words(make_log, client_of, url):
    log = make_log()
    log.engine()
    response = client_of(log).get(f"/restore/api/{url}")
    assert response.status_code == 422
    assert response.json()["detail"]


@pytest.mark.parametrize(
    "url",
    [
        "events?after=9223372036854775807",
        "events?before=9223372036854775807",
        "requests?before=9223372036854775807",
        "summary?until=9223372036854775807",
        "requests/%00",
        "events?request=%00%ff",
    ],
)
def test_the_largest_number_and_any_character_are_answered(make_log, client_of, url):
    log = make_log()
    log.engine()
    assert client_of(log).get(f"/restore/api/{url}").status_code in (200, 404)


@pytest.mark.parametrize(
    "body",
    [
        b'{"\\ud800": 1}',
        b'{"mode": "\\ud800"}',
        b'{"enabled": \xff}',
        b"[" * 100_000,
        b'{"mode": ' + b"9" * 5000 + b"}",
    ],
)
def test_body_that_no_client_would_send_is_refused_in_words(make_log, client_of, body):
    log = make_log()
    log.live_engine()
    response = client_of(log).put("/restore/api/policy", content=body, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422)
    assert response.json()["detail"]


def test_log_that_is_deleted_is_503_and_the_new_one_in_its_place_is_read(make_log, client_of, kit, tmp_path):
    log = make_log()
    log.write(log.live_engine(), kit.event("policy"), kit.event("policy"))
    client = client_of(log, is_recorded=False, policy_wait_seconds=0)
    assert client.get("/restore/api/summary").json()["last_seq"] == 2
    for name in ("log.db", "log.db-wal", "log.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    for response in (
        client.get("/restore/api/summary"),
        client.put("/restore/api/policy", json={"enabled": False}),
        client.get("/restore/healthz"),
    ):
        assert response.status_code == 503
        assert "was deleted while the server runs; the engine begins a new one" in response.json()["detail"]
    new = make_log()
    new.live_engine()
    assert client.get("/restore/healthz").json()["num_live_engines"] == 1
    assert client.get("/restore/api/summary").json()["last_seq"] == 0
    assert client.put("/restore/api/policy", json={"mode": "rescan"}).json()["version"] == 1
    assert client.get("/restore/api/policy").json()["policy"]["mode"] == "rescan"


def test_conversations_are_not_carried_over_to_the_next_file(make_log, client_of, kit, tmp_path):
    def fill(log, *requests):
        engine = log.live_engine()
        for request in requests:
            log.write(engine, kit.event("started", request_id=request), kit.event("lookup", request_id=request))

    log = make_log()
    fill(log, "a", "b")
    client = client_of(log, is_recorded=False)
    url = "/restore/api/conversations"
    assert [c["id"] for c in client.get(url).json()["conversations"]] == ["b", "a"]
    other = make_log("other.db")
    fill(other, "c", "d", "e")
    other.writer.dispose()
    for end in ("", "-wal", "-shm"):
        (tmp_path / f"log.db{end}").unlink(missing_ok=True)
        if (tmp_path / f"other.db{end}").exists():
            (tmp_path / f"other.db{end}").rename(tmp_path / f"log.db{end}")
    assert [c["id"] for c in client.get(url).json()["conversations"]] == ["e", "d", "c"]


def test_log_that_cannot_be_written_says_written(make_log, client_of, monkeypatch):
    monkeypatch.setattr("connector.connections.BUSY_TIMEOUT_MS", 10)
    log = make_log()
    log.live_engine()
    client = client_of(log, is_recorded=False, policy_wait_seconds=0)
    with log.writer.begin():  # holds the lock
        response = client.put("/restore/api/policy", json={"enabled": False})
    assert response.status_code == 503
    assert "cannot be written now, so nothing was changed: database is locked" in response.json()["detail"]


def test_fault_of_ours_is_one_line_without_innards(make_log, client_of, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret innards")

    monkeypatch.setattr("app.queries.engines.read_engines", fail)
    response = client_of(make_log()).get("/restore/api/engines")
    assert response.status_code == 500
    assert "RuntimeError" in response.json()["detail"]
    assert "secret" not in response.text
