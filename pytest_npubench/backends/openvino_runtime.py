"""A device of OpenVINO: static models compiled ahead of time for it, with their compile time on record.

`compile` is given a function that builds a model from its arguments. Every model is compiled in the precision it is
written in (EXECUTION_MODE_HINT = ACCURACY): by default a CPU with bf16 units computes an fp32 model in bf16.

Whether a binary came from the compile cache is asked of the compiled model (LOADED_FROM_CACHE). The cache knows a model
by a hash over the names of its nodes and tensors too, which OpenVINO numbers through the life of a process: without
names of our own no model but a process's first is ever found again (measured with OpenVINO 2026.4.1).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import openvino as ov

from pytest_npubench.backends.protocol import Device, Stack
from pytest_npubench.backends.telemetry.cpu import CpuTelemetry, clock_policy, microcode, share_of_machine
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

KINDS = ("NPU", "GPU", "CPU")  # the order in which devices are counted
DRIVERS = ("NPU_DRIVER_VERSION", "GPU_DRIVER_VERSION")
COMPILERS = ("NPU_COMPILER_VERSION", "NPU_COMPILER_TYPE")
MEMORY_SIZES = ("NPU_DEVICE_TOTAL_MEM_SIZE", "GPU_DEVICE_TOTAL_MEM_SIZE")
COMPILE_SETTINGS = ("OV_CPU_MAX_ISA",)
OUT_OF_MEMORY = ("bad_alloc", "out of memory", "OUT_OF_MEMORY", "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY")
UNSUPPORTED = ("unsupported", "not supported", "not implemented", "unimplemented", "cannot create", "no implementation")

_num_compiles = 0


def present() -> list[dict[str, Any]]:
    """Returns the devices that are there, NPUs first and the CPU last: id, name, uuid and memory_bytes of each."""
    core = ov.Core()
    return [
        {
            "id": device,
            "name": _property(core, device, "FULL_DEVICE_NAME") or device,
            "uuid": _property(core, device, "DEVICE_UUID"),
            "memory_bytes": _memory(core, device),
        }
        for device in device_ids(core.available_devices)
    ]


def device_ids(available: Sequence[str]) -> list[str]:
    """OpenVINO's ids in the order in which devices are counted; kinds that are no Intel device or CPU left out."""
    usable = [device for device in available if _kind(device) in KINDS]
    return sorted(usable, key=lambda device: KINDS.index(_kind(device)))


