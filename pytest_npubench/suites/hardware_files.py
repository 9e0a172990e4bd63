"""Hardware files with the sections of the suites that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_npubench import suites
from pytest_npubench.core import families, hardware_reader
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.run_folders import RunFolders


def known_folders() -> list[Path]:
    """Returns the folder of the shipped hardware files, then those of other distributions' device families."""
    offered = [family.hardware for family in families.all_families() if family.hardware is not None]
    return [hardware_reader.default_directory(), *offered]


def folders_of_runs() -> list[Path]:
    """The same, and the folder that settings of runs here name, once it holds a file. Raises ConfigError."""
    further = RunFolders.here().hardware
    return [*known_folders(), *([further] if further and any(further.glob("*.toml")) else [])]


def load_hardware(path: Path) -> HardwareSpec:
    """hardware_reader.load_hardware for all suites. Raises HardwareFileError, RegistryError."""
    return hardware_reader.load_hardware(path, suites.sections())


def load_all(directories: Sequence[Path], *, deferred: bool = False) -> dict[str, HardwareSpec]:
    """hardware_reader.load_all likewise. `deferred`: a suite's sections are read, and checked, when that suite asks."""
    return hardware_reader.load_all(directories, suites.sections(deferred=deferred))
