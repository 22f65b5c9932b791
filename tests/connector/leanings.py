"""What the connector's engine ring reads of vLLM's objects: recorded while it runs, and spelled out from its source.

Test support of the contract. The recording knows classes, and sees what runs; the source knows names only, and all of
them. Each sees what the other cannot.
"""

import ast
import importlib
import logging
import queue
import sys
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

SOURCES = Path(__file__).resolve().parents[2] / "connector"
RING = (
    "admission",
    "engine_info",
    "journal",
    "keeper",
    "keeping",
    "kv_connector",
    "layout",
    "observer",
    "ready",
    "restore",
    "scheduler",
    "tier",
    "worker",
    "worker_meta",
)
# Attributes of these are Python's, NumPy's or PyTorch's own.
PLAIN = (
    *(bytes, dict, frozenset, int, list, set, str, tuple, type, Counter, deque, Exception),
    *(logging.Logger, queue.Queue, queue.SimpleQueue, threading.Thread, Path, np.ndarray, torch.Tensor),
)


def resolve(where: str) -> Any:
    """What `module:name` or `module` names."""
    module, _, name = where.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


class Recording:
    """While it is entered, notes each attribute of the given classes that code of the connector reads.

    Attributes:
        names: by class (`module:name`), what was read.
        instances: by class, one object that was read from.
    """

    def __init__(self, classes: Iterable[str]) -> None:
        self._classes = list(classes)
        self.names: defaultdict[str, set[str]] = defaultdict(set)
        self.instances: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for where in self._classes:
            self._watch(where, resolve(where))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for where in self._classes:
            del resolve(where).__getattribute__

    def _watch(self, where: str, cls: type) -> None:
        assert "__getattribute__" not in vars(cls), f"{where} has an attribute protocol of its own"
        inner = cls.__getattribute__
        home = f"{SOURCES}/"

        def getattribute(this: Any, name: str) -> Any:
            value = inner(this, name)
            if sys._getframe(1).f_code.co_filename.startswith(home) and not name.startswith("__"):
                self.names[where].add(name)
                self.instances[where] = this
            return value

        cls.__getattribute__ = getattribute


def foreign_names() -> dict[str, str]:
    """Attributes that the ring's source names and that are neither the connector's own nor Python's, each with a place
    where it stands. A name that the connector has as well cannot be told apart here."""
    own = set().union(*(_defined(_parsed(file.stem)) for file in SOURCES.glob("*.py")))
    plain = set().union(*map(dir, PLAIN))
    found: dict[str, str] = {}
    for module in RING:
        tree = _parsed(module)
        modules = {
            (alias.asname or alias.name).partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and node.attr not in own | plain
                and not (isinstance(node.value, ast.Name) and node.value.id in modules)
            ):
                found.setdefault(node.attr, f"{module}.py:{node.lineno}")
    return found


def _parsed(module: str) -> ast.Module:
    return ast.parse((SOURCES / f"{module}.py").read_text(encoding="utf-8"))


def _defined(tree: ast.Module) -> set[str]:
    """Functions, methods, fields and attributes that a module gives its own objects. A `Protocol` describes vLLM's."""
    names: set[str] = set()
    for node in _walk_own(tree):
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.ImportFrom():
                names.update(alias.asname or alias.name for alias in node.names)
    return names


def _walk_own(node: ast.AST) -> Iterable[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "Protocol" for b in child.bases):
            continue
        yield child
        yield from _walk_own(child)
