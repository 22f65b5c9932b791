"""The report: its figures against a log whose figures are known, and that it needs nothing else and lets nothing in."""

import re
import resource
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from app import report_charts as charts
from app.report import ReportError, write_report
from connector import log

T0 = 1_790_000_000_000_000_000
SECOND = 1_000_000_000
HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """What a reader sees: texts, tables as rows of cells; and what a browser would do: tags and attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.rows: list[list[str]] = []
        self._texts: list[str] = []
        self._in_cell = self._is_hidden = False
        self.feed(source)
        self.text = re.sub(r"\s+", " ", " ".join(self._texts))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._is_hidden = tag == "style"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._in_cell = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._is_hidden = False
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if not self._is_hidden:
            self._texts.append(data)
        if self._in_cell:
            self.rows[-1][-1] = f"{self.rows[-1][-1]} {data}".strip()

    def row(self, first: str) -> list[str]:
        [found] = [row for row in self.rows if row and row[0] == first]
        return found[1:]


@pytest.fixture
def filled(make_log: Callable[..., Any], kit: Any) -> Any:
    """One engine, off for ten seconds and then on. 1,000 prompt tokens: 100 GPU, 250 CPU of which 50 thanks to a
    re-store, 650 computed, of which 300 were lost to an eviction whose block a running request owned."""
    built = make_log()
    groups = '[{"block_size": 32, "kind": "FullAttentionSpec", "is_prefix_cacheable": true, "window": null}]'
    engine = built.engine(model=HOSTILE, hostname="box-7", kv_groups=groups)
    built.policy(enabled=False)
    built.policy(enabled=True)
    built.write(engine, kit.event("policy", enabled=False, policy_version=1), at=0)
    built.write(engine, kit.event("started", request_id="a"), at=1)
    lookup = {"num_tokens": 600, "gpu_hit_tokens": 100, "cpu_hit_tokens": 200, "lost_tokens": 300, "cut_index": 9}
    evicted = {"cause": "evicted", "cause_detail": "owner_running", "since_ns": 4 * SECOND, "was_owned": True}
    built.write(engine, kit.event("lookup", request_id=HOSTILE, **lookup, **evicted, missing_hash=b"m"), at=2)
    built.write(engine, kit.event("policy", policy_version=2, reason="toggle"), at=10)
    found = {"num_tokens": 400, "cpu_hit_tokens": 50, "restored_hit_tokens": 50}
    built.write(engine, kit.event("lookup", request_id="b", **found, cause="never_seen", cause_detail="extends"), at=20)
    run = {"num_blocks": 3, "head_hash": b"h", "tail_hash": b"t", "num_bytes": 3000}
    built.write(engine, kit.event("stored", **run), kit.event("restored", **run, copy_ns=2_000_000), at=21)
    built.write(engine, kit.event("evicted", num_blocks=2, head_hash=b"h", tail_hash=b"t"), at=22)
    built.write(engine, kit.step(cpu_blocks_cached=3), at=23)
    return built


@pytest.fixture
def page(filled: Any, tmp_path: Path) -> Page:
    write_report(filled.url, tmp_path / "report.html")
    return Page((tmp_path / "report.html").read_text("utf-8"))


def test_tokens_by_source_add_up_to_the_prompts(page: Page) -> None:
    assert page.row("GPU hit") == ["100", "10.0 %"]
    assert page.row("CPU hit, first stores") == ["200", "20.0 %"]
    assert page.row("CPU hit thanks to a re-store") == ["50", "5.0 %"]
    assert page.row("computed") == ["650", "65.0 %"]
    assert page.row("all sources") == ["1,000", "100.0 %"]


def test_the_sentence_is_the_first_thing_that_it_says(page: Page) -> None:
    assert "35 % of prompt tokens came from cache; 30 % were lost to CPU evictions" in page.text


def test_causes_say_what_they_mean_and_what_they_cost(page: Page) -> None:
    meaning, lookups, lost, share, behind = page.row("evicted: owner running")
    assert meaning == "the CPU tier had it and gave its place to another; a re-store could have kept it"
    assert (lookups, lost, share, behind) == ("1", "300", "30.0 %", "0")
    assert page.row("never seen: extends")[1:] == ["1", "0", "0.0 %", "0"]


def test_wanted_blocks_are_drawn_from_the_first_time_to_the_last_that_any_has(
    filled: Any, kit: Any, tmp_path: Path
) -> None:
    for seconds, num_blocks in ((2, 5), (20, 1)):
        run = {"num_blocks": num_blocks, "head_hash": b"h", "tail_hash": b"t"}
        filled.write(1, kit.event("missed", **run, since_ns=seconds * SECOND), at=24)
    write_report(filled.url, tmp_path / "report.html", has_what_if=False)
    said = re.findall(r"wanted again, by how long after: ([^<\"]+)", (tmp_path / "report.html").read_text())
    assert said == ["1 s to 3.16 s: 5, &lt; 10 s: 0, &lt; 31.6 s: 1"]


def test_movements_and_policies_are_counted(page: Page) -> None:
    for said in ("stored: 3 blocks", "re-stored: 3 blocks", "evicted: 2 blocks", "loaded: 0 blocks"):
        assert said in page.text
    assert page.row("off, version 1")[0] == "1"
    tracked = page.row("tracked, version 2")
    assert tracked[:5] == ["1", "12.5 %", "3", "3 kB", "50 tokens"]
    assert "2 ms" in tracked
    changes = [row for row in page.rows if row and row[-1] in ("start", "toggle")]
    assert [row[:2] for row in changes] == [
        ["2026-09-21 14:13:20 UTC", "off"],
        ["2026-09-21 14:13:30 UTC", "tracked"],
    ]


def test_what_was_not_measured_is_a_dash(page: Page) -> None:
    # No step measured prefill: no speed, so nothing saved, so no return.
    assert page.row("tracked, version 2")[-3:] == ["—", "2 ms", "—"]


def test_facts_of_engine_and_machine_are_there(page: Page) -> None:
    for fact in ("box-7", "vLLM 0.32.0", "50 blocks, 50 kB", "32 tokens a hash", "FullAttentionSpec of 32 tokens"):
        assert fact in page.text


def test_what_a_client_named_is_text_and_nothing_else(page: Page) -> None:
    assert HOSTILE in page.text
    assert "script" not in page.tags


def test_it_needs_no_network_and_no_script(page: Page) -> None:
    assert {"script", "link", "img", "iframe", "object", "embed", "base", "form"}.isdisjoint(page.tags)
    assert not [(n, v) for n, v in page.attributes if n in ("src", "href", "srcset") or n.startswith("on")]


def test_every_chart_is_well_formed_and_says_in_words_what_it_shows(filled: Any, tmp_path: Path) -> None:
    write_report(filled.url, tmp_path / "report.html")
    source = (tmp_path / "report.html").read_text("utf-8")
    found = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg viewBox.*?</svg>", source, re.DOTALL)]
    charts_found = [svg for svg in found if svg.get("role") == "img"]
    assert len(charts_found) >= 6
    assert all(len(svg.get("aria-label", "")) > 30 for svg in charts_found)
    assert "between 12 % and 50 %" in " ".join(svg.get("aria-label", "") for svg in charts_found)


def test_a_range_leaves_the_rest_out(filled: Any, tmp_path: Path) -> None:
    write_report(filled.url, tmp_path / "report.html", "2026-09-21T14:13:35", "2026-09-21T14:13:50")
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.row("computed") == ["350", "87.5 %"]
    assert "At the begin: tracked." in page.text
    assert "off, version 1" not in page.text


def test_what_if_plays_the_log_and_can_be_left_out(filled: Any, tmp_path: Path, page: Page) -> None:
    assert any(row[:2] == ["unlimited", "without end"] for row in page.rows)
    # Half, the same, twice and four times the tier of 50,000 bytes.
    assert [row[1] for row in page.rows if row[0] == "off" and len(row) == 3] == ["25 kB", "50 kB", "100 kB", "200 kB"]
    write_report(filled.url, tmp_path / "short.html", has_what_if=False)
    assert "It was not played for this report." in Page((tmp_path / "short.html").read_text("utf-8")).text


def test_a_report_that_is_there_is_replaced_and_anyone_may_read_it(filled: Any, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("<!doctype html>old")
    num_bytes = write_report(filled.url, out, has_what_if=False)
    assert out.stat().st_size == num_bytes > 5_000
    assert out.stat().st_mode & 0o444 == 0o444
    assert [p.name for p in tmp_path.iterdir() if "report" in p.name] == ["report.html"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"since": "yesterday"}, "'yesterday' names no moment"),
        ({"since": "1m", "until": "2m"}, "the range is empty"),
    ],
)
def test_a_mistake_is_said(filled: Any, tmp_path: Path, arguments: dict[str, str], said: str) -> None:
    with pytest.raises(ReportError, match=said):
        write_report(filled.url, tmp_path / "report.html", **arguments)
    assert not (tmp_path / "report.html").exists()


def test_what_has_not_been_is_not_drawn(filled: Any, tmp_path: Path) -> None:
    pages: list[str] = []
    for until in (None, "2100-01-01", "9999-12-31"):
        write_report(filled.url, tmp_path / "report.html", until=until, has_what_if=False)
        page = (tmp_path / "report.html").read_text()
        pages.append(re.sub(r"Made [^.]+\.", "", page))
    assert pages[1] == pages[0]
    assert pages[2] == pages[0]


def test_a_place_that_cannot_be_written_is_said(filled: Any, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="is a folder"):
        write_report(filled.url, tmp_path, has_what_if=False)
    with pytest.raises(ReportError, match="none; make it first"):
        write_report(filled.url, tmp_path / "none" / "report.html", has_what_if=False)


def test_what_could_not_be_written_whole_leaves_the_old_report_and_nothing_else(filled: Any, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    out = folder / "report.html"
    out.write_text("<!doctype html>old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    reader = log.open_reader(filled.url)
    # SQLite's shared memory is a file as well: with a reader there it has its size before there is a limit.
    with reader.connect() as conn, conn.begin():
        conn.exec_driver_sql("SELECT count(*) FROM events")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
        try:
            with pytest.raises(ReportError, match="File too large"):
                write_report(filled.url, out, has_what_if=False)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    reader.dispose()
    assert out.read_text() == "<!doctype html>old"
    assert list(folder.iterdir()) == [out]


def test_a_log_without_an_engine_has_nothing_to_report(make_log: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="no engine has written to this log"):
        write_report(make_log().url, tmp_path / "report.html")


def test_an_engine_that_did_nothing_has_a_report_all_the_same(make_log: Callable[..., Any], tmp_path: Path) -> None:
    built = make_log()
    built.engine(restore_support="prefix caching is disabled")
    write_report(built.url, tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert "No request was admitted in this range." in page.text
    assert "prefix caching is disabled" in page.text


def test_the_same_page_comes_over_http(filled: Any, client_of: Callable[..., Any]) -> None:
    answer = client_of(filled).get("/restore/api/report", params={"until": T0 + 30 * SECOND})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert Page(answer.text).row("computed") == ["650", "65.0 %"]
    assert client_of(filled, api_keys=("k",)).get("/restore/api/report").status_code == 401
    assert client_of(filled).get("/restore/api/report", params={"since": 5, "until": 5}).status_code == 422


# --- charts ----------------------------------------------------------------------------------------------------------


def test_a_stack_reaches_as_high_as_its_shares_and_leaves_gaps_where_there_was_no_traffic() -> None:
    axis = charts.Axis(3, T0, SECOND)
    areas = [charts.Area("gpu", [0.25, None, 1.0]), charts.Area("computed", [0.75, None, 0.0])]
    svg = ElementTree.fromstring(charts.stacked(axis, areas, [False, True, False], [], "x"))
    gpu, computed = (svg.find(f"./path[@class='fill-{tone}']") for tone in ("gpu", "computed"))
    # 192 units are 100 %: from 216 up to 168, and on to 24. A third of the 900 units is a bucket.
    assert gpu is not None
    assert gpu.get("d") == "M48.0 216.0V168.0H348.0V216.0ZM648.0 216.0V24.0H948.0V216.0Z"
    assert computed is not None
    assert computed.get("d") == "M48.0 168.0V24.0H348.0V168.0Z"
    gaps = svg.findall("./rect[@class='gap']")
    assert [(g.get("x"), g.get("width")) for g in gaps] == [("348.0", "300.0")]


def _labels(*markers: tuple[int, str]) -> list[tuple[str | None, float, str | None]]:
    """(text, x, anchor) of each label over a chart of 100 buckets of a second, nine units each from 48 on."""
    svg = charts.stacked(
        charts.Axis(100, T0, SECOND), [], [False] * 100, [(T0 + s * SECOND, m) for s, m in markers], "x"
    )
    root = ElementTree.fromstring(svg)
    assert len(root.findall("./line[@class='marker']")) == len(markers)
    found = root.findall("./text[@class='label']")
    return [(text.text, float(text.get("x", "nan")), text.get("text-anchor")) for text in found]


def test_of_changes_that_follow_at_once_the_one_that_lasted_is_named() -> None:
    assert _labels((0, "off"), (1, "tracked"), (50, "rescan")) == [("tracked", 61, None), ("rescan", 502, None)]


def test_a_change_at_the_right_edge_is_named_at_the_left_of_its_line_where_that_is_free() -> None:
    assert _labels((50, "off"), (99, "tracked")) == [("off", 502, None), ("tracked", 935, "end")]
    assert _labels((97, "off"), (99, "tracked")) == []


def test_a_label_cannot_leave_its_chart() -> None:
    svg = charts.stacked(charts.Axis(1, T0, SECOND), [], [False], [(T0, "<b>")], '"><script>')
    assert ElementTree.fromstring(svg).get("aria-label") == '"><script>'
    assert "<b>" not in svg


def test_what_is_no_report_is_not_overwritten(filled: Any) -> None:
    """Least of all the log."""
    place = Path(filled.path)
    before = place.read_bytes()
    with pytest.raises(ReportError, match="is there and is no HTML page"):
        write_report(filled.url, place, has_what_if=False)
    assert place.read_bytes() == before
