"""Who may read, who may change."""

import pytest

POLICY = "/restore/api/policy"
READS = [
    POLICY, "/restore/api/policy/history", "/restore/api/engines", "/restore/api/summary", "/restore/api/timeline",
    "/restore/api/requests", "/restore/api/requests/x", "/restore/api/events", "/restore/api/events/stream",
    "/restore/api/nothing",
]  # fmt: skip


@pytest.fixture
def log(make_log):
    builder = make_log()
    builder.live_engine()
    return builder


@pytest.fixture
def client(log, client_of):
    """Makes a client of the app inside a server, with no wait for the silent engine."""
    return lambda **kw: client_of(log, is_recorded=False, policy_wait_seconds=0, **kw)


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "localhost", "LOCALHOST:80", "[::1]:8000"])
def test_this_machine_may_change(client, host):
    assert client(host=host).put(POLICY, json={"enabled": False}).status_code == 202


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_this_machine(client, address):
    assert client(client=address).put(POLICY, json={"enabled": False}).status_code == 202


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.5", "8.8.8.8", "::ffff:10.0.0.7", "fe80::1"])
def test_another_machine_may_not_change_without_a_key(client, address):
    app = client(client=address)
    response = app.put(POLICY, json={"enabled": False})
    assert response.status_code == 403
    assert "--api-key" in response.json()["detail"]
    assert app.get(POLICY).json()["version"] == 0


@pytest.mark.parametrize(
    "host", ["evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1:8000"]
)
def test_change_under_another_name_is_refused(client, host):
    assert client(host=host).put(POLICY, json={"enabled": False}).status_code == 403


@pytest.mark.parametrize("header", ["x-forwarded-for", "forwarded", "x-real-ip", "x-forwarded-host"])
def test_change_through_a_proxy_is_refused_whatever_it_claims(client, header):
    response = client().put(POLICY, json={"enabled": False}, headers={header: "127.0.0.1"})
    assert response.status_code == 403


def test_forwarding_headers_do_not_make_a_stranger_local(client):
    headers = {"x-forwarded-for": "127.0.0.1", "x-forwarded-host": "localhost"}
    assert client(client="10.0.0.7").put(POLICY, json={"enabled": False}, headers=headers).status_code == 403


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_change_wants_json(client, content_type):
    response = client().put(POLICY, content='{"enabled": false}', headers={"content-type": content_type})
    assert response.status_code == 415


def test_json_with_a_charset_is_json(client):
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client().put(POLICY, content='{"enabled": false}', headers=headers).status_code == 202


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:3000", "http://127.0.0.1", "http://[::1", "//"]
)
def test_page_of_another_site_can_neither_change_nor_read(client, origin):
    app = client()
    assert app.put(POLICY, json={"enabled": False}, headers={"origin": origin}).status_code == 403
    assert app.get(POLICY, headers={"origin": origin}).status_code == 403


def test_own_page_may_change(client):
    headers = {"origin": "http://127.0.0.1:8000"}
    assert client().put(POLICY, json={"enabled": False}, headers=headers).status_code == 202


@pytest.mark.parametrize("path", READS)
def test_reading_under_a_rebound_name_is_refused(client, path):
    response = client(host="evil.example:8000").get(path)
    assert response.status_code == 403
    assert "evil.example" in response.json()["detail"]


@pytest.mark.parametrize(
    "host", ["10.0.0.1:8000", "[fd00::1]:8000", "127.0.0.1:8000", "localhost", "gpu-box", "GPU-Box:9", "vllm"]
)
def test_reading_under_an_address_or_a_name_of_the_server(client, host):
    app = client(host=host, client="10.0.0.7", bound_host="gpu-box", allowed_hosts=("vllm",))
    assert app.get(POLICY).status_code == 200


@pytest.mark.parametrize("host", ["[::1", "", "a b", "evil.example@localhost"])
def test_host_that_makes_no_sense_is_refused(client, host):
    assert client().get(POLICY, headers={"host": host}).status_code in (400, 403)


@pytest.mark.parametrize("path", READS)
def test_with_a_key_reading_needs_it(client, path):
    response = client(api_keys=("s3cret",)).get(path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert "--api-key" in response.json()["detail"]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic s3cret",
        "s3cret",
        "Bearer s3cretx",
        "Bearer S3CRET",
        "Bearer  s3cret",
    ],
)
def test_wrong_key_is_refused(client, given):
    app = client(api_keys=("s3cret", "other"))
    assert app.put(POLICY, json={"enabled": False}, headers={"authorization": given}).status_code == 401
    assert app.get(POLICY, headers={"authorization": given}).status_code == 401


def test_key_is_asked_for_before_the_body_is_read(client):
    headers = {"content-type": "application/json"}
    assert client(api_keys=("k",)).put(POLICY, content="{broken", headers=headers).status_code == 401


@pytest.mark.parametrize("key", ["s3cret", "other"])
def test_any_of_the_keys_opens_from_anywhere(client, key):
    app = client(api_keys=("s3cret", "other"), client="10.0.0.7", host="gpu.example")
    headers = {"authorization": f"bearer {key}"}
    assert app.get(POLICY, headers=headers).status_code == 200
    assert app.put(POLICY, json={"enabled": False}, headers=headers).status_code == 202


def test_key_does_not_help_a_foreign_page_to_change(client):
    headers = {"authorization": "Bearer k", "origin": "https://evil.example"}
    assert client(api_keys=("k",)).put(POLICY, json={"enabled": False}, headers=headers).status_code == 403


def test_page_and_health_need_no_key(client, tmp_path):
    (tmp_path / "index.html").write_text("<p>hello")
    app = client(api_keys=("k",), static_dir=tmp_path, host="gpu.example")
    assert app.get("/restore/").status_code == 200
    assert app.get("/restore/healthz").status_code == 200


def test_health_says_where_the_log_lies_only_to_those_with_the_key(client, log, tmp_path):
    app = client(api_keys=("k",))
    key = {"authorization": "Bearer k"}
    assert app.get("/restore/healthz", headers=key).json()["log"] == log.path
    assert str(tmp_path) not in app.get("/restore/healthz").text
    (tmp_path / "log.db").unlink()
    told = app.get("/restore/healthz")
    assert told.status_code == 503
    assert "cannot be read" in told.json()["detail"]
    assert str(tmp_path) not in told.text
    assert log.path in app.get("/restore/healthz", headers=key).json()["detail"]


@pytest.mark.parametrize("method", ["POST", "DELETE", "PATCH", "PUT"])
def test_no_method_slips_by_on_any_path(client, method):
    for path in [*READS, "/restore/healthz", "/restore/", "/restore/index.html"]:
        assert client(client="10.0.0.7").request(method, path, json={}).status_code == 403


def test_answers_are_not_kept_by_caches(client):
    headers = client().get(POLICY).headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_reading_changes_nothing(log, client, kit):
    app = client()
    with log.writer.connect() as conn:
        before = conn.exec_driver_sql("PRAGMA data_version").scalar_one()
        for path in READS:
            if not path.endswith("stream"):
                app.get(path)
                app.get(path, headers={"content-type": "application/json"}, params={"enabled": "false"})
        assert conn.exec_driver_sql("PRAGMA data_version").scalar_one() == before
