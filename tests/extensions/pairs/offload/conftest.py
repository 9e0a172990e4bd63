from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pytest_npubench.extensions.pairs.offload.units import Units
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

from .in_process import InProcessUnit


@pytest.fixture
def units() -> Iterator[Callable[[str], Units]]:
    """Units whose static one runs in this process, by the name of its kernels."""
    arena = SharedArena()
    yield lambda kernels: Units(arena, InProcessUnit(arena, kernels))
    arena.close()
