"""A split made ready to run: what the dynamic unit calls and which keys the static unit is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """gpu_runs: one call a part. keys: the static unit's graphs in order. online: key and spec of those
    to compile in each run."""

    gpu_runs: tuple[Callable[[], object], ...] = ()
    keys: tuple[str, ...] = ()
    online: tuple[tuple[str, Mapping[str, object]], ...] = ()

    def with_(self, other: Prepared) -> Prepared:
        """Both at once: operators that read the same activation need no waiting between them."""
        return Prepared(
            gpu_runs=self.gpu_runs + other.gpu_runs, keys=self.keys + other.keys, online=self.online + other.online
        )
