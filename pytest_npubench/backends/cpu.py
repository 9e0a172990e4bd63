"""The host's processors: a real device. Decoders run on it through XLA, with one binary per shape like on any other, or
in torch; a user's own callable may use either or neither."""

from __future__ import annotations

import dataclasses
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of

if TYPE_CHECKING:
    from pytest_npubench.backends.telemetry.state import Telemetry
    from pytest_npubench.core.measurement import CompileRecord

THREADS = Path("/proc/self/task")
FRAMEWORKS = ("jax", "numba", "onnxruntime", "openvino", "tensorflow", "torch")
"""The modules that may run a callable of a user's own, beside Python and numpy."""
WORKER = "XLAEigen"  # in the names of the threads that compute, as jaxlib 0.10 gives them


class CpuBackend:
    """One device: the processors that this process may use."""

    family = "cpu"

    def probe(self, timeout_s: float) -> Probe:
        """The host is always there, so no process is needed."""
        return Probe(devices=(Device(family=self.family, ordinal=0, name=processor_name()),))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime
        from pytest_npubench.backends.telemetry.cpu import CpuTelemetry

        class HostJaxRuntime(JaxRuntime):
            def __init__(self, family: str, devices: Sequence[Device], cache_dir: str | None) -> None:
                super().__init__(family, devices, cache_dir)
                self._num_pinned = pin_workers()

            def stack(self) -> Stack:
                stack = _with_facts(super().stack())
                if not self._num_pinned:
                    return stack
                return dataclasses.replace(stack, runtime=f"{stack.runtime}, {self._num_pinned} worker threads pinned")

            def telemetry(self) -> Telemetry:
                return CpuTelemetry()

        return HostJaxRuntime(self.family, devices, cache_dir)

    def open_torch(self, devices: Sequence[Device]) -> Runtime:
        from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
        from pytest_npubench.backends.torch_runtime import TorchRuntime

        class HostTorchRuntime(TorchRuntime):
            def stack(self) -> Stack:
                return _with_facts(super().stack())

            def telemetry(self) -> Telemetry:
                return CpuTelemetry()

        return HostTorchRuntime(self.family, devices)

    def open_callables(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """For callables of a user's own, which need no jax."""
        return CallableRuntime(self, devices, cache_dir)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry:
        from pytest_npubench.backends.telemetry.cpu import CpuTelemetry

        return CpuTelemetry()

    def bare_stack(self, devices: Sequence[Device]) -> Stack:
        return _with_facts(class_of(devices))


class CallableRuntime:
    """The host for callables of any kind. Once the process has imported jax its arrays are waited for, and its compiles
    are counted; nothing here imports it."""

    def __init__(self, backend: CpuBackend, devices: Sequence[Device], cache_dir: str | None) -> None:
        self.compiles: list[CompileRecord] = []
        self._backend, self._devices, self._cache_dir = backend, devices, cache_dir
        self._opened: Runtime | None = None

    @property
    def devices(self) -> Sequence[Device]:
        return self._devices

    @property
    def num_process_compiles(self) -> int:
        opened = self._jax()
        return 0 if opened is None else opened.num_process_compiles

    def compile(self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
        return self._backend.open(self._devices, self._cache_dir).compile(name, function, *arguments, **options)

    def synchronize(self, value: Any) -> None:
        """Without jax a value is there when it is returned."""
        if (opened := self._opened or self._jax()) is not None:
            opened.synchronize(value)

    def stack(self) -> Stack:
        """The runtime's part names the frameworks that the process has imported, and numpy, which this plugin needs."""
        opened = self._jax()
        stack = self._backend.bare_stack(self._devices) if opened is None else opened.stack()
        others = [f"{name} {_version(name)}".rstrip() for name in imported_frameworks() if name != "jax"]
        named = (f"numpy {metadata.version('numpy')}", *others, stack.runtime)
        return dataclasses.replace(stack, runtime=", ".join(filter(None, named)))

    def close(self) -> None:
        """Other processes may use the host too."""

    def telemetry(self) -> Telemetry:
        return self._backend.telemetry(self._devices)

    def _jax(self) -> Runtime | None:
        if self._opened is None and "jax" in imported_frameworks():
            self._opened = self._backend.open(self._devices, self._cache_dir)
        return self._opened


def imported_frameworks() -> tuple[str, ...]:
    """Those that this process has imported."""
    return tuple(name for name in FRAMEWORKS if sys.modules.get(name) is not None)


def _version(module: str) -> str:
    return str(getattr(sys.modules[module], "__version__", ""))


def _with_facts(stack: Stack) -> Stack:
    """Adds the cores to the device's class: two cores of a processor are another device than all of it."""
    from pytest_npubench.backends.telemetry.cpu import clock_policy, microcode, share_of_machine

    revision = microcode()
    return dataclasses.replace(
        stack,
        device_class=f"{stack.device_class}, {share_of_machine()}",
        firmware=None if revision is None else f"microcode {revision}",
        clock_policy=clock_policy(),
    )


def processor_name() -> str:
    """Returns the model name the kernel gives, else the architecture."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


BACKEND = CpuBackend()


def pin_workers() -> int:
    """Gives each of XLA's worker threads a core, and returns how many have one: 0 on one core or without /proc.

    A Linux kernel wakes a thread beside the one that woke it. After some 100 ms of decode steps, which one thread
    computes, or after a pause, XLA's workers so share one core with their caller for tens of milliseconds while the
    others are idle: on two cores a prefill of 1,024 tokens takes half as long again, and up to twice. Where workers
    have cores of their own, a prefill takes much the same whatever ran before it.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return 0
    pinned = 0
    for thread in _workers():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, {cores[pinned % len(cores)]})
            pinned += 1
    return pinned


def _workers() -> list[int]:
    thread_ids = []
    for folder in THREADS.glob("[0-9]*"):
        with suppress(OSError):
            if WORKER in (folder / "comm").read_text(encoding="utf-8", errors="replace"):
                thread_ids.append(int(folder.name))
    return sorted(thread_ids)
