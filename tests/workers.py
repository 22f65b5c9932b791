"""How the tests are spread over worker processes: one by one over all of them, but for those that want the machine to
themselves. These come last, one after the other in one worker.

A real vLLM takes every core. Beside other tests it starves and is starved, and two of them even more.
"""

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS = Path(__file__).resolve().parent
ALONE = ("browser", "engine")
"""Folders of tests that want the machine to themselves."""


def put_last(items: list[pytest.Item]) -> None:
    """Moves, within `items`, the tests that want the machine to themselves behind all others."""
    items.sort(key=lambda item: _is_alone(item.path))


def name_files(config: pytest.Config) -> None:
    """Lets the terminal name the files as without workers: a run that is cut short says where it was."""
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    terminal.showfspath = terminal.verbosity == 0


class AloneAtTheEnd(LoadScopeScheduling):
    """Hands out the tests in their order, and those that want the machine to themselves as one piece at the end.

    No worker has more than three other tests before it then.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        # Else the largest piece would be the first.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return "alone" if _is_alone(TESTS.parent / nodeid.partition("::")[0]) else nodeid


def _is_alone(path: Path) -> bool:
    return any(TESTS / folder in path.parents for folder in ALONE)
