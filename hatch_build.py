"""The description that PyPI shows: the README with links that lead somewhere there.

PyPI has none of the repository's files, so a link to one is dead. With a `Repository` in [project.urls] these links
become its pages. Without one, as long as the project has no public place, their words stay and the picture goes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

IMAGE = re.compile(r"^!\[([^\]]*)\]\((?!https?:)([^)]+)\)\n\n?", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#)([^)]+)\)")


class Description(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {"content-type": "text/markdown", "text": description(text, repository)}


def description(text: str, repository: str | None) -> str:
    if repository is None:
        return LINK.sub(r"\1", IMAGE.sub("", text))
    text = IMAGE.sub(rf"![\1]({repository}/raw/main/\2)\n\n", text)
    return LINK.sub(rf"[\1]({repository}/blob/main/\2)", text)
