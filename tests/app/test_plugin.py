"""The routes inside a server that is not ours, as vLLM's is: its own errors, CORS for everyone, its own arguments."""

import asyncio
import logging
import multiprocessing
import socket
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest
import uvicorn
from fastapi import FastAPI, HTTPException
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.cors import CORSMiddleware

from app.plugin import ReStorePlugin, settings_from
from app.ready import dashboard_url


@pytest.fixture
def host(monkeypatch):
    """Build a server as vLLM builds its own, with the plugin attached; returns a client and the plugin."""

    def make(db, *, engine_client=None, api_key=None, client="127.0.0.1", address="127.0.0.1:8000", transfer=None):
        monkeypatch.setenv("RESTORE_DB", db)
        app = FastAPI()
        app.state.args = Namespace(api_key=api_key, host=None, kv_transfer_config=transfer)

        @app.get("/v1/models")
        def models():
            return {"object": "list"}

        @app.get("/v1/fail")
        def fail():
            raise HTTPException(400, "theirs")

        plugin = ReStorePlugin()
        plugin.attach_router(app)
        app.add_exception_handler(
            AnyHTTPException, lambda _, e: JSONResponse({"error": {"message": e.detail}}, e.status_code)
        )
        app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_methods=["*"], allow_headers=["*"])
        asyncio.run(plugin.init_state(engine_client, app.state, app.state.args))
        return TestClient(app, base_url=f"http://{address}", client=(client, 50000)), plugin

    return make


def test_it_is_what_vllm_asks_of_an_endpoint_plugin():
    plugin = ReStorePlugin()
    assert plugin.name == "vllm_restore"
    assert plugin.required_tasks is None
    assert asyncio.iscoroutinefunction(plugin.init_state)


def test_ours_and_theirs_stay_apart(make_log, host):
    log = make_log()
    client, _ = host(log.path)
    assert client.get("/v1/models").json() == {"object": "list"}
    assert client.get("/v1/fail").json() == {"error": {"message": "theirs"}}
    assert client.get("/nope").json() == {"error": {"message": "Not Found"}}
    assert "detail" in client.get("/restore/api/nope").json()
    assert client.get("/restore/api/policy").json()["can_change"] is True
    assert list(client.get("/openapi.json").json()["paths"]) == ["/v1/models", "/v1/fail"]


def test_leave_that_the_server_gives_every_page_does_not_open_ours(make_log, host):
    client, _ = host(make_log().path)
    headers = {"origin": "https://evil.example"}
    assert client.get("/v1/models", headers=headers).status_code == 200
    assert client.get("/restore/api/policy", headers=headers).status_code == 403
    preflight = {**headers, "access-control-request-method": "PUT"}
    assert client.options("/restore/api/policy", headers=preflight).status_code == 200
    assert client.put("/restore/api/policy", json={"enabled": False}, headers=headers).status_code == 403
    assert client.get("/restore/api/policy").json()["version"] == 0


@pytest.mark.parametrize(("name", "is_said"), [("MainProcess", True), ("ApiServer_0", True), ("ApiServer_1", False)])
def test_its_whole_address_is_said_once_when_the_server_answers(make_log, host, caplog, monkeypatch, name, is_said):
    """Of several API servers on one port, one says it."""
    monkeypatch.setattr(multiprocessing.current_process(), "name", name)
    log = make_log()
    plugin = ReStorePlugin()
    app = FastAPI()
    app.state.args = args = Namespace(api_key=None, host="127.0.0.1", kv_transfer_config=None)
    monkeypatch.setenv("RESTORE_DB", log.path)
    plugin.attach_router(app)

    def said():
        return [r.getMessage() for r in caplog.records if r.getMessage().startswith("Ready")]

    async def serve(sock):
        await plugin.init_state(None, app.state, args)
        task = plugin._ready
        for _ in range(3):  # nothing is said before there is an answer
            await asyncio.sleep(0)
        assert said() == []
        app.state.server = server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        serving = asyncio.create_task(server.serve([sock]))
        await task
        assert server.started or not is_said
        server.should_exit = True
        await serving

    with socket.create_server(("127.0.0.1", 0)) as sock, caplog.at_level(logging.INFO, "vllm.restore"):
        port = sock.getsockname()[1]
        asyncio.run(serve(sock))
    line = f"Ready: the dashboard is at http://127.0.0.1:{port}/restore/, over the log {log.path}"
    assert said() == ([line] if is_said else [])


class Socket:
    """An address that a socket has."""

    def __init__(self, name):
        self.getsockname = lambda: name


@pytest.mark.parametrize(
    ("names", "is_ssl", "options", "url"),
    [
        ([("0.0.0.0", 9000)], False, {}, "http://127.0.0.1:9000/restore/"),
        ([("::", 9000, 0, 0)], False, {}, "http://127.0.0.1:9000/restore/"),
        ([("fd00::7", 9000, 0, 0)], False, {}, "http://[fd00::7]:9000/restore/"),
        ([("10.0.0.7", 443)], True, {}, "https://10.0.0.7:443/restore/"),
        (["/run/vllm.sock"], False, {}, None),
        # vLLM takes connections itself where API servers share a port.
        ([], False, {"host": None, "port": 8000}, "http://127.0.0.1:8000/restore/"),
        ([], False, {"host": "gpu-box", "port": 8000}, "http://gpu-box:8000/restore/"),
        ([], False, {"uds": "/run/vllm.sock", "host": None, "port": 8000}, None),
    ],
)
def test_address_is_one_that_a_browser_on_this_machine_can_open(names, is_ssl, options, url):
    listening = [SimpleNamespace(sockets=[Socket(name) for name in names])] if names else []
    server = SimpleNamespace(servers=listening, config=SimpleNamespace(is_ssl=is_ssl))
    assert dashboard_url(server, Namespace(**options)) == url


