"""A Chrome for the browser tests: the machine's own, or Debian's Chromium by apt for root. Standard library only."""

import os
import shutil
import subprocess

from app.bootstrap.report import progress, say

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def ensure() -> None:
    """Brings a browser where that needs no question asked; says how to get one where it does. Never fails."""
    if find() or not os.environ.get("PATH"):
        return
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        with progress("Chromium from Debian's packages"):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (
                ["apt-get", "update", "-qq"],
                ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
            ):
                subprocess.run(command, env=environment, check=False, stdin=subprocess.DEVNULL)
    if not find():
        say("no Chromium or Chrome here: the browser tests will be skipped. On Debian: apt install chromium")


def find() -> str | None:
    """The path of a Chrome or Chromium."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)