class OpenVinoRuntime:
    """One device. Raises DeviceUnavailableError for one that is no longer there, or for a group of several."""

    framework = "openvino"

    def __init__(self, devices: Sequence[Device], cache_dir: str | None) -> None:
        if len(devices) != 1:
            group = ", ".join(device.id for device in devices) or "none"
            raise DeviceUnavailableError(f"OpenVINO runs a model on one device, not on {group}: want num_devices = 1")
        self.compiles: list[CompileRecord] = []
        self._name = devices[0].name
        self._core: Any = ov.Core()
        ids = device_ids(self._core.available_devices)
        device_id = _openvino_id(self._core, ids, devices[0])
        if device_id is None or not self._name.startswith(
            _property(self._core, device_id, "FULL_DEVICE_NAME") or device_id
        ):
            has = ", ".join(ids) or "none"
            raise DeviceUnavailableError(f"{devices[0].id}, {self._name}, is gone: OpenVINO has the devices {has}")
        self._device: str = device_id
        if cache_dir is not None:
            self._core.set_property({"CACHE_DIR": cache_dir})

    @property
    def devices(self) -> Sequence[Any]:
        """OpenVINO's id of it, "NPU", "GPU.1" or "CPU"."""
        return [self._device]

    @property
    def num_process_compiles(self) -> int:
        """Counts the compiles of all runtimes here, since OpenVINO reports no compile that others make."""
        return _num_compiles

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Any:
        """Build the model function(*arguments) and compile it; compile_s covers both, as a user waits for both.

        Returns openvino's CompiledModel. donate and out mean nothing here: tensors are bound to a request. Raises
        MeasurementError with OpenVINO's reason where the model does not compile.
        """
        global _num_compiles
        started_s = perf_counter()
        try:
            model = function(*arguments)
            _name_all(model)
            compiled = self._core.compile_model(model, self._device, self._settings())
        except RuntimeError as error:
            raise MeasurementError(f"{name}: {compile_failure(error, self._device)}") from error
        compile_s = perf_counter() - started_s
        _num_compiles += 1
        cache = CacheState.WARM if _from_cache(compiled) else CacheState.COLD
        self.compiles.append(CompileRecord(name=name, compile_s=compile_s, cache=cache))
        return compiled

    def synchronize(self, value: Any) -> None:
        """Wait for an infer request or a queue of them; what an infer call returned is there already.

        Raises MeasurementError for a value that is nothing of OpenVINO's, where a time would mean nothing.
        """
        if isinstance(value, ov.InferRequest):
            value.wait()
        elif isinstance(value, ov.AsyncInferQueue):
            value.wait_all()
        elif isinstance(value, (list, tuple)) and value:
            for request in value:
                self.synchronize(request)
        elif not isinstance(value, (ov.Tensor, Mapping)) and type(value).__name__ != "OVDict":
            raise MeasurementError(
                f"the measured callable returned {type(value).__name__}, so nothing on {self._device} can be waited "
                "for: return its infer requests or what an infer call returned"
            )

    def stack(self) -> Stack:
        on_cpu = _kind(self._device) == "CPU"
        revision = microcode() if on_cpu else None
        return Stack(
            device_class=f"{self._name}, {share_of_machine()}" if on_cpu else self._name,
            driver=self._first(DRIVERS),
            runtime=f"openvino {ov.__version__}",
            compiler=", ".join([f"{_kind(self._device)} plugin", *self._compiler()]),
            firmware=None if revision is None else f"microcode {revision}",
            clock_policy=clock_policy() if on_cpu else None,
        )

    def close(self) -> None:
        """Let go of the device, which models that were compiled keep while someone holds them."""
        self._core = None

    def telemetry(self) -> Telemetry | None:
        return CpuTelemetry() if _kind(self._device) == "CPU" else None

    def _settings(self) -> dict[str, str]:
        wanted = {"EXECUTION_MODE_HINT": "ACCURACY", "PERFORMANCE_HINT": "LATENCY"}
        supported = self._core.get_property(self._device, "SUPPORTED_PROPERTIES")
        return {name: value for name, value in wanted.items() if name in supported}

    def _compiler(self) -> list[str]:
        facts = {name: _property(self._core, self._device, name) for name in COMPILERS}
        environment = {name: os.environ.get(name) for name in COMPILE_SETTINGS}
        return [f"{name}={value}" for name, value in (self._settings() | facts | environment).items() if value]

    def _first(self, names: Sequence[str]) -> str | None:
        return next((value for name in names if (value := _property(self._core, self._device, name))), None)


def compile_failure(error: Exception, device: str) -> str:
    """Why a model does not compile on a device: the kind of failure, then OpenVINO's own words."""
    words = reason(error)
    if any(sign in words for sign in OUT_OF_MEMORY):
        return f"out of memory on {device}: {words}"
    if any(sign in words.lower() for sign in UNSUPPORTED):
        return f"an operation that {device} does not support: {words}"
    return f"does not compile on {device}: {words}"


def reason(error: Exception) -> str:
    """Returns the words of an OpenVINO exception, without the lines that say where in its source it arose."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Exception from ")]
    return " ".join(said) or type(error).__name__


def _openvino_id(core: Any, ids: Sequence[str], device: Device) -> str | None:
    """OpenVINO's id of the device that the probe saw: by its UUID, since a changed environment hides or reorders."""
    here = ids[device.ordinal] if device.ordinal < len(ids) else None
    if device.uuid is None or (here and _property(core, here, "DEVICE_UUID") == device.uuid):
        return here
    return next((other for other in ids if _property(core, other, "DEVICE_UUID") == device.uuid), None)


def _name_all(model: Any) -> None:
    """Names that depend on the model alone; see the module."""
    for index, node in enumerate(model.get_ordered_ops()):
        node.set_friendly_name(f"node{index}")
    for kind, ports in (("input", model.inputs), ("output", model.outputs)):
        for index, port in enumerate(ports):
            port.get_tensor().set_names({f"{kind}{index}"})


def _from_cache(compiled: Any) -> bool:
    try:
        return bool(compiled.get_property("LOADED_FROM_CACHE"))
    except RuntimeError:  # a plugin that does not say
        return False


def _kind(device: str) -> str:
    return device.partition(".")[0]


def _memory(core: Any, device: str) -> int | None:
    values = (_property(core, device, name) for name in MEMORY_SIZES)
    return next((int(value) for value in values if value and value.isdecimal()), None)


def _property(core: Any, device: str, name: str) -> str | None:
    """Returns a property as text; None where the plugin does not have it, or its driver fails to answer."""
    try:
        value = core.get_property(device, name)
    except (RuntimeError, TypeError):
        return None
    return str(value).strip() or None
