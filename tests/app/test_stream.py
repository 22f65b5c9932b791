"""The stream of rows, over real uvicorn and real sockets."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

STREAM = "/restore/api/events/stream"


@pytest.fixture
def log(make_log):
    builder = make_log()
    builder.engine()
    return builder


@pytest.fixture
def put_rows(log, kit):
    """Append this many rows of a request."""

    def put(count, request="r"):
        return log.write(1, *(kit.event("lookup", request_id=request) for _ in range(count)))

    return put


@contextmanager
def following(url, path=STREAM, **kwargs) -> Iterator["Frames"]:
    with httpx.Client(timeout=30) as client, client.stream("GET", url + path, **kwargs) as response:
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Frames(response)


class Frames:
    """Server-sent events as (event, id, data); a comment as ("comment", None, text)."""

    def __init__(self, response):
        self.lines = response.iter_lines()

    def __iter__(self):
        return self

    def __next__(self):
        fields = {"event": None, "id": None, "data": None}
        for line in self.lines:
            if line.startswith(":"):
                fields |= {"event": "comment", "data": line[1:].strip()}
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = json.loads(value) if name == "data" else value
            elif fields["event"]:
                return fields["event"], fields["id"], fields["data"]
        raise StopIteration

    def rows(self, count):
        """The next `count` frames that are no comments."""
        found = (f for f in self if f[0] != "comment")
        return [next(found) for _ in range(count)]


def test_new_rows_come_with_their_number_as_id(log, put_rows, serve):
    put_rows(3)
    server = serve(log)
    with following(server.url) as frames:
        assert next(frames)[0] == "comment"  # the stream stands
        put_rows(2)
        (one, two) = frames.rows(2)
    assert (one[0], one[1], one[2]["seq"], one[2]["kind"]) == ("log", "4", 4, "lookup")
    assert two[1] == "5"
    stored = httpx.get(f"{server.url}/restore/api/events?after=3&limit=1").json()["events"][0]
    assert one[2] == stored


@pytest.mark.parametrize("how", ["header", "query"])
def test_stream_resumes_behind_the_last_row_that_the_client_has(log, put_rows, serve, how):
    put_rows(5)
    server = serve(log)
    place = {"headers": {"Last-Event-ID": "2"}} if how == "header" else {"params": {"after": 2}}
    with following(server.url, **place) as frames:
        assert [f[1] for f in frames.rows(3)] == ["3", "4", "5"]
        put_rows(2)
        assert [f[1] for f in frames.rows(2)] == ["6", "7"]


def test_header_of_a_reconnect_wins_over_the_url_that_it_began_with(log, put_rows, serve):
    put_rows(5)
    with following(serve(log).url, params={"after": 0}, headers={"Last-Event-ID": "4"}) as frames:
        assert frames.rows(1)[0][1] == "5"


@pytest.mark.parametrize("how", ["header", "query"])
@pytest.mark.parametrize("num_rows", [0, 2])
def test_place_of_another_log_is_said_and_the_stream_starts_at_the_end(log, put_rows, serve, how, num_rows):
    put_rows(num_rows)
    place = {"headers": {"Last-Event-ID": "900"}} if how == "header" else {"params": {"after": 900}}
    with following(serve(log).url, **place) as frames:
        next(frames)
        put_rows(1)
        (gap,) = frames.rows(1)
        assert gap == ("gap", None, {"after_seq": 900, "next_seq": num_rows + 1, "is_other_log": True})
        assert frames.rows(1)[0][1] == str(num_rows + 1)


def test_place_at_the_very_end_is_of_this_log(log, put_rows, serve):
    put_rows(2)
    with following(serve(log).url, headers={"Last-Event-ID": "2"}) as frames:
        next(frames)
        put_rows(1)
        assert frames.rows(1)[0][:2] == ("log", "3")


def test_rows_between_two_followings_are_not_lost(log, put_rows, serve):
    server = serve(log)
    with following(server.url) as frames:
        next(frames)
        put_rows(3)
        frames.rows(3)
    put_rows(20)
    with following(server.url, headers={"Last-Event-ID": "3"}) as frames:
        assert [f[1] for f in frames.rows(20)] == [str(n) for n in range(4, 24)]
        put_rows(1)
        assert frames.rows(1)[0][1] == "24"


def test_client_that_is_too_far_behind_is_told_the_gap(log, put_rows, serve):
    put_rows(50)
    server = serve(log, max_client_lag=10)
    with following(server.url, params={"after": 5}) as frames:
        (gap,) = frames.rows(1)
        assert gap == ("gap", None, {"after_seq": 5, "next_seq": 51, "is_other_log": False})
        put_rows(2)
        assert [f[1] for f in frames.rows(2)] == ["51", "52"]


def test_client_that_is_just_not_too_far_behind_gets_every_row(log, put_rows, serve):
    put_rows(50)
    with following(serve(log, max_client_lag=10).url, params={"after": 40}) as frames:
        assert [f[1] for f in frames.rows(10)] == [str(n) for n in range(41, 51)]


def test_filters_hold_for_the_stream(log, put_rows, serve, kit):
    server = serve(log)
    with following(server.url, params={"kind": "lookup", "request": "mine"}) as frames:
        next(frames)
        put_rows(2, "yours")
        log.write(1, kit.event("started", request_id="mine"))
        put_rows(1, "mine")
        assert frames.rows(1)[0][1] == "4"


def test_silence_is_filled_with_comments_that_have_no_id(log, serve):
    with following(serve(log, heartbeat_seconds=0.05).url) as frames:
        assert [next(frames) for _ in range(4)][1:] == [("comment", None, "still here")] * 3


def test_all_clients_share_one_tailer(log, put_rows, serve):
    server = serve(log)
    with following(server.url) as a, following(server.url) as b, following(server.url) as c:
        for frames in (a, b, c):
            next(frames)
        put_rows(1)
        assert [f.rows(1)[0][1] for f in (a, b, c)] == ["1", "1", "1"]
        assert server.app.state.context.tailer.num_followers == 3
        assert sum(t.name.startswith("restore-tailer") for t in threading.enumerate()) == 1


def test_client_that_leaves_is_gone_and_the_last_one_ends_the_reading(log, serve):
    server = serve(log, heartbeat_seconds=30)
    tailer = server.app.state.context.tailer
    with following(server.url) as frames:
        next(frames)
        task = tailer._task
    # Ends only when nobody follows; the heartbeat above is too slow to be the reason.

    async def ended():
        async with asyncio.timeout(15):
            await task

    asyncio.run_coroutine_threadsafe(ended(), task.get_loop()).result(20)
    assert tailer.num_followers == 0


def test_log_that_cannot_be_read_is_503_and_no_stream(log, tmp_path, serve):
    server = serve(log)
    (tmp_path / "log.db").unlink()
    response = httpx.get(server.url + STREAM)
    assert response.status_code == 503
    assert "was deleted" in response.json()["detail"]


def test_stream_ends_when_another_file_takes_the_logs_place_and_the_next_one_follows_that(
    log, make_log, put_rows, kit, serve, tmp_path
):
    put_rows(3)
    server = serve(log)
    other = make_log("other.db")
    other.write(other.engine(), kit.event("started"))
    with following(server.url) as frames:
        next(frames)
        for end in ("", "-wal", "-shm"):
            if (tmp_path / f"other.db{end}").exists():
                (tmp_path / f"other.db{end}").rename(tmp_path / f"log.db{end}")
        assert list(frames) == []
    with following(server.url, params={"after": 0}) as frames:
        assert frames.rows(1)[0][2]["kind"] == "request_started"


@pytest.mark.parametrize("given", ["9" * 5000, "-1", "x", "1.5", "9" * 20])
def test_place_that_is_no_rows_number_is_refused(log, client_of, given):
    response = client_of(log).get(STREAM, headers={"Last-Event-ID": given})
    assert response.status_code == 422
    assert "Last-Event-ID" in response.json()["detail"]


def test_client_that_leaves_in_the_middle_of_what_it_is_sent_leaves_no_trace(log, put_rows, spawn):
    put_rows(100)
    process, url = spawn(process_code(log))
    host, port = url.removeprefix("http://").split(":")
    for _ in range(40):
        with socket.create_connection((host, int(port))) as leaving, leaving.makefile("rb") as lines:
            leaving.sendall(f"GET {STREAM}?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert next(lines).startswith(b"HTTP/1.1 200")
            assert any(line.startswith(b"data:") for line in lines)
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    said = process.stderr.read()
    assert "Application shutdown complete" in said
    assert "Exception" not in said
    assert "fault" not in said


def test_stop_of_a_server_in_its_own_hands_ends_the_stream(log, serve):
    server = serve(log, heartbeat_seconds=30)
    with following(server.url) as frames:
        next(frames)
        server.stop()
        assert list(frames) == []


def process_code(log):
    return (
        "from app.main import create_app\nfrom app.settings import Settings\n"
        f"app = create_app(Settings(db={log.path!r}, heartbeat_seconds=60))"
    )


def test_sigterm_ends_a_process_that_has_open_streams(log, spawn):
    process, url = spawn(process_code(log))
    with following(url) as one, following(url) as two:
        next(one)
        next(two)
        process.send_signal(signal.SIGTERM)
        # The streams end as they should, not by a torn connection.
        assert list(one) == []
        assert list(two) == []
    process.wait(30)
    # uvicorn ends itself with the signal that it was sent, after it has shut down.
    assert process.returncode in (0, -signal.SIGTERM)
    assert process.stderr is not None
    assert "Application shutdown complete" in process.stderr.read()


def test_client_that_reads_nothing_does_not_hold_up_the_exit(log, put_rows, spawn):
    process, url = spawn(process_code(log))
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as stalled, following(url) as frames:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect((host, int(port)))
        stalled.sendall(f"GET {STREAM} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        next(frames)
        # More than all buffers between the two hold. The client that reads sets the pace.
        for _ in range(20):
            put_rows(400, "r" * 2000)
            frames.rows(400)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) in (0, -signal.SIGTERM)
