"""The code that README and docs show does what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "docs/own-cases.md")


def _blocks(document: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_own_case_of_the_document_passes(document: str, tmp_path: Path) -> None:
    (own,) = (block for block in _blocks(document) if "npubench(" in block)
    (tmp_path / "test_own.py").write_text(own, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cpu", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    command.append("--npubench-other-load=1")
    done = subprocess.run([*command, "test_own.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "verdicts: 1 no-baseline" in done.stdout


def test_the_library_example_gives_the_number_beside_it() -> None:
    (example,) = (block for block in _blocks("README.md") if "LensPredictor" in block)
    source, _, comment = example.rstrip().rpartition("#")
    *statements, expression = source.strip().splitlines()
    scope: dict[str, object] = {}
    exec("\n".join(statements), scope)
    assert eval(expression, scope) == pytest.approx(float(comment.split(":")[0]))


@pytest.mark.parametrize(
    "document",
    ["README.md", "CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))],
)
def test_links_between_documents_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert ((ROOT / document).parent / target).exists(), target


def test_every_engine_stands_where_engines_are_listed() -> None:
    """The option's help, the table of engines, and how each that is no reference is asked for."""
    from pytest_npubench import engines
    from pytest_npubench.plugin.options import OPTIONS

    (option,) = [option for option in OPTIONS if option.name == "engine"]
    adapters = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)`.*\| `(?:engines|extensions)/", adapters, re.MULTILINE)) == set(engines.ours())
    assert [name for name in engines.ours() if name not in option.help] == []
