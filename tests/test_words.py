"""A name says what it stands for. Words that say nothing name no more than a comprehension's short variable."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest_npubench

EMPTY = {"found", "one", "own", "place", "told", "held", "known", "those"}
PACKAGE = Path(pytest_npubench.__file__).parent
SHORT_LIVED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def bound(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the name of every binding in a tree; variables of comprehensions are left out."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield child.lineno, name
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield child.lineno, name
            case ast.ClassDef(name=name) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield child.lineno, name
        if not isinstance(node, SHORT_LIVED) or not isinstance(child, ast.comprehension):
            yield from bound(child)


def test_a_binding_is_seen_wherever_it_stands() -> None:
    source = "def own(told, *, known: int = 1):\n  for one in [found for found in told]:\n    self._held = place = one"
    assert sorted(name for _, name in bound(ast.parse(source))) == ["_held", "known", "one", "own", "place", "told"]


def test_no_name_is_empty() -> None:
    empty = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in bound(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in EMPTY
    ]
    assert not empty
