"""What the static unit's owner and process share: words and queues in the arena, doorbells for the slow mechanisms.

Words (int64, a cache line each): GO and DONE count submissions, STATE says whether the process polls, PROGRESS counts
the keys of this submission that are done, FAILED is 1 where one raised, MECHANISM is how DONE is told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

LINE = 8  # int64 words in a cache line
GO, DONE, STATE, PROGRESS, FAILED, MECHANISM, NUM_KEYS = (LINE * line for line in range(7))
ASLEEP, POLLING = 0, 1
MAX_KEYS = 4096
_NUM_WORDS = 7 * LINE


class Channel:
    """The shared words by name of the worker; `make` as the owner, `join` as the process."""

    def __init__(self, arena: SharedArena, name: str, *, make: bool) -> None:
        self._names = tuple(f"{name}.{part}" for part in ("words", "keys", "seconds"))
        if make:
            arena.allocate(self._names[0], (_NUM_WORDS,), np.int64)
            arena.allocate(self._names[1], (MAX_KEYS,), np.int64)
            arena.allocate(self._names[2], (2, MAX_KEYS), np.float64)
        self.words = arena.view(self._names[0]).data  # a memoryview is twice as fast to poll as the array
        self.keys: NDArray[Any] = arena.view(self._names[1])
        self.seconds: NDArray[Any] = arena.view(self._names[2])

    def free(self, arena: SharedArena) -> None:
        for name in self._names:
            if name in arena:
                arena.free(name)
