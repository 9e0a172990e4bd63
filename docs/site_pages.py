"""What `mkdocs build` does beyond docs/*.md: README, CONTRIBUTING and CHANGELOG become pages, and the reference is
written from the code (docs/reference.py). Nothing that is made here is committed.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
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
    return markdown
