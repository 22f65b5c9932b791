"""`vllm-restore demo`: chats against a running server, re-store off and then on, and a table of what came from where.

A round is the same work with other words, so that no round lives on what the one before has cached. The policy that was
set before is set again at the end, however it ends.
"""

import asyncio
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import httpx2
from openai import APIError, AsyncOpenAI
from rich.console import Console
from rich.table import Table

from app import terminal
from app.demo_workload import PASSER_TOKENS, Round, Size, Workload
from app.remote import RemoteError, end_like_ctrl_c, first_of, get, live_engine, policy_kept, set_policy

ROUNDS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("off", {"enabled": False, "retention": "lru"}),
    ("tracked", {"enabled": True, "mode": "tracked", "retention": "lru"}),
)
# While the chats are answered, nearly a tier of other content is stored: with the chats' own blocks it overflows, so
# that what a chat stored first is evicted before its answer ends. What is copied again then has to outlive what passes
# by between two turns, which is just enough for the GPU to forget.
DURING_SHARE = 0.9
BETWEEN_SHARE = 1.05
MAX_PASSERS = 40


def run(url: str, num_chats: int, num_turns: int, seed: int, api_key: str | None) -> int:
    """Runs both rounds and prints the table. Returns an exit status: 130 after Ctrl-C.

    Raises:
        RemoteError: no such server, or one that refuses.
    """
    key = api_key or os.environ.get("VLLM_API_KEY") or None
    try:
        asyncio.run(_run(url.rstrip("/"), num_chats, num_turns, seed, key))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except (APIError, httpx2.HTTPError, ExceptionGroup) as error:
        raise RemoteError(f"the server at {url} failed: {first_of(error)}") from error
    return 0


async def _run(url: str, num_chats: int, num_turns: int, seed: int, key: str | None) -> None:
    console = terminal.console()
    end_like_ctrl_c()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(base_url=f"{url}/restore/api", headers=headers, timeout=60) as api,
        AsyncOpenAI(base_url=f"{url}/v1", api_key=key or "none", timeout=600, max_retries=0) as client,
    ):
        engine = live_engine(await get(api, "/engines"))
        model = (await client.models.list()).data[0].id
        size = _size(engine, num_chats, num_turns, console)
        console.print(
            f"{num_chats} chats of {num_turns} turns. One-shot prompts pass by: {size.num_during} while the chats are "
            f"answered, {size.num_between} between two turns."
        )
        rounds: list[Round] = []
        async with policy_kept(api, console.print):
            with terminal.progress(console) as bar:
                task = bar.add_task("", total=len(ROUNDS) * size.num_requests)
                for label, change in ROUNDS:
                    bar.update(task, description=f"re-store {label}")
                    await set_policy(api, change)
                    since = time.time_ns()
                    # The time is part of the seed: a second demo must not find what the first one left in the caches.
                    workload = Workload(client, model, size, f"{seed} {since}", lambda: bar.advance(task))
                    played = await workload.play(label)
                    played.summary = await get(api, f"/summary?since={since}")
                    rounds.append(played)
    console.print(_table(rounds))
    console.print(f"What is behind it: {url}/restore/")


def _size(engine: dict[str, Any], num_chats: int, num_turns: int, console: Console) -> Size:
    tier_tokens = engine["num_cpu_blocks"] * engine["hash_block_size"]
    gpu_tokens = engine["num_gpu_blocks"] * engine["hash_block_size"]
    during = math.ceil(DURING_SHARE * tier_tokens / PASSER_TOKENS)
    between = math.ceil(BETWEEN_SHARE * gpu_tokens / PASSER_TOKENS)
    if max(during, between) > MAX_PASSERS:
        console.print(
            f"The GPU's cache holds {gpu_tokens:,} tokens and the CPU tier {tier_tokens:,}: too many for this demo to "
            "overflow, so expect few evictions. `vllm-restore serve` without a model starts with small ones."
        )
    return Size(num_chats, num_turns, min(during, MAX_PASSERS), min(between, MAX_PASSERS))


def _table(rounds: list[Round]) -> Table:
    table = Table()
    table.add_column("")
    for played in rounds:
        table.add_column(f"re-store {played.label}", justify="right")
    rows: list[tuple[str, Callable[[Round], str]]] = [
        ("chats: prompt tokens from cache", lambda r: _share(r.cached_tokens, r.prompt_tokens)),
        ("chats: TTFT p50", lambda r: f"{statistics.median(r.ttft_s) * 1000:,.0f} ms"),
        ("chats: TTFT p90", lambda r: f"{_p90(r.ttft_s) * 1000:,.0f} ms"),
        ("all prompts: GPU hit", lambda r: _of_all(r, "gpu_hit_tokens")),
        ("all prompts: CPU hit", lambda r: _of_all(r, "cpu_hit_tokens")),
        ("  of it thanks to re-store", lambda r: _of_all(r, "restored_hit_tokens")),
        ("blocks stored", lambda r: f"{r.summary['stored_blocks']:,}"),
        ("blocks re-stored", lambda r: f"{r.summary['restored_blocks']:,}"),
        ("blocks evicted", lambda r: f"{r.summary['evicted_blocks']:,}"),
        ("blocks loaded", lambda r: f"{r.summary['loaded_blocks']:,}"),
        ("took", lambda r: f"{r.seconds:,.0f} s"),
    ]
    for name, value in rows:
        table.add_row(name, *(value(played) for played in rounds))
    return table


def _of_all(played: Round, name: str) -> str:
    tokens = played.summary["tokens"]
    return _share(tokens[name], tokens["prompt_tokens"])


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "—"


def _p90(values: list[float]) -> float:
    return statistics.quantiles(values, n=10, method="inclusive")[-1] if len(values) > 1 else values[0]
