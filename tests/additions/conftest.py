"""Distributions of other people on this process's own path, for as long as a test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_npubench import suites
from pytest_npubench.core import entry_points

OnPath = Callable[[Path], None]


def _forget() -> None:
    """What was found on the path, and what was imported from it."""
    entry_points._by_group.cache_clear()
    suites.registered.cache_clear()
    for name in [name for name in sys.modules if name.startswith("npubench_") and name != "npubench_suites"]:
        del sys.modules[name]


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnPath]:
    """Puts a folder in front of the path."""

    def put(folder: Path) -> None:
        monkeypatch.syspath_prepend(folder)
        _forget()

    yield put
    monkeypatch.undo()
    _forget()
