"""NVIDIA GPUs through jax; driver, modes and state through nvidia-ml-py where it is installed.

CUDA counts the GPUs that CUDA_VISIBLE_DEVICES leaves, in that variable's order, else the fastest first; NVML counts all
of them by their place on the bus. So which GPU, or which MIG instance of one, a device number of this process means, is
asked of CUDA's driver: cuDeviceGetUuid_v2 is the instance's UUID where the GPU is in MIG mode, cuDeviceGetUuid that of
the whole GPU (CUDA driver API, device management); both are 16 bytes, and NVML writes them with GPU- or MIG- in front.
No context is made, so nothing is taken of the GPU.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pytest_npubench.backends.jax_probe import Sought, probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of
from pytest_npubench.backends.telemetry.nvidia import Gpu, NvidiaTelemetry, text
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls, VendorSilentError
from pytest_npubench.errors import DeviceUnavailableError

NVML = VendorCalls("NVML")
T = TypeVar("T")
LIBRARY = "libcuda.so.1"
DRIVER_SETTINGS = ("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUBLAS_WORKSPACE_CONFIG")
"""What changes how CUDA and its libraries run the same kernels, whoever launches them."""
ALLOCATOR_SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the latter is its name before torch 2.9
SOUGHT = Sought(
    family="cuda",
    title="NVIDIA GPU",
    platforms=("gpu", "cuda"),
    plugin="cuda",
    nodes=("/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"),
    pci_vendor="0x10de",
)


class CudaBackend:
    family = "cuda"

    def probe(self, timeout_s: float) -> Probe:
        return probe_jax(SOUGHT, timeout_s)

    def visible(self, devices: Sequence[Device]) -> Mapping[str, str]:
        """Names GPUs as the variables that already hide others do, else by CUDA's numbers, which the probe uses."""
        here = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = [name.strip() for name in here.split(",")] if here else []
        chosen = [names[one.ordinal] if one.ordinal < len(names) else str(one.ordinal) for one in devices]
        return {"CUDA_VISIBLE_DEVICES": ",".join(chosen)}

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class CudaJaxRuntime(JaxRuntime):
            def stack(self) -> Stack:
                return _with_facts(super().stack(), devices)

            def telemetry(self) -> Telemetry | None:
                return _telemetry(devices)

        runtime = CudaJaxRuntime(self.family, devices, cache_dir)
        _check(devices, [device.local_hardware_id for device in runtime.devices])
        return runtime

    def open_torch(self, devices: Sequence[Device]) -> Runtime:
        """Opens them with memory that grows in segments, unless the user set torch's allocator: temporaries of changing
        size would leave gaps beside weights and cache, and torch would free and allocate again inside a block."""
        if not any(map(os.environ.get, ALLOCATOR_SETTINGS)):
            os.environ[ALLOCATOR_SETTINGS[0]] = "expandable_segments:True"
        from pytest_npubench.backends.torch_runtime import TorchRuntime

        class CudaTorchRuntime(TorchRuntime):
            def stack(self) -> Stack:
                return _with_facts(super().stack(), devices)

            def telemetry(self) -> Telemetry | None:
                return _telemetry(devices)

        runtime = CudaTorchRuntime(self.family, devices)
        _check(devices, [device.index for device in devices])
        return runtime

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        return _telemetry(devices) if devices else None

    def bare_stack(self, devices: Sequence[Device]) -> Stack:
        return _with_facts(class_of(devices), devices)

    def memory_bandwidth_bytes_per_s(self, device: Device) -> float | None:
        if device.uuid is None:
            return None
        return _nvml(lambda nvml: _of_first(nvml, [device], Gpu.memory_bandwidth_bytes_per_s))


