"""All tests at once are spread over worker processes; those that want the machine to themselves are not."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import workers

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
[pytest]
testpaths = tests
pythonpath = .
addopts = --import-mode=importlib
filterwarnings = error
"""
MODULE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range(20))
def test_it(n, worker_id):
    with Path("seen.txt").open("a") as seen:
        seen.write(f"{Path(__file__).parent.name} {worker_id}\\n")
    assert (Path(__file__).parent.name, n) != ("engine", 13)
"""
FOLDERS = ("app", *workers.ALONE, "units")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose tests are spread as this one's, and say who ran them. One of them fails."""
    tests = tmp_path / "tests"
    for folder in FOLDERS:
        (tests / folder).mkdir(parents=True)
        (tests / folder / f"test_{folder}.py").write_text(MODULE)
    for name in ("conftest.py", "workers.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    (tmp_path / "pytest.ini").write_text(PROJECT)
    return tmp_path


def run(project: Path, *arguments: str) -> tuple[list[list[str]], list[str]]:
    """Which folder's tests ran, and in which worker, in their order; and what pytest said."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return [line.split() for line in (project / "seen.txt").read_text().splitlines()], done.stdout.splitlines()


def test_what_wants_the_machine_to_itself_runs_in_one_worker_when_the_others_have_ended(project: Path) -> None:
    seen, said = run(project, "-n", "2")
    assert len(seen) == 20 * len(FOLDERS)
    alone = [worker for folder, worker in seen if folder in workers.ALONE]
    assert len(set(alone)) == 1
    assert len({worker for folder, worker in seen if folder not in workers.ALONE}) == 2
    assert [folder for folder, _ in seen if folder in workers.ALONE] == ["browser"] * 20 + ["engine"] * 20
    first = next(n for n, (folder, _) in enumerate(seen) if folder in workers.ALONE)
    # What the other worker had been given before.
    assert len([folder for folder, _ in seen[first:] if folder not in workers.ALONE]) <= 3
    # It reads as without workers: files, the failed test as it can be asked for again, and the closing line.
    named = {match[1] for line in said if (match := re.match(r"(tests/\S+\.py) [.F]", line))}
    assert named == {f"tests/{folder}/test_{folder}.py" for folder in FOLDERS}
    assert any(line.startswith("FAILED tests/engine/test_engine.py::test_it[13] - ") for line in said)
    assert "1 failed, 79 passed in" in said[-1]


def test_without_workers_it_comes_last_as_well(project: Path) -> None:
    seen, _ = run(project)
    assert [folder for folder, _ in seen] == [
        folder for folder in ("app", "units", "browser", "engine") for _ in range(20)
    ]
