"""A real vLLM server for tests: started by `vllm-restore serve` as a person would, on a port and with a log of its own.

`tests/conftest.py` makes a session's one server of it (`live_server`), shared by whatever needs a running engine.
"""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
from openai import OpenAI

from app import embedded_model

PROGRAM = Path(sys.executable).with_name("vllm-restore")
START_DEADLINE_S = 300.0
STOP_DEADLINE_S = 90.0
MODEL = embedded_model.NAME
BLOCK = 32
# 30 layers, key and value, 3 heads, 64 numbers, 4 bytes, 32 tokens.
BLOCK_BYTES = 30 * 2 * 3 * 64 * 4 * BLOCK
GPU_BLOCKS = 49
CPU_BLOCKS = 81
"""Each counts vLLM's null block, so 48 and 80 can be used."""
SMALL_TIERS = (
    *("--max-model-len", "1024", "--block-size", str(BLOCK), "--kv-cache-memory-bytes", str(GPU_BLOCKS * BLOCK_BYTES)),
    *("--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use", str(CPU_BLOCKS * BLOCK_BYTES)),
)


class Server:
    """One running server. `url` is its root, `db` the file of its log in its `folder`."""

    def __init__(self, folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.db = folder / "log.db"
        self.output = folder / "server.txt"
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [str(PROGRAM), "serve", *arguments, "--port", str(self.port), "--db", str(self.db)]
        # The development routes empty the GPU's prefix cache at a moment that a test chooses.
        own = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_COLOR": "0"} | (environment or {})
        with self.output.open("wb") as out:
            # A session of its own, so that whatever it starts can be found and ended.
            self.process = subprocess.Popen(
                command,
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **own},
                start_new_session=True,
            )
        try:
            self._await_health()
        except BaseException:
            self.kill()
            raise

    def client(self, **options: Any) -> OpenAI:
        """The `openai` client for this server."""
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", timeout=240, max_retries=0, **options)

    def complete(self, prompt: list[int], max_tokens: int, model: str = MODEL) -> tuple[str, list[int], int]:
        """Request id, tokens of the greedy answer, and how many of the prompt's tokens came from a cache."""
        done = self.client().completions.create(
            model=model,
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True, "return_token_ids": True},
        )
        assert done.usage is not None
        assert done.usage.prompt_tokens_details is not None
        extra: Any = done.choices[0].model_extra
        return done.id, extra["token_ids"], done.usage.prompt_tokens_details.cached_tokens or 0

    def api(self, method: str, path: str, **options: Any) -> httpx2.Response:
        """One call of the server by its path."""
        return httpx2.request(method, f"{self.url}{path}", timeout=60, **options)

    def set_policy(self, **change: Any) -> dict[str, Any]:
        """Changes the policy and returns the API's word once every engine has applied it."""
        response = self.api("PUT", "/restore/api/policy", json=change)
        assert response.status_code in (200, 202), response.text
        state: dict[str, Any] = response.json()
        deadline = time.monotonic() + 30
        while any(engine["is_pending"] for engine in state["engines"]):
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
            state = self.api("GET", "/restore/api/policy").json()
        assert state["engines"], state
        return state

    def empty_gpu_cache(self) -> None:
        """Forgets the GPU's prefix cache; the CPU tier keeps what it has."""
        self._reset({"reset_external": "false"})

    def empty_both_tiers(self) -> None:
        """Forgets both tiers' content. vLLM does so only while nothing holds a block of either: waits for that, and for
        the log to say so."""
        before = self.newest_seq()
        self._reset({"reset_external": "true"})
        self.await_rows("SELECT 1 FROM cache_reset WHERE seq > :seq", seq=before)

    def _reset(self, which: dict[str, str], deadline_s: float = 30) -> None:
        deadline = time.monotonic() + deadline_s
        while True:
            response = self.api("POST", "/reset_prefix_cache", params=which)
            assert response.status_code == 200, response.text
            if response.json()["success"]:
                return
            assert time.monotonic() < deadline, f"blocks are still held after {deadline_s} s:\n{self.tail()}"
            time.sleep(0.05)

    def await_copies(self, deadline_s: float = 60) -> None:
        """Waits until no copy to the CPU tier is on its way: all that steps have ordered is over.

        What is ordered at a request's end leaves with the next step, and the log is written a moment later still. So a
        request of less than a block takes that step, and its end in the log tells that all before it is there too.
        """
        model = self.api("GET", "/v1/models").json()["data"][0]["id"]
        passer = self.complete([1, 2, 3], 1, model)[0]
        self.await_rows("SELECT 1 FROM request_finished WHERE request_id LIKE :id || '%'", deadline_s, id=passer)
        ordered = "SELECT sum(num_stored + num_restored) FROM steps"
        over = "SELECT sum(num_blocks) FROM events WHERE kind IN ('blocks_stored', 'blocks_restored')"
        self.await_rows(f"SELECT 1 WHERE ({ordered}) = ({over})", deadline_s)

    def rows(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """Rows of plain SQL on the log, as any SQLite client would read them."""
        conn = sqlite3.connect(f"file:{self.db}?mode=ro", uri=True)
        try:
            conn.row_factory = sqlite3.Row
            return [dict(row) for row in conn.execute(query, parameters)]
        finally:
            conn.close()

    def newest_seq(self) -> int:
        """The last row of the log, to look behind it later."""
        return self.rows("SELECT max(seq) AS seq FROM events")[0]["seq"]

    def await_rows(self, query: str, deadline_s: float = 60, **parameters: Any) -> list[dict[str, Any]]:
        """Asks until there is a row: the engine writes its log a moment after it has acted."""
        deadline = time.monotonic() + deadline_s
        while not (found := self.rows(query, **parameters)):
            assert time.monotonic() < deadline, f"no row within {deadline_s} s: {query} {parameters}"
            time.sleep(0.05)
        return found

    def stop(self) -> int:
        """Asks the server to end, as a service manager would, and returns its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_DEADLINE_S)

    def kill(self) -> None:
        """Ends whatever is left of it."""
        if self.process.poll() is None or self.survivors():
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.process.wait()

    def await_no_survivor(self, deadline_s: float = 30) -> None:
        """Waits until no process of this server's session lives; fails with their command lines where one stays."""
        deadline = time.monotonic() + deadline_s
        while found := self.survivors():
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    def survivors(self) -> list[str]:
        """Command lines of the living processes of this server's session."""
        found: list[str] = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except (OSError, ValueError):
                continue
            if int(session) == self.process.pid and state != "Z":
                found.append(f"{entry.name} {command}")
        return found

    def tail(self) -> str:
        """The end of what the server has printed."""
        return self.output.read_text(errors="replace")[-4000:]

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.tail()}")
            try:
                if self.api("GET", "/health").status_code == 200:
                    return
            except httpx2.TransportError:
                time.sleep(0.2)
        raise RuntimeError(f"the server is not healthy after {START_DEADLINE_S:.0f} s:\n{self.tail()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
