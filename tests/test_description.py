"""What PyPI shows of the project: no link of it leads to a file that PyPI does not have."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REPOSITORY = "https://example.org/group/npubench"
description = runpy.run_path(str(ROOT / "hatch_build.py"))["description"]


def _targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)]+)\)", text)


@pytest.mark.parametrize("repository", [None, REPOSITORY])
def test_every_link_is_absolute_or_within_the_page(repository: str | None) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = _targets(description(readme, repository))
    assert [target for target in shown if not target.startswith(("https://", "#"))] == []
    assert [target for target in _targets(readme) if target.startswith("#")] == [
        target for target in shown if target.startswith("#")
    ]
    if repository is not None:  # every file that the README links is there, and linked
        linked = [target.removeprefix(f"{REPOSITORY}/") for target in shown if target.startswith(REPOSITORY)]
        assert len(linked) == len([one for one in _targets(readme) if not one.startswith(("http", "#"))]) > 20
        for target in linked:
            view, branch, path = target.split("/", 2)
            assert (view, branch) == ("raw" if path.endswith(".svg") else "blob", "main")
            assert (ROOT / path.partition("#")[0]).exists()


def test_the_words_of_a_link_stay() -> None:
    text = (
        "See [docs/lens.md](docs/lens.md#rivals) and [a paper](https://arxiv.org).\n\n![A picture](docs/x.svg)\n\nEnd"
    )
    assert description(text, None) == "See docs/lens.md and [a paper](https://arxiv.org).\n\nEnd"