def test_fault_in_saying_the_address_is_no_more_than_a_line(make_log, host, caplog):
    _, plugin = host(make_log().path)

    class Broken:
        started, should_exit = True, False

    async def wait():
        await plugin.init_state(None, SimpleNamespace(server=Broken()), Namespace())
        await plugin._ready

    asyncio.run(wait())
    assert "The dashboard is at /restore/; its whole address cannot be told" in caplog.text


@pytest.mark.parametrize("how", ["missing", "broken", "postgresql"])
def test_log_that_cannot_be_used_never_stops_the_server(tmp_path, host, caplog, how):
    path = tmp_path / "log.db"
    if how == "broken":
        path.write_text("not a database")
    with caplog.at_level(logging.WARNING):
        client, _ = host("postgresql://x/y" if how == "postgresql" else str(path))
    assert "no log to show yet" in caplog.text
    assert client.get("/v1/models").status_code == 200
    assert client.get("/restore/api/policy").status_code == 503
    assert client.get("/restore/healthz").status_code == 503


def test_servers_key_is_ours(make_log, host):
    client, _ = host(make_log().path, api_key=["k1", "k2"], client="10.0.0.7", address="gpu.example")
    assert client.get("/restore/api/policy").status_code == 401
    assert client.get("/restore/api/policy", headers={"authorization": "Bearer k2"}).status_code == 200


def test_option_goes_before_the_variable_and_empty_keys_are_none(monkeypatch):
    monkeypatch.setenv("VLLM_API_KEY", "from-env")
    assert settings_from(Namespace(api_key=["opt"], host="GPU-box")).api_keys == ("opt",)
    assert settings_from(Namespace(api_key=None, host=None)).api_keys == ("from-env",)
    assert settings_from(Namespace(api_key=[""], host=None)).api_keys == ()
    monkeypatch.delenv("VLLM_API_KEY")
    assert settings_from(Namespace(api_key=None, host=None)).api_keys == ()
    assert settings_from(Namespace(api_key=None, host="GPU-box")).bound_host == "gpu-box"
    monkeypatch.setenv("RESTORE_ALLOWED_HOSTS", " gpu.example, ,Vllm ")
    assert settings_from(None).allowed_hosts == ("gpu.example", "vllm")


def test_log_that_the_engines_config_names_goes_before_the_variable(make_log, host, monkeypatch):
    here, there = make_log("here.db"), make_log("there.db")
    there.live_engine()
    transfer = SimpleNamespace(kv_connector_extra_config={"restore_db": there.path})
    client, _ = host(here.path, transfer=transfer)
    assert client.get("/restore/healthz").json()["log"] == there.path
    assert len(client.get("/restore/api/engines").json()) == 1


@pytest.mark.parametrize(
    ("extra", "db"),
    [
        ({"restore_db": "/a.db"}, "/a.db"),
        ({"cpu_bytes_to_use": 1}, None),
        ({"restore_db": ""}, None),
        ({"restore_db": None}, None),
        (
            {
                "connectors": [
                    {"kv_connector": "NixlConnector"},
                    {"kv_connector": "Other", "kv_connector_extra_config": None},
                    {"kv_connector": "ReStoreConnector", "kv_connector_extra_config": {"restore_db": "/b.db"}},
                ]
            },
            "/b.db",
        ),
    ],
)
def test_log_is_found_in_vllms_own_config_also_inside_a_multi_connector(extra, db):
    config = pytest.importorskip("vllm.config")
    transfer = config.KVTransferConfig(
        kv_connector="ReStoreConnector", kv_role="kv_both", kv_connector_extra_config=extra
    )
    assert settings_from(Namespace(api_key=None, host=None, kv_transfer_config=transfer)).db == db


def test_without_a_transfer_config_the_variable_counts():
    assert settings_from(Namespace(api_key=None, host=None, kv_transfer_config=None)).db is None


def test_fault_of_ours_never_reaches_vllms_own_handlers(make_log, host, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("innards")

    client, _ = host(make_log().path)
    client.app.add_exception_handler(Exception, lambda request, _: request.app.state.args.log_error_stack)
    monkeypatch.setattr("app.protection.check_origin", fail)  # before any route
    assert client.get("/restore/api/engines").json()["detail"].startswith("a fault in vllm-restore (RuntimeError)")
    assert [r.getMessage() for r in caplog.records if r.exc_info] == [
        "A fault in vllm-restore, at GET /restore/api/engines"
    ]


def test_engine_that_died_shows_in_health(make_log, host):
    client, _ = host(make_log().path, engine_client=SimpleNamespace(errored=True, is_running=False))
    assert client.get("/restore/healthz").status_code == 503


def test_importing_it_loads_no_vllm():
    code = "import sys, app.plugin; sys.exit('vllm' in sys.modules or 'torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize("path", ["/restore/api/policy", "/prefix/restore/api/policy"])
def test_root_path_works_and_protects_whether_or_not_the_proxy_cuts_it_off(make_log, host, path):
    client, _ = host(make_log().path, api_key=["k"])
    client.app.root_path = "/prefix"
    assert client.get(path).status_code == 401
    assert client.get(path, headers={"authorization": "Bearer k"}).status_code == 200
