"""A running server as the commands `demo` and `bench` see it: its API, its policy, one streamed chat answer."""

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httpx2
from openai import AsyncOpenAI

POLICY_KEYS = ("enabled", "mode", "max_restore_blocks_per_step", "retention")
APPLY_DEADLINE_S = 30.0


class RemoteError(Exception):
    """The server is not there, or refuses. The message is one line: why, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer. Tokens as the server counts them in `usage`; `ttft_s` from sending to the first chunk that
    carries a choice."""

    text: str
    ttft_s: float
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int


async def get(api: httpx2.AsyncClient, path: str) -> Any:
    """What `GET path` of `/restore/api` answers. Raises RemoteError, with advice."""
    url = str(api.base_url).removesuffix("/").removesuffix("/restore/api")
    try:
        response = await api.get(path)
    except httpx2.TransportError as error:
        raise RemoteError(f"no server at {url}; start one with `make serve`, or name yours: --url") from error
    if response.status_code == 404:
        raise RemoteError(f"the server at {url} has no /restore; start it with `vllm-restore serve`")
    refuse_errors(response)
    return response.json()


async def set_policy(api: httpx2.AsyncClient, change: dict[str, Any]) -> None:
    """Changes the policy and waits until every engine obeys. Raises RemoteError."""
    response = await api.put("/policy", json=change)
    refuse_errors(response)
    state = response.json()
    deadline = time.monotonic() + APPLY_DEADLINE_S
    while any(engine["is_pending"] for engine in state["engines"]):
        if time.monotonic() > deadline:
            raise RemoteError(f"the engine has not applied {change} within {APPLY_DEADLINE_S:.0f} s")
        await asyncio.sleep(0.2)
        state = (await api.get("/policy")).raise_for_status().json()


def refuse_errors(response: httpx2.Response) -> None:
    """Raises RemoteError with the server's own words where it did not succeed."""
    if response.is_success:
        return
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text[:200]
    raise RemoteError(f"the server refused {response.request.method} {response.request.url.path}: {detail}")


def live_engine(engines: list[dict[str, Any]]) -> dict[str, Any]:
    """The newest live engine of those that `/engines` answers. Raises RemoteError where none is live."""
    live = [engine for engine in engines if engine["is_live"]]
    if not live:
        raise RemoteError("no engine is writing the log of this server; was it started by `vllm-restore serve`?")
    # The API names the newest first; an older one may be what a killed server left, live until its heartbeat is old.
    return live[0]


@asynccontextmanager
async def policy_kept(api: httpx2.AsyncClient, say: Callable[[str], None]) -> AsyncGenerator[None]:
    """Sets the policy that holds now again at the end, however it ends."""
    policy = (await get(api, "/policy"))["policy"]
    try:
        yield
    finally:
        try:
            await api.put("/policy", json={key: policy[key] for key in POLICY_KEYS})
        except httpx2.HTTPError as error:
            say(f"The policy could not be set back to {policy}: {error or type(error).__name__}")


async def stream_chat(
    client: AsyncOpenAI,
    model: str,
    messages: list[dict[str, str]],
    num_tokens: int,
    on_first: Callable[[], None] = lambda: None,
    extra: Mapping[str, Any] | None = None,
) -> Answer:
    """One greedy answer of exactly `num_tokens` tokens, so that every run does the same work.

    Args:
        on_first: called at the first chunk.
        extra: further fields of the request's body.
    """
    started = time.monotonic()
    ttft_s = 0.0
    parts: list[str] = []
    usage: Any = None
    # The client's types know OpenAI's own arguments alone.
    create: Any = client.chat.completions.create
    stream = await create(
        model=model,
        messages=messages,
        max_tokens=num_tokens,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, **(extra or {})},
    )
    async for chunk in stream:
        if chunk.choices and not ttft_s:
            ttft_s = time.monotonic() - started
            on_first()
        parts += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    if usage is None:
        raise RemoteError("the server ended an answer without its usage; is it vLLM?")
    details = usage.prompt_tokens_details
    cached = (details.cached_tokens or 0) if details else 0
    return Answer("".join(parts), ttft_s, usage.prompt_tokens, cached, usage.completion_tokens)


def end_like_ctrl_c() -> None:
    """Lets a SIGTERM cancel the running task, as Ctrl-C does: it must not leave somebody's engine changed, or a server
    of ours behind."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def first_of(error: Exception) -> str:
    """What went wrong first, where several tasks failed."""
    if isinstance(error, BaseExceptionGroup):
        return first_of(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return str(error) or type(error).__name__


def message(role: str, content: str) -> dict[str, str]:
    """One message of a chat."""
    return {"role": role, "content": content}
