"""What a strategy is: a name, and the splits of an operator that it would consider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions


class Strategy(Protocol):
    """One file of this folder, as `STRATEGY`, or a user's own."""

    @property
    def name(self) -> str: ...

    @property
    def is_baseline(self) -> bool:
        """True: only shown beside, never chosen by the solver unless it is asked to (HeteroInfer, Fig. 14)."""
        ...

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterable[Split]:
        """Each passes matmul.check_split and carries this name. None where the strategy has nothing to say."""
        ...
