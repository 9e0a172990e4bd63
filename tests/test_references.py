"""Files, modules and classes that pages and docstrings name are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "pytest_npubench"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = "|".join(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))
FILE = re.compile(r"(?<![\w./:-])[\w/]+\.py\b(?!\.)")
MODULE = re.compile(
    rf"(?<![\w./@-])(?:pytest_npubench\.)?(?:{FOLDERS})(?!\.(?:md|txt)\b)(?:\.[A-Za-z_]\w*)+(?![\w/(-])"
)
CLASS = re.compile(r"(?<!\w)`(?:[\w.]+\.)?((?:[A-Z][a-z0-9]+){2,})(?:\([^`]*\))?`")
OTHERS = re.compile(r"NAME|KIND|FAMILY|words\.py|serving\.(?:profile|step_costs)|GpuDeviceInfoProto")
"""Names that a reader replaces, the tutorial's files, tables of hardware files, a message of XLA."""
VENDORS = ("maxtext/interface.py", "nxd/interface.py")  # their docstrings name files of the vendors' repositories


@cache
def files() -> str:
    """The Python files of the checkout, each between a slash and a line end."""
    folders = ("benchmarks", "docs", "pytest_npubench", "suites", "tests")
    paths = [*ROOT.glob("*.py"), *(path for folder in folders for path in (ROOT / folder).rglob("*.py"))]
    return "".join(f"/{path.relative_to(ROOT)}\n" for path in paths)


@cache
def names() -> frozenset[str]:
    """What the package's code defines, imports or uses under a name."""
    nodes = (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    named = (getattr(node, field, None) for node in nodes for field in ("name", "id", "attr", "asname"))
    return frozenset(name for name in named if isinstance(name, str))


def missing(text: str) -> Iterator[str]:
    for file in FILE.findall(text):
        if f"/{file}\n" not in files() and not OTHERS.search(file):
            yield file
    for module in MODULE.findall(text):
        if not _is_there(module.removeprefix("pytest_npubench.").split(".")) and not OTHERS.search(module):
            yield module
    yield from (name for name in CLASS.findall(text) if name not in names() and not OTHERS.search(name))


def _is_there(parts: list[str]) -> bool:
    """A module, or one with a name that its text has behind it."""
    for depth in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:depth])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            return all(re.search(rf"\b{name}\b", text) for name in parts[depth:])
    return False


def docstrings(path: Path) -> Iterator[str]:
    if str(path).endswith(VENDORS):
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert not list(missing(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_a_page_names_is_there(page: Path) -> None:
    for name, test in set(re.findall(r"(test_\w+\.py)::(test_\w+)", page.read_text(encoding="utf-8"))):
        paths = list((ROOT / "tests").rglob(name))
        assert any(f"def {test}(" in path.read_text(encoding="utf-8") for path in paths), f"{name}::{test}"


def test_what_docstrings_name_is_there() -> None:
    stale = {str(path.relative_to(ROOT)): [*missing("\n".join(docstrings(path)))] for path in SOURCES}
    assert not {path: words for path, words in stale.items() if words}


@pytest.mark.parametrize(
    "stale",
    [
        "see serving/layer_groups.py",
        "one KIND (campaign.kind.CaseKind)",
        "`core.buckets.Missing`",
        "a `MissingPlan(name)`",
    ],
)
def test_what_is_not_there_is_missed(stale: str) -> None:
    assert [*missing(stale)]
