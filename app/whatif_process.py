"""The process in which the server has a what-if played: `whatif.play_aside` starts it.

    python -m app.whatif_process LOG POLICIES SIZES ENGINE

SIZES and ENGINE may be empty. Writes the answer as JSON to stdout, or why there is none, with that kind of exit status.
"""

import sqlite3
import sys

from sqlalchemy.exc import SQLAlchemyError

from app.aside import end_with_stdin, yield_to_all
from app.errors import BadQueryError
from app.whatif import IS_LOG, IS_QUERY, parse_policies, parse_sizes, play
from connector import log


def main(db: str, policies: str, sizes: str, engine: str) -> int:
    """Play, and return the exit status."""
    yield_to_all()
    end_with_stdin()
    try:
        reader = log.open_reader(log.resolve_url(db))
        sizes_gib = parse_sizes(sizes) if sizes else None
        found = play(reader.begin, parse_policies(policies), sizes_gib, int(engine) if engine else None)
    except BadQueryError as e:
        sys.stdout.write(str(e))
        return IS_QUERY
    except (log.LogError, SQLAlchemyError, sqlite3.Error) as e:
        sys.stdout.write(str(e))
        return IS_LOG
    sys.stdout.write(found.model_dump_json())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
