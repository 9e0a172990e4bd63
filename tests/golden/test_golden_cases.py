"""Keys, digests and campaigns of all cases of the shipped hardware files are those that baselines know; commands, their
options and their documents are those that people know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import commands, documents
from .cases import RECORD, campaigns

KNOWN = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("choice", KNOWN)
def test_cases_are_those_that_baselines_know(choice: str) -> None:
    found = campaigns(*choice.split())
    assert found.keys() == KNOWN[choice].keys()
    assert found == KNOWN[choice]


def test_commands_are_those_that_people_know() -> None:
    record = json.loads(commands.RECORD.read_text(encoding="utf-8"))
    assert list(commands.commands().items()) == list(record.items())


def test_documents_are_those_that_programs_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert documents.documents(tmp_path / "run") == json.loads(documents.RECORD.read_text(encoding="utf-8"))
