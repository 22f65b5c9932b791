"""`vllm-restore serve`: vLLM's own `vllm serve`, with defaults of ours where the command line says nothing.

Sets the plugin allow-list, the connector, a shutdown that lets the log be flushed, and the embedded model; migrates the
log; then runs vLLM's command line in this process. vLLM is imported inside functions: our own errors come at once.
"""

import os
import subprocess
import sys
from argparse import Namespace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from types import SimpleNamespace
from typing import Any

from app import embedded_model
from app.aside import module_command
from app.preflight import PreflightError, check_model, check_port, port_named_in

PLUGIN = "vllm_restore"
CONNECTOR = "ReStoreConnector"
# Unless vLLM is told otherwise it kills the engine at once, and with it what the log has not written yet.
SHUTDOWN_TIMEOUT_S = 20
OPEN_GROUPS = ("vllm.general_plugins", "vllm.platform_plugins", "vllm.io_processor_plugins", "vllm.stat_logger_plugins")

# The embedded model is for looking at caches, so both tiers are small: a handful of chats overflows them.
EMBEDDED_MAX_MODEL_LEN = 2048
EMBEDDED_BLOCK_SIZE = 32
EMBEDDED_GPU_BLOCKS = 112
EMBEDDED_CPU_BLOCKS = 224
# 30 layers × key and value × 3 heads × 64 numbers × 4 bytes, for one token.
EMBEDDED_TOKEN_BYTES = 30 * 2 * 3 * 64 * 4

NOTE = f"""\
usage: vllm-restore serve [MODEL] [--db URL] [any flag of `vllm serve`]

Without MODEL the embedded {embedded_model.NAME} is served. --db names the log (else RESTORE_DB, else the user's
data folder). Where the command line says nothing, `serve` adds:
  --kv-transfer-config '{{"kv_connector": "{CONNECTOR}", "kv_role": "kv_both"}}'
  --shutdown-timeout {SHUTDOWN_TIMEOUT_S}
  --enable-prompt-tokens-details
and puts {PLUGIN} on VLLM_PLUGINS. Everything else is vLLM's:
"""


def serve(arguments: list[str]) -> int:
    """Serves until it is told to stop. Returns an exit status.

    Raises:
        PreflightError: the port, the model or the log cannot be used.
    """
    arguments, db = _take_db(arguments)
    if any(argument in ("-h", "--help") or argument.startswith("--help=") for argument in arguments):
        sys.stdout.write(NOTE + "\n")
        sys.stdout.flush()
    else:
        if (port := port_named_in(arguments)) is not None:
            check_port(_host_named_in(arguments), port)
        _prepare_log(db)
    os.environ["VLLM_PLUGINS"] = allow_list(os.environ.get("VLLM_PLUGINS"))
    _run_vllm(with_model(arguments))
    return 0


def allow_list(current: str | None) -> str:
    """`VLLM_PLUGINS` with ours on it.

    A list that somebody has made is kept. Unset means to vLLM: all plugins but endpoint plugins; so all that are
    installed are named, since a list with ours alone would turn them off.
    """
    if current is None:
        names = [point.name for group in OPEN_GROUPS for point in entry_points(group=group)]
    else:
        names = [name for name in current.split(",") if name]
    return ",".join(dict.fromkeys([*names, PLUGIN]))


def with_model(arguments: list[str]) -> list[str]:
    """The arguments with the embedded model's name in front, where vLLM's parser insists on a name there."""
    flags = {argument.split("=", 1)[0].replace("_", "-") for argument in arguments}
    is_nameless = bool(arguments) and arguments[0].startswith("-") and not flags & {"--model", "--config"}
    return [embedded_model.NAME, *arguments] if is_nameless and "--served-model-name" in flags else arguments


def set_defaults(parser: Any) -> None:
    """What holds for every model, as defaults of vLLM's own parser: its flags and its config file go before them."""
    parser.set_defaults(
        model=embedded_model.NAME,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
        enable_prompt_tokens_details=True,
        # None: nobody has asked for either; `complete` decides when it knows the model.
        enforce_eager=None,
    )


def complete(args: Namespace, on_cpu: bool) -> None:
    """Fills in what depends on the model, after vLLM has parsed the command line.

    Raises:
        PreflightError: the port or the model cannot be used.
    """
    model = args.model_tag or args.model
    is_embedded = model == embedded_model.NAME
    if not args.headless and not args.uds:
        check_port(args.host, args.port)
    if is_embedded:
        args.model = args.model_tag = str(_prepare_model())
        _complete_embedded(args, on_cpu)
    else:
        check_model(model, args.revision)
    args.enforce_eager = bool(args.enforce_eager)
    _complete_connector(args, is_embedded)


