"""The stack that results of a compiler are of which comes in one package: Qualcomm's, Intel's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata

from pytest_npubench.backends.protocol import Backend, Device, Stack, class_of
from pytest_npubench.engines.unopened_devices import with_software
from pytest_npubench.extensions.compilers.compiled.runtime import TITLE, CompilerRuntime


class PackageRuntime(CompilerRuntime):
    def __init__(self, backend: Backend, devices: Sequence[Device], package: str) -> None:
        super().__init__(backend, devices)
        self._package = package

    def stack(self) -> Stack:
        bare = class_of(self._devices)
        stack = replace(bare, device_class=f"{bare.device_class}, {self.topology}, {TITLE}")
        software = f"{self._package} {_version(self._package)}".strip()
        return with_software(stack, software, software, ())


def _version(package: str) -> str:
    """ "" where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
