"""`python -m app.openapi` prints the schema of the API, from which `web/` generates its types. Opens no log."""

import json
import sys

from app.main import create_app, restore_app_of
from app.settings import Settings
from app.terminal import until_nobody_reads


def main() -> int:
    """Print the schema as JSON."""
    schema = restore_app_of(create_app(Settings())).openapi()
    json.dump(schema, sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(until_nobody_reads(main))
