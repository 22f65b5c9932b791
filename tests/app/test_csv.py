"""Every list as a file for a spreadsheet."""

import csv
import io

import pytest

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000


def rows_of(response):
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/csv; charset=utf-8")
    return list(csv.DictReader(io.StringIO(response.content.decode(), newline="")))


@pytest.fixture
def log(make_log, kit):
    log = make_log()
    engine = log.engine()
    log.policy(enabled=False)
    name = '=HYPERLINK("http://x","a,b")\nsecond line'
    log.write(engine, kit.event("started", request_id=name, session_id="-1+1"), at=1)
    log.write(
        engine, kit.event("lookup", request_id=name, cause="evicted", cause_detail="no_owner", lost_tokens=32), at=1
    )
    log.write(engine, kit.event("stored", tail_hash=b"\x02", cpu_block_ids=(1,)), at=2)
    return log


VIEWS = [
    "engines", "summary", "timeline", "policy/history", "requests", "events", "causes", "causes?table=points",
    "causes?table=examples", "benefit", "benefit?table=regret", "benefit?table=assumptions", "glance", "conversations",
    "conversations?table=by_turn", "tier",
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_a_table_with_a_header_and_a_name(log, client_of, view):
    response = client_of(log).get(f"/restore/api/{view}{'&' if '?' in view else '?'}format=csv")
    rows = rows_of(response)
    assert rows
    assert all(None not in row for row in rows), "a row has more cells than the header"
    disposition = response.headers["content-disposition"]
    assert disposition.startswith('attachment; filename="restore-')
    assert disposition.endswith('.csv"')


def test_cells_say_what_the_json_says(log, client_of):
    client = client_of(log)
    (said,) = client.get("/restore/api/requests").json()["requests"]
    (row,) = rows_of(client.get("/restore/api/requests?format=csv"))
    assert list(row) == list(said)
    assert (row["prompt_tokens"], row["ttft_ns"], row["lost_tokens"]) == ("65", "", "32")
    nested = rows_of(client.get("/restore/api/summary?format=csv"))[0]
    assert (nested["tokens.prompt_tokens"], nested["cpu_tier.num_blocks"], nested["cpu_tier.free_blocks"]) == (
        "65",
        "",
        "",
    )


def test_text_that_a_spreadsheet_would_run_is_made_plain(log, client_of):
    (row,) = rows_of(client_of(log).get("/restore/api/requests?format=csv"))
    assert row["request_id"] == '\'=HYPERLINK("http://x","a,b")\nsecond line'
    assert row["session_id"] == "'-1+1"


def test_a_list_without_rows_has_its_header(make_log, client_of):
    response = client_of(make_log()).get("/restore/api/events?format=csv")
    assert response.text == "seq,engine_id,step,wall_ns,monotonic_ns,kind,request_id,data\r\n"


def test_one_request_has_three_tables(log, client_of, kit):
    client = client_of(log)
    engine = log.engine()
    h = [kit.block_hash("q", i) for i in range(2)]
    log.chain(engine, h)
    log.write(
        engine,
        kit.event("started", request_id="q", tail_hash=h[1]),
        kit.event("lookup", request_id="q", tail_hash=h[1]),
    )
    log.write(engine, kit.event("missed", request_id="q", tail_hash=h[1], first_index=1))
    sizes = {
        t: len(rows_of(client.get(f"/restore/api/requests/q?format=csv&table={t}")))
        for t in ("chain", "lane", "missed")
    }
    assert sizes == {"chain": 2, "lane": 1, "missed": 1}


def test_unknown_format_is_refused(log, client_of):
    response = client_of(log).get("/restore/api/requests?format=xml")
    assert response.status_code == 422
    assert "format" in response.json()["detail"]
