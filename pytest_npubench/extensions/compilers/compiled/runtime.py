"""The stack that a compiler's results are of. It is told apart from every device's, whatever runs there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.backends.protocol import Backend, Device, Stack, class_of
from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.core.measurement import NOT_RUN
from pytest_npubench.engines.unopened_devices import UnopenedDevices, with_software
from pytest_npubench.extensions.compilers.compiled.compiler import VARIABLES, versions

TITLE = NOT_RUN


class CompilerRuntime(UnopenedDevices):
    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        super().__init__(backend, devices, TITLE)
        self.topology = (devices[0].uuid or "").removeprefix("compiler:").rpartition(":")[0]

    def stack(self) -> Stack:
        bare = class_of(self._devices)
        installed = versions(self._devices[0].family)
        stack = replace(bare, device_class=f"{bare.device_class}, {self.topology}, {TITLE}")
        compiler = ", ".join(f"{name} {version}" for name, version in installed.items() if name != "jax")
        return with_software(stack, f"jax {installed['jax']}", compiler, VARIABLES)

    def telemetry(self) -> None:
        """Nothing is watched: what is counted does not change with what the machine does."""


class PackageRuntime(CompilerRuntime):
    """Of a compiler that comes in one package: Qualcomm's, Intel's."""

    def __init__(self, backend: Backend, devices: Sequence[Device], package: str) -> None:
        super().__init__(backend, devices)
        self._package = package

    def stack(self) -> Stack:
        bare = class_of(self._devices)
        stack = replace(bare, device_class=f"{bare.device_class}, {self.topology}, {TITLE}")
        software = f"{self._package} {installed_version(self._package) or ''}".strip()
        return with_software(stack, software, software, ())
