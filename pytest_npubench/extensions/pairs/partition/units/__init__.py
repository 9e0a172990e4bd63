"""The pairs of compute units there are. `open_pair(NAME)` starts one; nothing is imported or started before.

host            torch on one core, XLA in a process of its own on another
cuda-host       a CUDA device and the host's XLA process
cuda-streams    two streams of one CUDA device, one with CUDA graphs
cuda-devices    two CUDA devices, one with CUDA graphs
openvino:A,B    two OpenVINO devices by name, the static one first: openvino:NPU,GPU
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from pytest_npubench.errors import ConfigError, RegistryError
from pytest_npubench.extensions.pairs.partition.unit import UnitPair
from pytest_npubench.extensions.pairs.partition.units.cores import two_cores

_CUDA_RUNTIMES = {
    "cuda-host": "pytest_npubench.extensions.pairs.partition.units.host_units",
    "cuda-streams": "pytest_npubench.extensions.pairs.partition.units.cuda_streams",
    "cuda-devices": "pytest_npubench.extensions.pairs.partition.units.cuda_streams",
}
_RUNTIMES = {"host": "pytest_npubench.extensions.pairs.partition.units.host_units", **_CUDA_RUNTIMES}
_OPENVINO = "openvino:"


def pair_names() -> tuple[str, ...]:
    """Returns the names `open_pair` knows; an OpenVINO pair names its devices after the colon."""
    return (*_RUNTIMES, "openvino:NPU,GPU")


def open_pair(
    name: str,
    *,
    standard_sizes: Sequence[int],
    tile: int = 1,
    cores: tuple[int, int] | None = None,
    seed: int = 0,
    timeout_s: float = 120.0,
) -> UnitPair:
    """Start the units of a pair. `cores`: the dynamic unit's and the static unit's; None: the last two there are.

    Raises RegistryError on an unknown name, ConfigError on sizes that do not increase, DeviceUnavailableError where
    this machine cannot have the pair: one core, affinity refused, no CUDA device, not Linux.
    """
    sizes = tuple(int(size) for size in standard_sizes)
    if any(size < 1 for size in sizes) or list(sizes) != sorted(set(sizes)) or tile < 1:
        raise ConfigError(
            f"standard_sizes {sizes}, tile {tile}: want increasing sizes of at least 1 and a tile of at least 1"
        )
    if name.startswith(_OPENVINO):
        openvino = importlib.import_module("pytest_npubench.extensions.pairs.partition.units.openvino")
        pair: UnitPair = openvino.open_openvino_pair(name, standard_sizes=sizes, tile=tile, cores=cores, seed=seed)
        return pair
    if name not in _RUNTIMES:
        raise RegistryError(f"no pair of units {name!r}; there are {', '.join(pair_names())}")
    from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair

    arguments = {"pair": name, "cores": two_cores(cores), "standard_sizes": sizes, "tile": tile, "seed": seed}
    return HostPair(_RUNTIMES[name], arguments, name=name, timeout_s=timeout_s)
