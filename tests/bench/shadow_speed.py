"""What it costs to follow a log with shadows, next to what it costs only to read it.

    python tests/bench/shadow_speed.py LOG [--json]     (a log as tests/bench/big_log.py writes it)

CPU seconds of this process, and each as a ratio to `rows alone`: reading the same rows and doing nothing with them.
`no shadow` also finds the chains of hashes; `adaptive` is one shadow of that; `13 shadows` are those that the dashboard
follows.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sqlalchemy import Connection

from app.queries.traffic import TierShape, newest_engine, read_rows, read_shape
from app.shadow_feed import ACTIVE, ShadowFeed
from app.shadows import ADAPTIVE, usual_shadows
from connector import log
from connector.shadow import ShadowTier

CHUNK = 2_000


def read_only(conn: Connection, shape: TierShape) -> int:
    """Read all rows that a feed reads. Returns how many there are."""
    after = count = 0
    while rows := read_rows(conn, shape.engine_id, after, CHUNK):
        after, count = rows[-1].seq, count + len(rows)
    return count


def follow(conn: Connection, shape: TierShape, shadows: dict[str, ShadowTier]) -> ShadowFeed:
    """Follow the whole log."""
    feed = ShadowFeed(shape, shadows)
    while feed.take(conn, CHUNK) == CHUNK:
        pass
    return feed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    with log.open_reader(log.resolve_url(str(args.log))).begin() as conn:
        engine_id = newest_engine(conn)
        shape = read_shape(conn, engine_id) if engine_id is not None else None
        if shape is None:
            sys.exit("this log has no engine")
        num_events = conn.exec_driver_sql("SELECT count(*) FROM events").scalar_one()
        usual = usual_shadows(shape)
        for name, shadows in (
            ("rows alone", None),
            ("no shadow", {}),
            ("1 shadow", {ACTIVE: usual[ACTIVE]}),
            ("adaptive", {ADAPTIVE: usual[ADAPTIVE]}),
            ("13 shadows", usual_shadows(shape)),
        ):
            begun = time.process_time()
            if shadows is None:
                read_only(conn, shape)
            else:
                follow(conn, shape, shadows)
            seconds = time.process_time() - begun
            found.append(
                {"what": name, "seconds": seconds, "ratio": seconds / (found[0]["seconds"] if found else seconds)}
            )
    if args.json:
        print(json.dumps({"num_events": num_events, "rows": found}, indent=2))
        return
    print(f"{num_events:,} events; CPU seconds")
    for row in found:
        print(f"{row['what']:>12} {row['seconds']:>8.2f} {row['ratio']:>7.1f}")


if __name__ == "__main__":
    main()
