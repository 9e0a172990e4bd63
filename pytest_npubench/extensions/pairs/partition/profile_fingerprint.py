"""Where a profile was measured: the machine and its libraries, readable without a pair, and the open pair's units."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from pytest_npubench.extensions.pairs.partition.unit import UnitPair

LIBRARIES = ("numpy", "torch", "jax", "jaxlib", "openvino")


def machine_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Returns the processor and the libraries that units run on, without importing or opening any of them."""
    versions = {name: version for name in LIBRARIES if (version := _version(name)) is not None}
    return {"processor": _processor(cpuinfo), "system": platform.system(), **versions}


def pair_facts(pair: UnitPair) -> dict[str, str]:
    """Returns the facts of the machine and of both units."""
    return {**machine_facts(), "gpu": pair.gpu.name, "npu": pair.npu.name}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _processor(cpuinfo: Path) -> str:
    """Returns the model's name, by which /proc/cpuinfo tells more than the platform module does on Linux."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
