"""`python3.11 -m app.bootstrap COMMAND [ARGUMENTS]`: set up what a command needs, then run it."""

import sys

# Before anything that an older Python could not even read; in words that the oldest can.
if sys.version_info[:2] != (3, 11):
    found = sys.executable + " is " + sys.version.split()[0]
    sys.exit("vllm-restore needs Python 3.11: " + found + ". Install python3.11, or name one: make PYTHON=/path/to/it")

from app.bootstrap.commands import main

sys.exit(main(sys.argv[1:]))
