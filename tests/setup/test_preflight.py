"""What is looked at before vLLM starts: the port and the model."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.preflight import PreflightError, check_model, check_port, port_named_in


def test_a_free_port_passes() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    check_port("127.0.0.1", port)


def test_a_listener_on_one_address_blocks_all_addresses() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PreflightError, match=f"^port {taken.getsockname()[1]} is in use"):
            check_port(None, taken.getsockname()[1])


def test_an_address_of_another_machine_is_refused_with_the_reason() -> None:
    # 192.0.2.0/24 is for documentation: no machine has it.
    with pytest.raises(
        PreflightError, match=r"cannot listen on 192\.0\.2\.1 port 8000: Cannot assign requested address"
    ):
        check_port("192.0.2.1", 8000)


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ([], 8000),
        (["model", "--port", "9000"], 9000),
        (["--port=9001", "--dtype", "auto"], 9001),
        (["--config", "vllm.yaml"], None),
        (["--uds", "/run/vllm.sock"], None),
        (["--port"], None),
    ],
)
def test_the_port_is_read_off_a_command_line_only_where_it_stands_there(arguments: list[str], port: int | None) -> None:
    assert port_named_in(arguments) == port


@pytest.mark.parametrize("port", [-1, 65_536, 99_999])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(PreflightError, match=f"^{port} is no port; give one from 1 to 65535$"):
        check_port(None, port)


def test_a_folder_with_a_model_passes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_model(str(tmp_path), None)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"holds no model: there is no config\.json"):
        check_model(str(tmp_path), None)


@pytest.mark.parametrize("model", ["./nowhere", "/no/such/folder", "~/no-such-folder", "a/b/c", "not a name"])
def test_what_can_only_be_a_path_is_refused_without_asking_the_hub(model: str) -> None:
    with pytest.raises(PreflightError, match="there is no folder"):
        check_model(model, None)


@pytest.mark.parametrize("model", ["s3://bucket/model", "gs://bucket/model"])
def test_remote_stores_are_left_to_vllm(model: str) -> None:
    check_model(model, None)


def test_a_hub_name_that_is_not_cached_says_what_to_do_without_a_network(tmp_path: Path) -> None:
    script = (
        "from app.preflight import check_model, PreflightError\n"
        "try: check_model('some-one/some-model', None)\n"
        "except PreflightError as error: print(error)"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "some-one/some-model is not in the local cache and the Hugging Face Hub cannot be reached"
    )
    assert "leave the model out to serve the embedded one" in done.stdout
