"""A server that is measured: reset, switch, ask, count."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from openai import AsyncOpenAI

from app.bench.clients import Messages
from app.bench.counters import STOCK, Counters, parse
from app.remote import Answer, RemoteError, get, live_engine, message, refuse_errors, set_policy, stream_chat

POLICIES: dict[str, dict[str, Any]] = {
    "off": {"enabled": False, "retention": "lru"},
    "tracked": {"enabled": True, "mode": "tracked", "retention": "lru"},
    "rescan": {"enabled": True, "mode": "rescan", "retention": "lru"},
    "adaptive": {"enabled": True, "mode": "tracked", "retention": "adaptive"},
    "adaptive-off": {"enabled": False, "mode": "tracked", "retention": "adaptive"},
}
"""What `stock` is, a running engine cannot become: it is chosen when it starts."""
RESET_TRIES = 100
WARM_UP_TOKENS = 4


@dataclass(slots=True)
class Target:
    """One server. `can_reset`: it has vLLM's development routes; else each run gets block hashes of its own."""

    url: str
    root: httpx2.AsyncClient
    api: httpx2.AsyncClient
    client: AsyncOpenAI
    model: str = ""
    can_reset: bool = False
    _salt: dict[str, str] = field(default_factory=dict[str, str])

    async def look(self, *, wants_stock: bool) -> None:
        """Finds out what this server is, and lets it answer once.

        Raises:
            RemoteError: it is not what is to be measured.
        """
        try:
            self.model = (await self.client.models.list()).data[0].id
        except Exception as error:
            raise RemoteError(f"no vLLM server at {self.url}: {error}") from error
        await stream_chat(self.client, self.model, [message("user", "Say something.")], WARM_UP_TOKENS)
        is_stock = (await self.count()).is_stock
        if wants_stock and not is_stock:
            raise RemoteError(
                f"the server at {self.url} does not run vLLM's own scheduler half; start one for `stock` with "
                "--kv-transfer-config.kv_connector_extra_config.restore_scheduler stock, and name it: --stock-url"
            )
        if not wants_stock:
            if is_stock:
                raise RemoteError(f"the server at {self.url} runs as stock and cannot change its policy: --stock-url")
            live_engine(await get(self.api, "/engines"))
        self.can_reset = (await self.root.post("/reset_prefix_cache")).status_code != 404

    async def prepare(self, policy: str, run: str) -> None:
        """Empty caches, and the policy from its beginning: nothing learned."""
        if policy != STOCK:
            await set_policy(self.api, POLICIES["off"])
        await self._reset()
        self._salt = {} if self.can_reset else {"cache_salt": run}
        if policy != STOCK:
            await set_policy(self.api, POLICIES[policy])

    async def _reset(self) -> None:
        if not self.can_reset:
            return
        for _ in range(RESET_TRIES):
            response = await self.root.post("/reset_prefix_cache", params={"reset_external": "true"})
            refuse_errors(response)
            if response.json()["success"]:
                return
            # vLLM resets only while nothing holds a block; a step that has something to do lets copies end.
            await stream_chat(self.client, self.model, [message("user", "Go on.")], 1)
        raise RemoteError(f"the caches of {self.url} cannot be emptied: somebody else is using it")

    async def ask(self, messages: Messages, num_tokens: int) -> Answer:
        """One answer."""
        return await stream_chat(self.client, self.model, messages, num_tokens, extra=self._salt)

    async def count(self) -> Counters:
        """What it has counted so far. Raises RemoteError."""
        response = await self.root.get("/metrics")
        refuse_errors(response)
        return parse(response.text)


@asynccontextmanager
async def connected(url: str, key: str | None) -> AsyncGenerator[Target]:
    """A target's connections, closed at the end."""
    url = url.rstrip("/")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as root,
        httpx2.AsyncClient(base_url=f"{url}/restore/api", headers=headers, timeout=60) as api,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=key or "none", timeout=1800, max_retries=0) as client,
    ):
        yield Target(url, root, api, client)