def _with_facts(stack: Stack, devices: Sequence[Device]) -> Stack:
    """Adds the driver and its settings, and ECC and MIG to the device's class: both change the bandwidth, memory and
    size of one model of GPU."""
    settings = [f"{name}={value}" for name in DRIVER_SETTINGS if (value := os.environ.get(name))]
    compiler = ", ".join([stack.compiler, *settings]) if stack.compiler else stack.compiler
    stack = dataclasses.replace(stack, driver=_nvml(_driver), compiler=compiler)
    if unidentified := next((device.unidentified for device in devices if device.unidentified), ""):
        return dataclasses.replace(stack, extra=(*stack.extra, ("telemetry", f"none: {unidentified}")))
    facts: Mapping[str, Any] = _nvml(lambda nvml: _of_first(nvml, devices, _facts)) or {}
    modes = facts.get("modes", ())
    stack_facts = {name: value for name, value in facts.items() if name != "modes"}
    return dataclasses.replace(stack, device_class=", ".join((stack.device_class, *modes)), **stack_facts)


def _driver(nvml: Any) -> str:
    nvml.nvmlInit()
    try:
        return text(nvml.nvmlSystemGetDriverVersion())
    finally:
        nvml.nvmlShutdown()


def _facts(gpu: Gpu) -> Mapping[str, Any]:
    return {
        "modes": gpu.modes(),
        "power_policy": gpu.power_policy(),
        "firmware": gpu.firmware(),
        "clock_policy": gpu.clock_policy(),
    }


def _of_first(nvml: Any, devices: Sequence[Device], question: Callable[[Gpu], T]) -> T:
    telemetry = NvidiaTelemetry(nvml, devices)
    try:
        return question(telemetry.first)
    finally:
        telemetry.close()


def _telemetry(devices: Sequence[Device]) -> Telemetry | None:
    """NVML's telemetry. None where NVML is missing, does not start or does not know these devices."""
    try:
        import pynvml
    except ImportError:
        return None
    if any(device.uuid is None for device in devices):
        return None
    try:
        return PatientTelemetry(NVML, lambda: NvidiaTelemetry(pynvml, devices))
    except pynvml.NVMLError:
        return None


def _nvml(question: Callable[[Any], T]) -> T | None:
    """Ask NVML; None where it is not installed, does not know or gives no answer."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NVML.ask(lambda: question(pynvml))
    except (pynvml.NVMLError, VendorSilentError):
        return None


def _check(devices: Sequence[Device], ordinals: Sequence[int | None]) -> None:
    """Raises DeviceUnavailableError where CUDA has another GPU under a number than was found when it was probed."""
    for device, ordinal in zip(devices, ordinals, strict=True):
        uuid_now, _ = identity(ordinal) if device.uuid is not None else (None, "")
        if uuid_now is not None and uuid_now != device.uuid:
            raise DeviceUnavailableError(
                f"{device.id} is {uuid_now} in this process and was {device.uuid} when it was probed: "
                "CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER has changed since"
            )


BACKEND = CudaBackend()


def identity(ordinal: int | None, load: Callable[[str], Any] = ctypes.CDLL) -> tuple[str | None, str]:
    """ "GPU-8932f937-...", or "MIG-..." for an instance, and an empty text; or None and why it is unknown."""
    if ordinal is None or ordinal < 0:
        return None, "jax does not say which device of CUDA it is"
    try:
        driver = load(LIBRARY)
        _call(driver, "cuInit", 0)
        device = ctypes.c_int()
        _call(driver, "cuDeviceGet", ctypes.byref(device), ordinal)
        whole = _uuid(driver, "cuDeviceGetUuid", device)
        part = _uuid(driver, "cuDeviceGetUuid_v2", device) if hasattr(driver, "cuDeviceGetUuid_v2") else whole
    except (OSError, AttributeError) as error:
        return None, f"the CUDA driver does not tell its UUID: {error}"
    if not part.int:
        return None, "the CUDA driver tells no UUID of it"
    return (f"GPU-{whole}" if part == whole else f"MIG-{part}"), ""


def _uuid(driver: Any, name: str, device: ctypes.c_int) -> uuid.UUID:
    buffer = (ctypes.c_ubyte * 16)()
    _call(driver, name, ctypes.byref(buffer), device)
    return uuid.UUID(bytes=bytes(buffer))


def _call(driver: Any, name: str, *arguments: Any) -> None:
    """Raises OSError where the driver answers anything but CUDA_SUCCESS, AttributeError where it has no such call."""
    if status := getattr(driver, name)(*arguments):
        raise OSError(f"{name} returned error {status}")
