"""What `serve` adds to vLLM's command line, through vLLM's own parser: ours only where the person has said nothing."""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from app import aside, embedded_model, serve
from app.preflight import PreflightError

# 30 layers of 3 key and 3 value heads of 64 float32 numbers, for 32 tokens.
BLOCK_BYTES = 30 * 6 * 64 * 4 * 32
Parse = Callable[..., Namespace]


@pytest.fixture(scope="module")
def new_parser() -> Callable[[], Any]:
    """vLLM's own `serve` parser with our defaults."""
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    def make() -> Any:
        parser = FlexibleArgumentParser()
        subparser = ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
        serve.set_defaults(subparser)
        return parser

    return make


@pytest.fixture
def parse(new_parser: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Parse:
    """Arguments as vLLM's server would get them. The embedded model counts as unpacked."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    monkeypatch.setattr(embedded_model, "is_ready", lambda: True)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")

    def call(*arguments: str, on_cpu: bool = True) -> Namespace:
        # Port 0 is never in use; vLLM refuses it only later.
        args = new_parser().parse_args(["serve", *serve.with_model([*arguments])])
        args.port = 0
        serve.complete(args, on_cpu=on_cpu)
        return args

    return call


@pytest.fixture
def other_model(tmp_path: Path) -> str:
    return str(tmp_path / "model")


def test_without_a_model_the_embedded_one_is_served_under_its_name(parse: Parse) -> None:
    args = parse()
    assert args.model == str(embedded_model.folder())
    assert args.served_model_name == ["SmolLM2-135M-Instruct"]
    assert args.dtype == "float32"
    assert args.max_model_len == 2048
    assert args.enforce_eager is True


def test_the_embedded_models_name_means_the_embedded_model(parse: Parse) -> None:
    assert parse("SmolLM2-135M-Instruct").model == str(embedded_model.folder())


def test_the_embedded_model_takes_another_served_name(parse: Parse) -> None:
    args = parse("--served-model-name", "mine")
    assert args.model == str(embedded_model.folder())
    assert args.served_model_name == ["mine"]


def test_both_tiers_are_small_for_the_embedded_model_and_the_cpu_tier_is_the_larger(parse: Parse) -> None:
    args = parse()
    cpu_bytes = args.kv_transfer_config.kv_connector_extra_config["cpu_bytes_to_use"]
    assert args.block_size == 32
    assert args.kv_cache_memory_bytes % BLOCK_BYTES == 0
    assert 2048 / 32 < args.kv_cache_memory_bytes / BLOCK_BYTES < cpu_bytes / BLOCK_BYTES < 512


def test_a_longer_context_gets_a_gpu_cache_that_holds_it(parse: Parse) -> None:
    args = parse("--max-model-len", "8192")
    assert args.kv_cache_memory_bytes >= 8192 / 32 * BLOCK_BYTES


@pytest.mark.parametrize("flag", ["--kv-cache-memory-bytes", "--num-gpu-blocks-override"])
def test_a_cache_size_that_was_asked_for_is_left_alone(parse: Parse, flag: str) -> None:
    args = parse(flag, "1234")
    assert {args.kv_cache_memory_bytes, args.num_gpu_blocks_override} == {1234, None}


def test_the_kv_cache_space_variable_counts_as_a_cache_size(parse: Parse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "2")
    assert parse().kv_cache_memory_bytes is None


def test_another_model_keeps_vllms_own_defaults(parse: Parse, other_model: str) -> None:
    args = parse(other_model)
    assert args.model_tag == other_model
    assert (args.dtype, args.max_model_len, args.block_size, args.kv_cache_memory_bytes) == ("auto", None, None, None)
    assert args.enforce_eager is False
    assert args.served_model_name is None
    assert args.kv_transfer_config.kv_connector_extra_config == {}


def test_every_model_gets_the_connector_the_flush_and_the_token_details(parse: Parse, other_model: str) -> None:
    for args in (parse(), parse(other_model), parse(other_model, on_cpu=False)):
        assert args.kv_transfer_config.kv_connector == "ReStoreConnector"
        assert args.kv_transfer_config.kv_role == "kv_both"
        assert args.shutdown_timeout == 20
        assert args.enable_prompt_tokens_details is True


def test_flags_go_before_our_defaults(parse: Parse) -> None:
    args = parse(
        *("--shutdown-timeout", "0", "--no-enable-prompt-tokens-details", "--no-enforce-eager"),
        *("--max-model-len", "512", "--dtype", "bfloat16", "--block-size", "64"),
    )
    assert args.shutdown_timeout == 0
    assert args.enable_prompt_tokens_details is False
    assert args.enforce_eager is False
    assert (args.max_model_len, args.dtype, args.block_size) == (512, "bfloat16", 64)


def test_a_config_file_goes_before_our_defaults(parse: Parse, other_model: str, tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").write_text(f"model: {other_model}\nshutdown-timeout: 3\nmax-model-len: 100\n")
    args = parse("--config", str(tmp_path / "vllm.yaml"))
    assert args.model == other_model
    assert (args.shutdown_timeout, args.max_model_len) == (3, 100)


def test_another_connector_is_left_alone(parse: Parse) -> None:
    given = {"kv_connector": "ExampleConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"a": 1}}
    args = parse("--kv-transfer-config", json.dumps(given))
    assert args.kv_transfer_config.kv_connector == "ExampleConnector"
    assert args.kv_transfer_config.kv_connector_extra_config == {"a": 1}


def test_the_tiers_size_can_be_given_alone(parse: Parse) -> None:
    args = parse("--kv-transfer-config.kv_connector_extra_config.cpu_bytes_to_use", "64000000")
    assert args.kv_transfer_config.kv_connector == "ReStoreConnector"
    assert args.kv_transfer_config.kv_connector_extra_config == {"cpu_bytes_to_use": 64_000_000}


def test_a_model_that_is_not_there_is_refused(parse: Parse, tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match=r"there is no folder .*nowhere"):
        parse(str(tmp_path / "nowhere"))


def test_a_plugin_list_of_the_persons_own_is_kept() -> None:
    assert serve.allow_list("mine,other") == "mine,other,vllm_restore"
    assert serve.allow_list("vllm_restore,mine") == "vllm_restore,mine"
    assert serve.allow_list("") == "vllm_restore"


def test_without_a_plugin_list_no_general_plugin_is_turned_off() -> None:
    allowed = serve.allow_list(None).split(",")
    assert {point.name for point in entry_points(group="vllm.general_plugins")} <= set(allowed)
    assert "vllm_restore" in allowed


def test_the_cpu_builds_version_answers_for_vllm() -> None:
    assert serve.version_of("vllm") == "0.32.0"


def test_our_modules_are_found_where_the_current_folder_has_an_app_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("raise SystemExit('not this one')")
    done = subprocess.run(
        aside.module_command("app.openapi"), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "openapi" in done.stdout


def test_serve_help_shows_what_it_adds_and_then_vllms_own() -> None:
    program = Path(sys.executable).with_name("vllm-restore")
    done = subprocess.run([program, "serve", "--help"], capture_output=True, text=True, timeout=240, check=True)
    assert "any flag of `vllm serve`" in done.stdout
    assert "Config Groups" in done.stdout
    assert done.stdout.index("any flag of `vllm serve`") < done.stdout.index("Config Groups")


def test_a_flag_that_vllm_does_not_know_is_refused_by_vllm(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("vllm-restore")
    arguments = ["serve", "--no-such-flag", "1", "--port", "0", "--db", str(tmp_path / "log.db")]
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in done.stderr
