"""What is said when something is wrong."""

import sqlite3
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
    assert body == {"status": "ok", "detail": None, "log": log.path, "num_live_engines": 1, "last_seq": 1}


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


def test_fault_of_ours_is_one_line_without_innards(make_log, client_of, monkeypatch):
    def fail(*_):
        raise RuntimeError("secret innards")

    monkeypatch.setattr("app.queries.engines.read_engines", fail)
    response = client_of(make_log()).get("/restore/api/engines")
    assert response.status_code == 500
    assert "RuntimeError" in response.json()["detail"]
    assert "secret" not in response.text
