"""The schema that the dashboard's types are made from."""

import json
import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from app import examples, examples_evidence, examples_shadows, models
from app.main import create_app, restore_app_of
from app.settings import Settings


@pytest.fixture(scope="module")
def schema():
    return restore_app_of(create_app(Settings(db="/nowhere/log.db"))).openapi()


def test_every_route_stands_in_it_under_the_path_that_clients_use(schema):
    assert sorted((method, path) for path, item in schema["paths"].items() for method in item) == [
        ("get", "/restore/api/benefit"),
        ("get", "/restore/api/causes"),
        ("get", "/restore/api/conversations"),
        ("get", "/restore/api/conversations/{conversation_id}"),
        ("get", "/restore/api/engines"),
        ("get", "/restore/api/events"),
        ("get", "/restore/api/events/stream"),
        ("get", "/restore/api/export/{table}.{format}"),
        ("get", "/restore/api/glance"),
        ("get", "/restore/api/policy"),
        ("get", "/restore/api/policy/history"),
        ("get", "/restore/api/report"),
        ("get", "/restore/api/requests"),
        ("get", "/restore/api/requests/{request_id}"),
        ("get", "/restore/api/retention"),
        ("get", "/restore/api/shadows"),
        ("get", "/restore/api/summary"),
        ("get", "/restore/api/tier"),
        ("get", "/restore/api/timeline"),
        ("get", "/restore/api/whatif"),
        ("get", "/restore/healthz"),
        ("put", "/restore/api/policy"),
    ]


def test_every_json_answer_shows_an_example(schema):
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            content = operation["responses"]["200"]["content"].get("application/json")
            assert content is None or "example" in content, (method, path)


def test_every_error_has_the_one_shape(schema):
    for item in schema["paths"].values():
        for operation in item.values():
            for status, response in operation["responses"].items():
                if status.startswith("4"):
                    assert response["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Problem"}


@pytest.mark.parametrize(
    ("example", "model"),
    [
        (examples_shadows.SHADOWS, models.Shadows),
        (examples_shadows.WHATIF, models.WhatIf),
        (examples.POLICY_APPLIED, models.PolicyState),
        (examples.POLICY_PENDING, models.PolicyState),
        (examples.POLICY_HISTORY, models.PolicyHistoryEntry),
        (examples.ENGINE, models.Engine),
        (examples.SUMMARY, models.Summary),
        (examples.TIMELINE, models.Timeline),
        (examples.REQUEST_PAGE, models.RequestPage),
        (examples.REQUEST_DETAIL, models.RequestDetail),
        (examples.EVENT_PAGE, models.EventPage),
        (examples.HEALTH, models.Health),
        (examples_evidence.CAUSES, models.Causes),
        (examples_evidence.BENEFIT, models.BenefitView),
        (examples_evidence.GLANCE, models.Glance),
        (examples_evidence.RETENTION, models.RetentionView),
        (examples_evidence.CONVERSATION_PAGE, models.ConversationPage),
        (examples_evidence.CONVERSATION_DETAIL, models.ConversationDetail),
        (examples_evidence.TIER, models.Tier),
    ],
)
def test_example_is_just_what_the_route_may_answer(example, model):
    parsed = TypeAdapter(model).validate_python(example, strict=True)
    assert parsed.model_dump() == example


def test_command_prints_it_without_a_log(schema, tmp_path):
    command = [sys.executable, "-m", "app.openapi"]
    env = {"RESTORE_DB": str(tmp_path / "x.db"), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert json.loads(done.stdout) == schema
    assert list(tmp_path.iterdir()) == []


def test_server_gives_it_out(make_log, client_of, schema):
    assert client_of(make_log()).get("/restore/openapi.json").json() == schema
