"""Draws which folder of the package imports which, as the Mermaid picture of docs/architecture.md.

`python docs/house.py` writes it anew, `--check` says whether it is true (exit status 1 where it is not). Imports of
type checkers count too. An arrow that follows from others is left out: a -> c where a -> b -> c.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pytest_npubench"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- house: begin -->", "<!-- house: end -->"
Graph = Mapping[str, frozenset[str]]


def imports() -> Graph:
    """By folder, or module of the root, which others its files import."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if place != "__init__":
            found.setdefault(place, set()).update(_imported(path))
    return {place: frozenset(others & found.keys() - {place}) for place, others in found.items()}


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            package, *rest = node.module.split(".")
            if package == PACKAGE.name:
                yield from rest[:1] or (name.name for name in node.names)


def reduced(graph: Graph) -> Graph:
    """Without the arrows that follow from others. Raises CycleError naming a circle."""
    order = tuple(TopologicalSorter(graph).static_order())  # what is imported comes first
    below: dict[str, frozenset[str]] = {}
    for place in order:
        below[place] = graph[place].union(*(below[other] for other in graph[place]))
    return {
        place: frozenset(one for one in others if not any(one in below[other] for other in others))
        for place, others in graph.items()
    }


def picture(graph: Graph) -> str:
    lines = [f"    {place} --> {other}" for place in sorted(graph) for other in sorted(graph[place])]
    return "\n".join(("```mermaid", "graph TD", *lines, "```"))


def page_with(drawn: str) -> str:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{drawn}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; say whether the picture is true")
    arguments = parser.parse_args()
    try:
        page = page_with(picture(reduced(imports())))
    except CycleError as error:
        sys.stderr.write(f"the folders import each other in a circle: {' -> '.join(error.args[1])}\n")
        return 1
    if not arguments.check:
        PAGE.write_text(page, encoding="utf-8")
    elif page != PAGE.read_text(encoding="utf-8"):
        sys.stderr.write("docs/architecture.md: the picture is not that of the code; python docs/house.py draws it\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
