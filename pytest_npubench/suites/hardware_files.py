"""Hardware files with the sections of the suites that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_npubench import suites
from pytest_npubench.core import families, hardware_reader
from pytest_npubench.core.hardware import HardwareSpec


def known_folders() -> list[Path]:
    """The folder of the shipped hardware files, then those of other distributions' device families."""
    offered = [family.hardware for family in families.all_families() if family.hardware is not None]
    return [hardware_reader.default_directory(), *offered]


def load_hardware(path: Path) -> HardwareSpec:
    """hardware_reader.load_hardware for all suites. Raises HardwareFileError, RegistryError."""
    return hardware_reader.load_hardware(path, suites.sections())


def load_all(directories: Sequence[Path], *, deferred: bool = False) -> dict[str, HardwareSpec]:
    """hardware_reader.load_all likewise. `deferred`: a suite's sections are read, and checked, when that suite asks."""
    return hardware_reader.load_all(directories, suites.sections(deferred=deferred))
