"""Keys, digests and campaigns of all cases of the shipped hardware files are those that baselines know."""

from __future__ import annotations

import json

import pytest

from .cases import RECORD, campaigns

KNOWN = json.loads(RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("choice", KNOWN)
def test_cases_are_those_that_baselines_know(choice: str) -> None:
    found = campaigns(*choice.split())
    assert found.keys() == KNOWN[choice].keys()
    assert found == KNOWN[choice]
