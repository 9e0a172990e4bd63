"""The stack that results of Qualcomm's compiler are of."""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.backends.protocol import Stack, class_of
from pytest_npubench.engines.compiled.runtime import TITLE, CompilerRuntime
from pytest_npubench.engines.qnn.compiler import PACKAGE, version
from pytest_npubench.engines.unopened_devices import with_software


class HtpRuntime(CompilerRuntime):
    def stack(self) -> Stack:
        bare = class_of(self._devices)
        stack = replace(bare, device_class=f"{bare.device_class}, {self.topology}, {TITLE}")
        return with_software(stack, f"{PACKAGE} {version()}", f"{PACKAGE} {version()}", ())
