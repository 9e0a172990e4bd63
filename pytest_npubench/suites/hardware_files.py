"""Hardware files with the sections of the suites that there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_npubench import hardware, suites
from pytest_npubench.hardware import HardwareSpec


def load_hardware(path: Path) -> HardwareSpec:
    """hardware.load_hardware for all suites. Raises HardwareFileError, RegistryError."""
    return hardware.load_hardware(path, suites.sections())


def load_all(directories: Sequence[Path]) -> dict[str, HardwareSpec]:
    """hardware.load_all likewise."""
    return hardware.load_all(directories, suites.sections())
