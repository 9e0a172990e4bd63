"""When the tokens of a request came, 8 bytes each: a run has millions, and tuples of floats take four times as much."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Times: TypeAlias = "array[float] | memoryview"


class StoredTimes(Sequence[float]):
    """Seconds, as a tuple of them: equal to one, and hashed as one. numpy.asarray copies nothing. is_ordered: they are
    known to be finite and none before the one ahead of it. Requests may share what `stored` is a view of."""

    __slots__ = ("is_ordered", "stored")

    def __init__(self, times_s: Times, is_ordered: bool = False) -> None:
        self.stored = times_s
        self.is_ordered = is_ordered

    def __len__(self) -> int:
        return len(self.stored)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[float, ...]: ...
    def __getitem__(self, index: int | slice) -> float | tuple[float, ...]:
        return tuple(self.stored[index]) if isinstance(index, slice) else self.stored[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self.stored)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, tuple | StoredTimes) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (array("d", self.stored), self.is_ordered)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        times_s = np.frombuffer(self.stored) if self else np.empty(0)
        return times_s.astype(dtype or times_s.dtype, copy=bool(copy))


def _restored(times_s: array[float], is_ordered: bool) -> StoredTimes:
    return StoredTimes(times_s, is_ordered=is_ordered)
