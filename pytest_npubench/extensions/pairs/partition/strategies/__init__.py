"""Strategies by name: one file each in this folder, holding one `STRATEGY`, imported when it is asked for.

    splits = tuple(strategy("weight_centric").splits(matmul, options))

A strategy of one's own is an object with a name, is_baseline and splits: `register(mine)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from pytest_npubench.errors import RegistryError, did_you_mean
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split, check_split
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.strategies.protocol import Strategy

_NOT_STRATEGIES = ("protocol", "parts")

_registered: dict[str, Strategy] = {}


def strategy_names() -> tuple[str, ...]:
    """Every name that `strategy` knows: the shipped ones, then the registered ones."""
    return (*_shipped_names(), *_registered)


def solver_names() -> tuple[str, ...]:
    """Those that a solver chooses from: all that are no baselines."""
    return tuple(name for name in strategy_names() if not strategy(name).is_baseline)


def register(offered: Strategy) -> None:
    """Make a strategy known. Raises RegistryError for a name that is missing or taken and for what has no splits."""
    name = getattr(offered, "name", None)
    if not isinstance(name, str) or not name:
        raise RegistryError(f"a strategy needs a name; {offered!r} has none")
    if name in strategy_names():
        raise RegistryError(f"a strategy named {name!r} already exists; names taken: {', '.join(strategy_names())}")
    if not callable(getattr(offered, "splits", None)) or not isinstance(getattr(offered, "is_baseline", None), bool):
        raise RegistryError(f"strategy {name!r}: want splits(matmul, options) and is_baseline, true or false")
    _registered[name] = offered


def strategy(name: str) -> Strategy:
    """Raises RegistryError for an unknown name, and for a file that does not hold its own."""
    if name in _registered:
        return _registered[name]
    if name not in _shipped_names():
        raise RegistryError(
            f"no strategy {name!r}; known: {', '.join(strategy_names())}{did_you_mean(name, strategy_names())}"
        )
    module = import_module(f"{__name__}.{name}")
    shipped: Strategy | None = getattr(module, "STRATEGY", None)
    if shipped is None or shipped.name != name:
        raise RegistryError(f"strategies/{name}.py does not define STRATEGY of name {name!r}")
    return shipped


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


def _shipped_names() -> tuple[str, ...]:
    return tuple(sorted(info.name for info in iter_modules(__path__) if info.name not in _NOT_STRATEGIES))
