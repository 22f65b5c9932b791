"""Fixtures of the model-free connector tests: a factory of engines, and the path on which the harness lies."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from harness import Engine

POLICIES = ("off", "rescan", "tracked")


@pytest.fixture
def make_engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Build engines, each with a log of its own; they are closed at the end."""
    engines: list[Engine] = []

    def make(**kwargs: Any) -> Engine:
        engine = Engine(tmp_path / f"engine{len(engines)}", **kwargs)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()
