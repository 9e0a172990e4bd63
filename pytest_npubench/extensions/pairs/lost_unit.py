"""A compute unit that is gone stays gone: what is asked of it later fails with the words it left, not with "closed"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_npubench.errors import UnitLostError


class LastWords:
    """Remembers how a unit was lost, for all points of its campaign."""

    def __init__(self) -> None:
        self._words: str | None = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Wraps every use of the pair. Raises UnitLostError at once where a unit was lost before."""
        if self._words is not None:
            raise UnitLostError(self._words)
        try:
            yield
        except UnitLostError as error:
            self._words = str(error)
            raise
