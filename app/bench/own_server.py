"""A server of the embedded model that the bench starts for itself, with tiers as large as the workload says."""

import asyncio
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx2

from app.aside import module_command
from app.remote import RemoteError
from app.serve import EMBEDDED_TOKEN_BYTES
from connector.replay.workload_file import Workload

START_SECONDS = 300.0
STOP_SECONDS = 60.0
NULL_BLOCK = 1
STOCK_FLAG = ("--kv-transfer-config.kv_connector_extra_config.restore_scheduler", "stock")


def flags(workload: Workload, port: int, folder: Path, *, is_stock: bool) -> list[str]:
    """The arguments of `vllm-restore serve`."""
    block_bytes = workload.engine.block_size * EMBEDDED_TOKEN_BYTES
    sizes = {
        "--port": port,
        "--host": "127.0.0.1",
        "--db": folder / "log.db",
        "--block-size": workload.engine.block_size,
        "--max-model-len": (workload.gpu_blocks - NULL_BLOCK) * workload.engine.block_size,
        "--max-num-batched-tokens": workload.engine.max_num_batched_tokens,
        "--max-num-seqs": workload.engine.max_num_seqs,
        "--kv-cache-memory-bytes": workload.gpu_blocks * block_bytes,
        "--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use": workload.cpu_blocks * block_bytes,
    }
    return [*(str(part) for pair in sizes.items() for part in pair), *(STOCK_FLAG if is_stock else ())]


@asynccontextmanager
async def own_server(workload: Workload, folder: Path, *, is_stock: bool) -> AsyncGenerator[str]:
    """Starts one and yields its URL; ends it whatever happens.

    Args:
        folder: a new folder for its log and for what it says.

    Raises:
        RemoteError: it did not start. The message names the file with its words.
    """
    port = _free_port()
    said = folder / "server.txt"
    # Resets and a quiet output; what else the environment says holds.
    environment = os.environ | {"VLLM_SERVER_DEV_MODE": "1", "VLLM_LOGGING_COLOR": "0"}
    command = [*module_command("app.cli"), "serve", *flags(workload, port, folder, is_stock=is_stock)]
    with said.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        await _healthy(url, process, said)
        yield url
    finally:
        await _end(process)


async def _healthy(url: str, process: Process, said: Path) -> None:
    deadline = asyncio.get_running_loop().time() + START_SECONDS
    async with httpx2.AsyncClient(base_url=url, timeout=10) as client:
        while asyncio.get_running_loop().time() < deadline:
            if process.returncode is not None:
                break
            try:
                if (await client.get("/health")).is_success:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.5)
    last = (await asyncio.to_thread(said.read_text, errors="replace")).strip().splitlines()[-1:]
    raise RemoteError(f"a server for the bench did not start; its words are in {said}; the last: {' '.join(last)}")


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    await process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
