"""A client that can go away from its request at any moment."""

import http.client
import json
import uuid
from typing import Any

from tests.engine import tiny
from tests.engine.server import Server


class Leaver:
    """Asks the tiny model at once. `name` is a part of the request's id in the log."""

    def __init__(self, server: Server, prompt: list[int], max_tokens: int) -> None:
        self.name = uuid.uuid4().hex
        self._server = server
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
        body = {
            **{"model": tiny.NAME, "prompt": prompt, "max_tokens": max_tokens},
            **{"temperature": 0, "ignore_eos": True, "stream": True},
        }
        headers = {"Content-Type": "application/json", "X-Request-Id": self.name}
        self._connection.request("POST", "/v1/completions", json.dumps(body), headers)

    def await_first_token(self) -> None:
        answer = self._connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.readline().startswith(b"data: {")

    def leave(self) -> None:
        self._connection.close()

    def await_row(self, view: str, condition: str = "1") -> dict[str, Any]:
        """The first row about this request in one of the log's views."""
        query = f"SELECT * FROM {view} WHERE request_id LIKE '%' || :name || '%' AND {condition} ORDER BY seq LIMIT 1"
        return self._server.await_rows(query, name=self.name)[0]

    def rows(self, view: str) -> list[dict[str, Any]]:
        """All rows about this request in one of the log's views."""
        query = f"SELECT * FROM {view} WHERE request_id LIKE '%' || :name || '%' ORDER BY seq"
        return self._server.rows(query, name=self.name)
