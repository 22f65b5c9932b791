"""The Python environment: `.venv` with exactly what a lock names, and this project installed editable in it.

Standard library only. uv does the installing; it is pinned itself and lives in `.venv/.tools`, so nothing is needed.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from app.bootstrap.report import SetupError, digest, need_space, progress, read_stamp, run, say, write_stamp

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
TOOLS = VENV / ".tools"
STAMP = VENV / "vllm-restore-stamp.json"
UV_VERSION = "0.13.9"
NEEDED_GIB = 5.0

LOCKS = {"serve": ROOT / "requirements.txt", "test": ROOT / "requirements-test.txt"}
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

# uv reads none of pip's settings; who has told pip where packages are means uv too.
PIP_SETTINGS = {
    "PIP_INDEX_URL": "UV_DEFAULT_INDEX",
    "PIP_EXTRA_INDEX_URL": "UV_INDEX",
    "PIP_FIND_LINKS": "UV_FIND_LINKS",
    "PIP_CERT": "SSL_CERT_FILE",
}
PACKAGE_SOURCES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS")


def python() -> Path:
    """The environment's interpreter."""
    return VENV / "bin" / "python"


def ensure(kind: str) -> None:
    """Makes the environment hold what the lock `kind` (`serve` or `test`) names. A `test` environment also serves.

    Raises:
        SetupError: no venv module, no network, no disk space, or a package that cannot be found.
    """
    found = read_stamp(STAMP) if python().exists() else {}
    kind = "test" if "test" in (kind, found.get("kind")) else "serve"
    wanted = {
        "kind": kind,
        "python": sys.version,
        "lock": digest([LOCKS[kind]], UV_VERSION),
        "project": digest([ROOT / "pyproject.toml"], str(ROOT)),
    }
    if found == wanted:
        return
    if any(VENV.glob("lib/python3.11/site-packages/vllm-[0-9]*.dist-info")):
        say(f"{VENV.name} holds a vLLM of your own (distribution `vllm`): left as it is")
        return
    need_space(VENV, NEEDED_GIB, "the Python environment")
    if found.get("python") != sys.version:
        _create()
    environment = package_environment()
    _ensure_uv()
    if found.get("lock") != wanted["lock"] or found.get("python") != sys.version:
        with progress(f"Python packages from {LOCKS[kind].name}"):
            _sync(LOCKS[kind], environment)
        # What is done is done, should the rest fail.
        write_stamp(STAMP, {**wanted, "project": None})
    with progress("this project, editable"):
        run(
            [uv(), "pip", "install", "--python", python(), "--no-deps", "--editable", ROOT, "--quiet"],
            failure="could not install this project into .venv; uv's message is above",
            env=environment,
        )
    write_stamp(STAMP, wanted)


def uv() -> Path:
    """The pinned uv."""
    return TOOLS / "bin" / "uv"


def package_environment() -> dict[str, str]:
    """Environment variables for uv, with pip's settings carried over where uv has none of its own."""
    environment = dict(os.environ)
    for theirs, ours in PIP_SETTINGS.items():
        if environment.get(theirs) and ours not in environment:
            environment[ours] = environment[theirs].replace(" ", "," if ours == "UV_FIND_LINKS" else " ")
    if "PIP_EXTRA_INDEX_URL" in environment:
        # pip looks at every index and takes the best; uv would stop at the first that knows the name.
        environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    if not any(environment.get(name) for name in PACKAGE_SOURCES):
        # The CPU build of torch is on PyTorch's own index only. Who has named a source of packages is believed instead.
        environment.setdefault("UV_TORCH_BACKEND", "cpu")
    environment["VIRTUAL_ENV"] = str(VENV)
    return environment


def ensure_uv_for_locks() -> dict[str, str]:
    """Just enough environment for `make lock`: an empty `.venv` and uv."""
    if not python().exists():
        _create()
    _ensure_uv()
    return package_environment()


def _create() -> None:
    if VENV.exists():
        shutil.rmtree(VENV)
    with progress(f"environment in {VENV.name}"):
        run(
            [sys.executable, "-m", "venv", VENV],
            failure=f"{sys.executable} cannot make a virtual environment; on Debian: apt install python3.11-venv",
        )


def _ensure_uv() -> None:
    if uv().exists() and any(TOOLS.glob(f"uv-{UV_VERSION}.dist-info")):
        return
    with progress(f"uv {UV_VERSION}"):
        run(
            [python(), "-m", "pip", "install", "--quiet", "--upgrade", "--target", TOOLS, f"uv=={UV_VERSION}"],
            failure="could not install uv with pip: no network, or no package index (pip's message is above). "
            "Behind a proxy set HTTPS_PROXY; with a mirror set PIP_INDEX_URL",
        )


def _sync(lock: Path, environment: dict[str, str]) -> None:
    command = [str(uv()), "pip", "sync", "--python", str(python()), "--compile-bytecode", str(lock)]
    if subprocess.run(command, env=environment, check=False).returncode == 0:
        return
    need_space(VENV, 0.5, "the Python environment")
    # Once more without installing and without the terminal: its words tell which of the known causes it was.
    again = subprocess.run(
        [*command, "--dry-run", "--quiet"], env=environment, check=False, capture_output=True, text=True
    )
    raise SetupError(explain_failed_sync(again.stderr))


def explain_failed_sync(said: str) -> str:
    """One line for what uv said when it could not install the lock."""
    low = said.lower()
    if any(sign in low for sign in ("dns error", "error sending request", "timed out", "failed to connect", "offline")):
        return "no network to the package index. Check the connection; behind a proxy set HTTPS_PROXY and run it again"
    if "torch" in low and any(sign in low for sign in ("no version", "not found", "unsatisfiable", "no wheels")):
        return f"the CPU build of torch was not found. Name the index that has it: export UV_INDEX={TORCH_INDEX}"
    return "uv could not install the packages; its message is above"
