"""What can be known to go wrong before vLLM is started, each as one clear line. Imports nothing of vLLM."""

import errno
import os
import re
import socket
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

DEFAULT_PORT = 8000
MAX_PORT = 65_535


class PreflightError(Exception):
    """Starting would fail. The message is one line: what is wrong and what to do."""


def check_port(host: str | None, port: int, *, by_make: bool = True) -> None:
    """Raises PreflightError where nothing could listen on `host` (None: every address) and `port`.

    `by_make`: what wants to listen can also be started by `make serve`, and the advice may name it.
    """
    if not 0 <= port <= MAX_PORT:
        raise PreflightError(f"{port} is no port; give one from 1 to {MAX_PORT}")
    family = socket.AF_INET6 if host and ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As vLLM binds: a socket in TIME_WAIT is no obstacle, a listener is.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host or "", port))
        except OSError as error:
            where = f"port {port}" if host in (None, "", "0.0.0.0", "::") else f"{host} port {port}"
            if error.errno == errno.EADDRINUSE:
                other = port + 1 if port < MAX_PORT else port - 1
                advice = f"make serve PORT={other}, or --port {other}" if by_make else f"--port {other}"
                raise PreflightError(
                    f"{where} is in use by another program; stop that one, or serve elsewhere: {advice}"
                ) from error
            if error.errno == errno.EACCES:
                raise PreflightError(f"{where} needs more rights than you have; take a port from 1024 on") from error
            raise PreflightError(f"cannot listen on {where}: {error.strerror or error}") from error


def port_of(text: str) -> int:
    """A port as a person writes it. Raises PreflightError where that is no port's number."""
    if not re.fullmatch("[0-9]{1,5}", text) or int(text) > MAX_PORT:
        raise PreflightError(f"{text[:40]!r} is no port; give a number from 1 to {MAX_PORT}")
    return int(text)


def port_named_in(arguments: Sequence[str]) -> int | None:
    """The port that a command line names outright, or vLLM's default; None where only vLLM's own parser can tell.

    Raises:
        PreflightError: what is named is no number.
    """
    if any(argument.split("=", 1)[0] in ("--config", "--uds", "--headless", "-h", "--help") for argument in arguments):
        return None
    for index, argument in enumerate(arguments):
        flag, _, value = argument.partition("=")
        if flag == "--port":
            text = value or (arguments[index + 1] if index + 1 < len(arguments) else "")
            return port_of(text) if text else None
        if flag.startswith("--help="):
            return None
    return DEFAULT_PORT


def check_model(model: str, revision: str | None) -> None:
    """Raises PreflightError where `model` is neither a folder with a model nor one that the Hugging Face Hub has.

    Names with a scheme (`s3://…`) and single files are vLLM's to judge.
    """
    if "://" in model or os.environ.get("VLLM_USE_MODELSCOPE", "").lower() in ("1", "true"):
        return
    path = Path(model).expanduser()
    if path.is_file():
        return
    if path.is_dir():
        if not any((path / name).exists() for name in ("config.json", "params.json")):
            raise PreflightError(f"{path} holds no model: there is no config.json in it")
        return
    if path.is_absolute() or model.startswith(("~", ".")) or not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model):
        raise PreflightError(f"there is no folder {model}; give a folder with a model, or a Hugging Face name")
    _check_hub(model, revision)


def _check_hub(model: str, revision: str | None) -> None:
    # Only now: it costs a quarter of a second, and a local model never needs it.
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    # As Any: its type is only partly known.
    hub: Any = import_module("huggingface_hub")
    if isinstance(hub.try_to_load_from_cache(model, "config.json", revision=revision), str):
        return
    unreachable = (
        f"{model} is not in the local cache and the Hugging Face Hub cannot be reached; check the network, give a "
        "folder, or leave the model out to serve the embedded one"
    )
    # The hub's client tries for half a minute where a look at the name tells at once; a proxy may know it all the same.
    endpoint: str = hub.constants.ENDPOINT
    if not getproxies() and not _is_known(urlsplit(endpoint).hostname or ""):
        raise PreflightError(unreachable)
    try:
        hub.hf_hub_download(model, "config.json", revision=revision)
    except GatedRepoError as error:
        raise PreflightError(
            f"{model} is gated: accept its terms on its page, then set HF_TOKEN to a token that may read it"
        ) from error
    except RepositoryNotFoundError as error:
        raise PreflightError(
            f"the Hugging Face Hub has no model {model} (or it is private: set HF_TOKEN); "
            "nor is there a folder of that name here"
        ) from error
    except RevisionNotFoundError as error:
        raise PreflightError(f"{model} has no revision {revision}") from error
    except LocalEntryNotFoundError as error:
        raise PreflightError(unreachable) from error
    except EntryNotFoundError:
        return  # Not every model has a config.json (Mistral's own format, GGUF): vLLM knows.
    except (HfHubHTTPError, OSError) as error:
        raise PreflightError(f"{model} cannot be fetched from the Hugging Face Hub: {_first_line(error)}") from error


def _is_known(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
