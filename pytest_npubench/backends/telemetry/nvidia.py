"""NVIDIA GPUs by NVML (nvidia-ml-py): clocks, throttle reasons, violation time, power, energy, other processes.

A question that a GPU, a driver or a version of nvidia-ml-py does not answer is None by itself; a GPU that fell off the
bus is DeviceUnavailableError. Units of NVML: MHz, mW, mJ, nanoseconds of violation time (nvmlViolationTime_t).

Whose a process is can be told only where NVML and we count process ids alike. In a container with a pid namespace of
its own, a list without us says nothing of others, so their number is unknown there. On a GPU cut up by MIG the list
holds all instances, whose processes do not share what we measure: unknown too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import linux
from pytest_npubench.backends.telemetry.state import DeviceState, combined
from pytest_npubench.errors import DeviceUnavailableError

# the bits of nvmlClocksEventReasons (NVML API reference, group NvmlClocksEventReasons)
REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}
VIOLATIONS = {0: "power_violation", 1: "thermal_violation"}  # NVML_PERF_POLICY_POWER and _THERMAL
FIRST_VIOLATION_FIELD = 74  # NVML_FI_DEV_PERF_POLICY_POWER; the other policies' counters follow it
GRAPHICS, SM, MEMORY = 0, 1, 2  # nvmlClockType_t
TEMPERATURE_OF_GPU = 0  # nvmlTemperatureSensors_t
NO_ENERGY = "unavailable: NVML tells no total energy of this GPU (it is there from Volta on)"
OTHERS_UNKNOWN = "NVML counts process ids of another pid namespace, or of all MIG instances together"
INIT_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: the namespace that NVML counts in
GONE = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")


class NvidiaTelemetry:
    """One or several GPUs read as one. Holds NVML open until closed. `nvml` is the module pynvml."""

    def __init__(self, nvml: Any, devices: Sequence[Device]) -> None:
        """Raises nvml.NVMLError where NVML does not start or does not know a device."""
        self._nvml = nvml
        nvml.nvmlInit()
        try:
            self._gpus = [Gpu(nvml, device) for device in devices]
        except nvml.NVMLError:
            nvml.nvmlShutdown()
            raise
        self._open = True

    def read(self) -> DeviceState:
        return combined([gpu.state() for gpu in self._gpus])

    def close(self) -> None:
        if self._open:
            self._open = False
            self._nvml.nvmlShutdown()

    @property
    def first(self) -> Gpu:
        """Returns the group's first GPU, which speaks for all of them where facts are asked for."""
        return self._gpus[0]