def _complete_embedded(args: Namespace, on_cpu: bool) -> None:
    args.served_model_name = args.served_model_name or [embedded_model.NAME]
    if args.max_model_len is None:
        args.max_model_len = EMBEDDED_MAX_MODEL_LEN
    if not on_cpu:
        return
    if args.dtype == "auto":
        args.dtype = "float32"
    if args.block_size is None:
        args.block_size = EMBEDDED_BLOCK_SIZE
    if args.enforce_eager is None:
        # Compiling for the CPU takes a C++ compiler and a minute, and gains little on so small a model.
        args.enforce_eager = True
    is_sized = args.num_gpu_blocks_override or args.kv_cache_memory_bytes or os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    if not is_sized:
        block_bytes = args.block_size * EMBEDDED_TOKEN_BYTES
        # One full-length request has to fit, beside vLLM's null block.
        needed = max(args.max_model_len, 0) // args.block_size + 2
        args.kv_cache_memory_bytes = max(EMBEDDED_GPU_BLOCKS, needed) * block_bytes


def _complete_connector(args: Namespace, is_embedded: bool) -> None:
    from vllm.config import KVTransferConfig

    given = args.kv_transfer_config
    if given is not None and given.kv_connector is not None:
        return
    extra = dict(given.kv_connector_extra_config) if given is not None else {}
    if is_embedded:
        block_bytes = (args.block_size or EMBEDDED_BLOCK_SIZE) * EMBEDDED_TOKEN_BYTES
        extra.setdefault("cpu_bytes_to_use", EMBEDDED_CPU_BLOCKS * block_bytes)
    args.kv_transfer_config = KVTransferConfig(
        kv_connector=CONNECTOR, kv_role="kv_both", kv_connector_extra_config=extra
    )


def _prepare_log(db: str | None) -> None:
    from connector import log

    try:
        url = log.resolve_url(db)
        log.upgrade(url)
    except log.LogError as error:
        raise PreflightError(str(error)) from error
    # The engine and the app are other processes, or start later: the environment tells them.
    os.environ["RESTORE_DB"] = url.render_as_string(hide_password=False)


def _prepare_model() -> Any:
    if not embedded_model.is_ready():
        # In a process of its own: unpacking leaves a gigabyte of torch and weights behind.
        done = subprocess.run(module_command("app.embedded_model"), check=False)
        if done.returncode:
            raise PreflightError("the embedded model could not be prepared; the reason is above")
    return embedded_model.folder()


def _run_vllm(arguments: list[str]) -> None:
    # As Any: vLLM is only partly typed, and two of these modules' names are replaced below.
    command_line: Any = import_module("vllm.entrypoints.cli.main")
    vllm_serve: Any = import_module("vllm.entrypoints.cli.serve")
    platforms: Any = import_module("vllm.platforms")
    stock: Any = vllm_serve.ServeSubcommand

    class Serve(stock):
        """vLLM's `serve` with our defaults."""

        def subparser_init(self, subparsers: Any) -> Any:
            parser: Any = stock.subparser_init(self, subparsers)
            set_defaults(parser)
            return parser

        def validate(self, args: Namespace) -> None:
            complete(args, on_cpu=platforms.current_platform.is_cpu())
            stock.validate(self, args)

    vllm_serve.cmd_init = lambda: [Serve()]
    # vLLM's command line asks for the version of the distribution `vllm`, which the CPU build is not called. Only this
    # module's view of importlib is covered.
    command_line.importlib = SimpleNamespace(metadata=SimpleNamespace(version=version_of))
    sys.argv = ["vllm", "serve", *arguments]
    command_line.main()


def version_of(distribution: str) -> str:
    """`importlib.metadata.version`, where `vllm` may be installed as `vllm-cpu`."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        if distribution != "vllm":
            raise
        return version("vllm-cpu")


def _take_db(arguments: list[str]) -> tuple[list[str], str | None]:
    for index, argument in enumerate(arguments):
        if argument.startswith("--db="):
            return arguments[:index] + arguments[index + 1 :], argument.removeprefix("--db=")
        if argument == "--db":
            if index + 1 == len(arguments):
                raise PreflightError("--db wants the log's URL or path after it")
            return arguments[:index] + arguments[index + 2 :], arguments[index + 1]
    return arguments, None


def _host_named_in(arguments: list[str]) -> str | None:
    for index, argument in enumerate(arguments):
        flag, _, value = argument.partition("=")
        if flag == "--host":
            return value or (arguments[index + 1] if index + 1 < len(arguments) else None)
    return None
