"""What the log costs: rows a second when a batch is appended, and the pause that another Python thread feels meanwhile.

    python tests/bench/log_cost.py [--rows 100000] [--batch 10000] [--json]

No timed assertion. The baseline in the same run is SQLAlchemy Core's `insert()`, the same rows into the same tables.
The pause is the lateness of a thread that is busy in Python and is due every millisecond: `idle` is without any writer.
"""

import argparse
import hashlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import Connection

from connector import log, tables
from connector.events import (
    BlocksEvicted,
    BlocksStored,
    ChainExtended,
    CursorMoved,
    Event,
    Lookup,
    RequestFinished,
    RequestStarted,
    StepTaken,
)

TICK_NS = 1_000_000

Append = Callable[[Connection, int, Sequence[log.Stamped]], Any]


def hints_of(kind: type[Any]) -> list[Any]:
    """The types of an event's fields, in their order."""
    hints = get_type_hints(kind)
    return [hints[f.name] for f in fields(kind)]


def example(kind: type[Event], n: int) -> Event:
    """An event of this kind with values of the usual size."""
    tail = hashlib.sha256(n.to_bytes(8, "big")).digest()
    values: dict[Any, Any] = {
        int: n,
        bool: False,
        bytes: tail,
        str: f"chatcmpl-{n:032x}",
        tuple[int, ...]: tuple(range(n, n + 8)),
    }
    return kind(*(next(v for t, v in values.items() if hint in (t, t | None)) for hint in hints_of(kind)))


def items(rows: int) -> list[log.Stamped]:
    """`rows` rows as an engine writes them: mostly copies, some requests, chains of 32 hashes, a row a step."""
    kinds = [BlocksStored, BlocksStored, CursorMoved, BlocksEvicted, RequestStarted, Lookup, RequestFinished]
    made: list[log.Stamped] = []
    n = num_rows = 0
    while num_rows < rows:
        n += 1
        item: Any = example(kinds[n % len(kinds)], n)
        if n % 50 == 0:
            item = ChainExtended(None, 0, tuple(hashlib.sha256(b"%d %d" % (n, i)).digest() for i in range(32)))
            num_rows += 31
        elif n % 10 == 0:
            item = StepTaken(*range(n, n + 12))
        num_rows += 1
        made.append((n, time.monotonic_ns(), time.time_ns(), item))
    return made


def append_with_core(conn: Connection, engine_id: int, batch: Sequence[log.Stamped]) -> None:
    """The same rows by Core's insert objects, a list of dictionaries a statement."""
    rows: defaultdict[type[Any], list[dict[str, Any]]] = defaultdict(list)
    for step, monotonic_ns, wall_ns, item in batch:
        head = {"engine_id": engine_id, "step": step, "monotonic_ns": monotonic_ns, "wall_ns": wall_ns}
        if isinstance(item, ChainExtended):
            parents = (item.parent_hash, *item.hashes)
            rows[ChainExtended] += [
                {"engine_id": engine_id, "hash": h, "parent_hash": parents[i], "depth": item.first_depth + i}
                for i, h in enumerate(item.hashes)
            ]
            continue
        row = head | asdict(item)
        if isinstance(item, Event):
            row["kind"] = item.kind
        if "cpu_block_ids" in row:
            row["cpu_block_ids"] = json.dumps(row["cpu_block_ids"])
        rows[type(item)].append(row)
    for kind, values in rows.items():
        if kind is ChainExtended:
            conn.execute(tables.block_hashes.insert().prefix_with("OR IGNORE"), values)
        else:
            conn.execute((tables.steps if kind is StepTaken else tables.events).insert(), values)


def write(folder: Path, name: str, append: Append, made: Sequence[log.Stamped], batch: int) -> tuple[float, float]:
    """Seconds, by the clock and of this thread's CPU, that appending everything into a fresh log takes, commits
    included."""
    url = log.resolve_url(str(folder / f"{name}.db"))
    log.upgrade(url)
    with log.open_writer(url).connect() as conn:
        started, started_cpu = time.perf_counter(), time.thread_time()
        for at in range(0, len(made), batch):
            with conn.begin():
                append(conn, 1, made[at : at + batch])
        return time.perf_counter() - started, time.thread_time() - started_cpu


def lateness(is_over: Callable[[], bool]) -> list[float]:
    """Be busy in Python until `is_over`, and look every millisecond how late that is noticed, in milliseconds."""
    late: list[float] = []
    due = time.perf_counter_ns() + TICK_NS
    while not is_over():
        now = time.perf_counter_ns()
        if now >= due:
            late.append((now - due) / 1e6)
            due = time.perf_counter_ns() + TICK_NS
    return late


def quantiles(late: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(late, n=100)
    return {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": max(late)}


def measure(folder: Path, name: str, append: Append, made: Sequence[log.Stamped], batch: int) -> dict[str, float]:
    """Cost alone, then the pauses that a busy thread feels during a second run."""
    seconds, cpu_seconds = write(folder, f"{name}-alone", append, made, batch)
    num_rows = sum(len(i[3].hashes) if isinstance(i[3], ChainExtended) else 1 for i in made)
    writer = threading.Thread(target=write, args=(folder, f"{name}-beside", append, made, batch))
    writer.start()
    late = lateness(lambda: not writer.is_alive())
    writer.join()
    return {"rows_per_s": num_rows / seconds, "cpu_us_per_row": cpu_seconds / num_rows * 1e6, **quantiles(late)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What the log costs.")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=10_000, help="items a transaction; the recorder's most is 10,000")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    made = items(options.rows)
    over = time.perf_counter() + 2.0
    results: dict[str, dict[str, float]] = {"idle": quantiles(lateness(lambda: time.perf_counter() > over))}
    with tempfile.TemporaryDirectory() as folder:
        results["append"] = measure(Path(folder), "append", log.append, made, options.batch)
        results["core insert()"] = measure(Path(folder), "core", append_with_core, made, options.batch)
    if options.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{options.rows} rows, {options.batch} items a transaction")
    print(f"{'':14}{'rows/s':>10}{'CPU us/row':>12}{'pause p50':>12}{'p99':>9}{'max':>9}  ms")
    for name, r in results.items():
        cost = f"{r['rows_per_s']:10.0f}{r['cpu_us_per_row']:12.2f}" if "rows_per_s" in r else " " * 22
        print(f"{name:14}{cost}{r['p50_ms']:12.3f}{r['p99_ms']:9.3f}{r['max_ms']:9.3f}")


if __name__ == "__main__":
    main()
