"""The experiments that run on a pair of units, by name: their settings and the class that measures them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pytest_npubench.errors import RegistryError, did_you_mean
from pytest_npubench.extensions.pairs.offload.units import TechniqueBench

_PLACES = {
    "shadow": ("shadow", "ShadowSettings", "ShadowBench"),
    "chunk_graphs": ("chunk_graphs", "ChunkSettings", "ChunkGraphBench"),
    "replay": ("replay", "ReplaySettings", "ScheduleReplay"),
    "factorial": ("factorial", "FactorialSettings", "FactorialBench"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """settings: their class; bench: (settings, units) -> bench; kernels: the module that the static unit imports."""

    name: str
    settings: type[Any]
    bench: Callable[..., TechniqueBench]
    kernels: str


def experiment(name: str) -> Experiment:
    """Raises RegistryError for an unknown name."""
    if name not in _PLACES:
        raise RegistryError(f"no offload experiment {name!r}; known: {', '.join(_PLACES)}{did_you_mean(name, _PLACES)}")
    module_name, settings, bench = _PLACES[name]
    module = import_module(f"pytest_npubench.extensions.pairs.offload.{module_name}")
    kind = getattr(module, bench)
    return Experiment(name=name, settings=getattr(module, settings), bench=kind, kernels=kind.KERNELS)


def name_of(settings: object) -> str:
    """Which experiment these settings belong to. Raises RegistryError for what belongs to none."""
    names: Mapping[str, str] = {module_and_class[1]: name for name, module_and_class in _PLACES.items()}
    if type(settings).__name__ not in names:
        raise RegistryError(f"{settings!r} are no experiment's settings; want one of {', '.join(names)}")
    return names[type(settings).__name__]
