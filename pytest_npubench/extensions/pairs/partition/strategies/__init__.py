"""Strategies by name: one file each in this folder, holding one `STRATEGY`, imported when it is asked for.

    splits = tuple(strategy("weight_centric").splits(matmul, options))

A strategy of another distribution is an object with a name, is_baseline and splits: an entry point of the group
`pytest_npubench.strategies`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from pytest_npubench.core.registry import Registry
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split, check_split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions


class Strategy(Protocol):
    """A name, and the splits of an operator that it would consider."""

    @property
    def name(self) -> str: ...

    @property
    def is_baseline(self) -> bool:
        """True: only shown beside, never chosen by the solver unless it is asked to (HeteroInfer, Fig. 14)."""
        ...

    def splits(self, matmul: Matmul, options: SplitOptions) -> Iterable[Split]:
        """Each passes matmul.check_split and carries this name. None where the strategy has nothing to say."""
        ...


STRATEGIES: Registry[Strategy] = Registry(
    what="strategy",
    group="pytest_npubench.strategies",
    package=__name__,
    attribute="STRATEGY",
    fits=lambda thing, name: _is_strategy(thing) and thing.name == name,
    want="strategy of that name, with splits(matmul, options) and is_baseline, true or false",
    helpers=("parts",),
)
strategy_names, strategy = STRATEGIES.names, STRATEGIES.get


def solver_names() -> tuple[str, ...]:
    """Those that a solver chooses from: all that are no baselines."""
    return tuple(name for name in strategy_names() if not strategy(name).is_baseline)


def all_splits(matmul: Matmul, options: SplitOptions, strategies: Sequence[str] | None = None) -> tuple[Split, ...]:
    """Of the strategies named (None: those that a solver chooses from), in their order, each checked.

    Raises RegistryError for an unknown name, PartitionError where a strategy makes a split that does not fit.
    """
    splits = [
        split
        for name in (solver_names() if strategies is None else strategies)
        for split in strategy(name).splits(matmul, options)
    ]
    for split in splits:
        check_split(matmul, split)
    return tuple(splits)


def _is_strategy(thing: Any) -> bool:
    return callable(getattr(thing, "splits", None)) and isinstance(getattr(thing, "is_baseline", None), bool)
