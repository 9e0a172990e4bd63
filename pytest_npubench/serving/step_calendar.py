"""Who of a batch is due at which step, so that no step walks over all of them."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence

from pytest_npubench.serving.member import BatchMember

NEVER = sys.maxsize


class Calendar:
    """Members by step. Each is entered at most once at a time. `first` is the first step at which somebody stands,
    NEVER where nobody does."""

    __slots__ = ("_at", "_steps", "first")

    def __init__(self) -> None:
        self._at: dict[int, list[BatchMember]] = {}
        self._steps: list[int] = []  # a heap
        self.first = NEVER

    def put(self, step: int, member: BatchMember) -> None:
        if step not in self._at:
            self._at[step] = []
            heapq.heappush(self._steps, step)
            self.first = self._steps[0]
        self._at[step].append(member)

    def take(self, step: int) -> Sequence[BatchMember]:
        """Takes those of that step out of the calendar."""
        taken = self._at.pop(step, ())
        self._look()
        return taken

    def remove(self, step: int, member: BatchMember) -> None:
        self._at[step].remove(member)
        if not self._at[step]:
            del self._at[step]
            self._look()

    def _look(self) -> None:
        while self._steps and self._steps[0] not in self._at:
            heapq.heappop(self._steps)
        self.first = self._steps[0] if self._steps else NEVER
