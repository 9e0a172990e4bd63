"""One pair a module: opening it starts two processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from extensions.pairs.partition.units.processes import opened
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair


@pytest.fixture(scope="module")
def pair() -> Iterator[HostPair]:
    found = opened()
    yield found
    found.close()
