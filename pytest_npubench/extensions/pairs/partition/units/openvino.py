"""Pairs of two OpenVINO devices by name: "openvino:NPU,GPU" has its static unit on the NPU, its dynamic one on the GPU.

Any two devices will do ("openvino:NPU,GPU.1", "openvino:GPU.0,CPU"). "openvino:CPU,CPU" is for tests and for machines
without another device: one processor thread for each unit.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

from pytest_npubench.errors import ConfigError, DeviceUnavailableError, RegistryError
from pytest_npubench.extensions.pairs.partition.unit import UnitPair

FAMILY = "openvino"
PAIRS = ("openvino:NPU,GPU", "openvino:NPU,CPU", "openvino:GPU,CPU", "openvino:CPU,CPU")
KINDS = ("NPU", "GPU", "CPU")


def open_openvino_pair(
    name: str,
    *,
    standard_sizes: Sequence[int],
    tile: int = 1,
    cores: tuple[int, int] | None = None,
    seed: int = 0,
) -> UnitPair:
    """Returns the pair "openvino:STATIC,DYNAMIC". tile and standard_sizes are those of the static unit.

    Raises RegistryError for a name that is none, ConfigError where cores are asked for (OpenVINO's threads cannot be
    put on cores of our choice), DeviceUnavailableError where openvino or a device is missing, or one processor would
    have to be two units.
    """
    npu, gpu = device_names(name)
    if cores is not None:
        raise ConfigError(f"{name}: cores {cores}: OpenVINO chooses its threads' cores itself; leave them out")
    if not find_spec("openvino"):
        raise DeviceUnavailableError(f"{name}: openvino is not installed: pip install pytest-npubench[openvino]")
    if (npu, gpu) == ("CPU", "CPU") and len(os.sched_getaffinity(0)) < 2:
        raise DeviceUnavailableError(f"{name}: two units need two processors; this process may use one")
    from pytest_npubench.extensions.pairs.partition.units.openvino_pair import OpenVinoPair

    return OpenVinoPair(npu, gpu, standard_sizes=tuple(standard_sizes), tile=tile, seed=seed)


def device_names(name: str) -> tuple[str, str]:
    """Returns the static and the dynamic unit's device. Raises RegistryError saying what is allowed."""
    family, _, devices = name.partition(":")
    names = devices.split(",")
    if family != FAMILY or len(names) != 2 or not all(map(_is_device, names)):
        raise RegistryError(
            f"no pair {name!r}: want openvino:STATIC,DYNAMIC with two of {', '.join(KINDS)}, or one with its number: "
            f"GPU.1; such as {', '.join(PAIRS)}"
        )
    return names[0], names[1]


def _is_device(name: str) -> bool:
    kind, dot, number = name.partition(".")
    return kind in KINDS and (number.isdecimal() if dot else True)