class Gpu:
    """One GPU as NVML knows it. The device's UUID is known."""

    def __init__(self, nvml: Any, device: Device) -> None:
        self._nvml = nvml
        self._device = device
        self._handle = nvml.nvmlDeviceGetHandleByUUID(device.uuid)  # never by number: NVML counts in its own order
        self._gone = {getattr(nvml, name, None) for name in GONE} - {None}

    def state(self) -> DeviceState:
        """Returns the GPU now. Raises DeviceUnavailableError where it is lost."""
        others, others_unknown = self._others()
        memory = self.ask("MemoryInfo")
        energy_j = _scaled(self.ask("TotalEnergyConsumption"), 1e-3)
        return DeviceState.now(
            clock_hz=_scaled(self.ask("ClockInfo", GRAPHICS), 1e6),
            sm_clock_hz=_scaled(self.ask("ClockInfo", SM), 1e6),
            memory_clock_hz=_scaled(self.ask("ClockInfo", MEMORY), 1e6),
            max_clock_hz=_scaled(self.ask("MaxClockInfo", GRAPHICS), 1e6),
            temperature_c=_scaled(self._temperature(), 1),
            power_w=_scaled(self.ask("PowerUsage"), 1e-3),
            power_limit_w=_scaled(self.ask("EnforcedPowerLimit"), 1e-3),
            memory_used_bytes=None if memory is None else float(memory.used),
            throttle_reasons=self._reasons(),
            throttled_s=self._violations(),
            energy_j=energy_j,
            energy_unknown=None if energy_j is not None else NO_ENERGY,
            num_other_processes=None if others is None else len(others),
            other_processes=None if others is None else tuple(map(linux.process_name, others)),
            others_unknown=others_unknown,
        )

    def power_policy(self) -> str | None:
        """Returns the limit in force, with the default where they differ: "600 W (default 700 W)"."""
        limit = _scaled(self.ask("EnforcedPowerLimit"), 1e-3)
        usual = _scaled(self.ask("PowerManagementDefaultLimit"), 1e-3)
        if limit is None:
            return None
        return f"{limit:g} W" if usual in (None, limit) else f"{limit:g} W (default {usual:g} W)"

    def clock_policy(self) -> str | None:
        """Application clocks of graphics and memory, or the highest clocks of a GPU or a driver without application
        clocks, which CUDA 14 removes. Clocks locked by `nvidia-smi -lgc` are not told by NVML."""
        for words, name in (("application clocks", "ApplicationsClock"), ("clocks up to", "MaxClockInfo")):
            clocks = [self.ask(name, kind) for kind in (GRAPHICS, MEMORY)]
            if None not in clocks:
                return f"{words} {clocks[0]}/{clocks[1]} MHz"
        return None

    def memory_bandwidth_bytes_per_s(self) -> float | None:
        """Two transfers a clock over the whole bus. H100 SXM: 2 x 2619 MHz x 5120 bit / 8 = 3.35 TB/s."""
        clock_hz, num_bits = _scaled(self.ask("MaxClockInfo", MEMORY), 1e6), self.ask("MemoryBusWidth")
        return 2 * clock_hz * num_bits / 8 if clock_hz and num_bits else None

    def firmware(self) -> str | None:
        version = self.ask("VbiosVersion")
        return None if version is None else f"VBIOS {text(version)}"

    def modes(self) -> tuple[str, ...]:
        """ECC and MIG as far as the GPU has them: ("ECC on",)."""
        ecc = self.ask("EccMode")
        words = () if ecc is None else (f"ECC {'on' if ecc[0] else 'off'}",)
        return (*words, "MIG") if self._cut_up() else words

    def ask(self, name: str, *arguments: Any) -> Any:
        """Returns the answer of nvmlDeviceGet... of that name, or None. Raises DeviceUnavailableError where the GPU is
        lost."""
        try:
            return getattr(self._nvml, f"nvmlDeviceGet{name}")(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) in self._gone:
                raise DeviceUnavailableError(f"{self._device.id} ({self._device.name}) is lost: {error}") from None
            return None
        except (AttributeError, ValueError, TypeError):  # a version of nvidia-ml-py without, or with another, function
            return None

    def _reasons(self) -> tuple[str, ...] | None:
        bits = self.ask("CurrentClocksEventReasons")
        if bits is None:  # an older driver or nvidia-ml-py has the older name only
            bits = self.ask("CurrentClocksThrottleReasons")
        return None if bits is None else reason_names(bits)

    def _temperature(self) -> float | None:
        degrees: float | None = self.ask("TemperatureV", TEMPERATURE_OF_GPU)
        if degrees is None:  # before CUDA 13; CUDA 14 removes this one
            degrees = self.ask("Temperature", TEMPERATURE_OF_GPU)
        return degrees

    def _violations(self) -> tuple[tuple[str, float], ...] | None:
        """Returns seconds for which clocks were held down. CUDA 14 removes ViolationStatus, whose counters are fields
        too."""
        fields = self.ask("FieldValues", [FIRST_VIOLATION_FIELD + policy for policy in VIOLATIONS]) or ()
        named = zip(VIOLATIONS.values(), fields, strict=False)
        times_ns = [(name, field.value.ullVal) for name, field in named if not field.nvmlReturn]
        if not times_ns:
            statuses = [(name, self.ask("ViolationStatus", policy)) for policy, name in VIOLATIONS.items()]
            times_ns = [(name, status.violationTime) for name, status in statuses if status is not None]
        return tuple((name, time_ns / 1e9) for name, time_ns in times_ns) or None

    def _cut_up(self) -> bool:
        mode = self.ask("MigMode")
        return bool(mode and mode[0])

    def _others(self) -> tuple[tuple[int, ...] | None, str | None]:
        """Returns the processes on the GPU that are not ours, or None; and why an answer leaves them open."""
        running = self.ask("ComputeRunningProcesses")
        if running is None:
            return None, None
        others = None if self._cut_up() else others_of([process.pid for process in running])
        return others, OTHERS_UNKNOWN if others is None else None


def others_of(pids: Sequence[int], namespace: str | None = None) -> tuple[int, ...] | None:
    """Returns the processes among these that are not ours. None where they are counted in another pid namespace than we
    are."""
    ours = linux.own_processes()
    inside = (namespace or _pid_namespace()) not in (INIT_PID_NAMESPACE, None)
    if inside and not ours & set(pids):
        return None
    return tuple(sorted({pid for pid in pids if pid not in ours}))


def reason_names(bits: int) -> tuple[str, ...]:
    """Returns the names of the bits set: 0x44 is ("sw_power_cap", "hw_thermal_slowdown")."""
    return tuple(REASONS.get(1 << bit, f"bit_{bit}") for bit in range(bits.bit_length()) if bits >> bit & 1)


def text(value: str | bytes) -> str:
    """Older versions of nvidia-ml-py return bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _pid_namespace() -> str | None:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
