"""What `mkdocs build` does beyond docs/*.md: README, CONTRIBUTING and CHANGELOG become pages, and the reference is
written from the code (docs/reference.py). Nothing that is made here is committed.
"""

from __future__ import annotations

import re
import runpy
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
MERMAID = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {name: (ROOT / source).read_text(encoding="utf-8") for source, name in PAGES.items()}
    for name, text in {**pages, **runpy.run_path(str(ROOT / "docs" / "reference.py"))["pages"]()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links of the repository as links of the site: docs/ is its root, and what lies above are the PAGES."""
    if page.file.src_uri in PAGES.values():
        markdown = re.sub(
            r"\[docs/([\w/-]+)\.md\]", lambda found: f"[{Path(found[1]).name.replace('-', ' ')}]", markdown
        )
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    up = "../" * page.file.src_uri.count("/")
    for source, name in PAGES.items():
        markdown = re.sub(rf"\]\((?:\.\./)*{re.escape(source)}(?=[)#])", f"]({up}{name}", markdown)
    return f"{MERMAID.sub(_arrows, markdown)}\n\n{_abbreviations()}"


def _arrows(graph: re.Match[str]) -> str:
    """A graph as a table: drawing it in the browser would fetch a library from elsewhere."""
    targets: dict[str, list[str]] = {}
    for source, target in re.findall(r"(\w+) --> (\w+)", graph[1]):
        targets.setdefault(source, []).append(f"`{target}`")
    rows = [f"| `{source}` | {', '.join(others)} |" for source, others in targets.items()]
    return "\n".join(["| from | arrows to |", "| --- | --- |", *rows])


@cache
def _abbreviations() -> str:
    """The README's words in capitals, which the site explains wherever the pointer rests on one."""
    words = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Words\n")[2].partition("\n## ")[0]
    lines = []
    for names, meanings in re.findall(r"^\| ([^|]+) \| (.+) \|$", words, re.MULTILINE):
        for name, meaning in zip(names.split(", "), meanings.split("; "), strict=False):
            if name.isupper():
                plain = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", meaning)
                lines.append(f"*[{name}]: {plain}")
    return "\n".join(lines)
