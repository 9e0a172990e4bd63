"""NVIDIA's telemetry on a FAKE of pynvml (fake_nvml.py): units, names, what is unknown alone, a GPU that is lost."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.backends.cuda import _with_facts
from pytest_npubench.backends.protocol import Device, Stack
from pytest_npubench.backends.telemetry import nvidia
from pytest_npubench.backends.telemetry.nvidia import NvidiaTelemetry, others_of, reason_names
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.errors import DeviceUnavailableError

from .fake_nvml import IS_LOST, RESET_REQUIRED, WORKING, FakeNvml, NVMLError

GPU = Device(family="cuda", ordinal=1, name="NVIDIA H200", uuid="GPU-7")
STACK = Stack(device_class="NVIDIA H200", driver=None, runtime="jax", compiler="jaxlib")
OUTSIDE, INSIDE = nvidia.INIT_PID_NAMESPACE, "pid:[4026532201]"
CLOCKS = {"taken_at_s", "wall_at_s", "energy_unknown"}


def read(nvml: FakeNvml) -> DeviceState:
    return NvidiaTelemetry(nvml, [GPU]).read()


def test_a_gpu_at_work_in_our_units() -> None:
    state = read(FakeNvml())
    assert (state.clock_hz, state.sm_clock_hz, state.memory_clock_hz) == (1.755e9, 1.74e9, 2.619e9)
    assert (state.max_clock_hz, state.temperature_c) == (1.98e9, 61)
    assert (state.power_w, state.power_limit_w) == (pytest.approx(612.345), 700)
    assert state.energy_j == pytest.approx(123.456)
    assert state.throttle_reasons == ("sw_power_cap",)
    assert state.throttled_s == (("power_violation", 2.5), ("thermal_violation", 0.0))
    assert state.memory_used_bytes == 3 * 2**30


# NVML name -> the fields of a state that come from it
FIELDS = {
    "ClockInfo": {"clock_hz", "sm_clock_hz", "memory_clock_hz"},
    "MaxClockInfo": {"max_clock_hz"},
    "Temperature": {"temperature_c"},
    "PowerUsage": {"power_w"},
    "EnforcedPowerLimit": {"power_limit_w"},
    "MemoryInfo": {"memory_used_bytes"},
    "CurrentClocksEventReasons": {"throttle_reasons"},
    "ViolationStatus": {"throttled_s"},
    "TotalEnergyConsumption": {"energy_j"},
    "ComputeRunningProcesses": {"num_other_processes", "other_processes"},
}


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("how", ["not supported", "no such function", "permission"])
def test_what_one_question_does_not_answer_is_unknown_alone(
    monkeypatch: pytest.MonkeyPatch, name: str, how: str
) -> None:
    monkeypatch.setattr(nvidia, "_pid_namespace", lambda: OUTSIDE)
    nvml = FakeNvml()
    full = read(nvml)
    if how == "no such function":
        nvml.missing = {name}
    else:
        nvml.answers[name] = NVMLError(3 if how == "not supported" else 4)
    state = read(nvml)
    changed = {
        field.name
        for field in dataclasses.fields(state)
        if field.name not in CLOCKS and getattr(state, field.name) != getattr(full, field.name)
    }
    assert changed == FIELDS[name]
    assert all(getattr(state, field) is None for field in changed)
    assert full.energy_unknown is None
    assert ("NVML tells no total energy" in (state.energy_unknown or "")) == (name == "TotalEnergyConsumption")


def test_a_gpu_that_answers_nothing_is_a_state_all_the_same() -> None:
    nvml = FakeNvml(**{name: NVMLError(999) for name in WORKING})
    assert read(nvml).to_json() == {"energy_unknown": nvidia.NO_ENERGY}


@pytest.mark.parametrize("code", [IS_LOST, RESET_REQUIRED])
def test_a_lost_gpu_is_no_longer_there(code: int) -> None:
    nvml = FakeNvml()
    telemetry = NvidiaTelemetry(nvml, [GPU])
    telemetry.read()
    nvml.answers["Temperature"] = NVMLError(code)
    with pytest.raises(DeviceUnavailableError, match=r"^cuda:1 \(NVIDIA H200\) is lost: "):
        telemetry.read()
    telemetry.close()
    assert nvml.num_open == 0


def test_the_older_name_of_the_reasons() -> None:
    nvml = FakeNvml(CurrentClocksThrottleReasons=0x41)
    nvml.missing = {"CurrentClocksEventReasons"}
    assert read(nvml).throttle_reasons == ("gpu_idle", "hw_thermal_slowdown")


@pytest.mark.parametrize("removed", [True, False])
def test_what_cuda_14_removes_has_its_successors(removed: bool) -> None:
    """FAKE: a driver that knows both, and one without the older calls."""
    counters = [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=ns)) for ns in (2_500_000_000, 0)]
    nvml = FakeNvml(TemperatureV=61, FieldValues=lambda fields: {(74, 75): counters}[tuple(fields)])
    before = read(FakeNvml())
    nvml.missing = {"Temperature", "ViolationStatus", "ApplicationsClock"} if removed else set()
    state = read(nvml)
    assert (state.temperature_c, state.throttled_s) == (before.temperature_c, before.throttled_s)
    clocks = "clocks up to" if removed else "application clocks"
    assert nvidia.Gpu(nvml, GPU).clock_policy() == f"{clocks} 1980/2619 MHz"
    counters[1].nvmlReturn = 3  # not supported
    assert read(nvml).throttled_s == before.throttled_s[:1]


def test_every_reason_has_a_name() -> None:
    assert reason_names(0) == ()
    assert reason_names(0x1 | 0x2 | 0x10 | 0x100) == (
        "gpu_idle",
        "applications_clocks_setting",
        "sync_boost",
        "display_clock_setting",
    )
    assert reason_names(0x8 | 0x80 | 0x1000) == ("hw_slowdown", "hw_power_brake_slowdown", "bit_12")


def test_the_names_and_bits_are_those_of_nvidia_ml_py() -> None:
    """Against the vendor's own table, where it is installed."""
    pynvml = pytest.importorskip("pynvml")
    for bit, name in nvidia.REASONS.items():
        words = "".join(word.capitalize() for word in name.split("_"))
        assert getattr(pynvml, f"nvmlClocksThrottleReason{words}") == bit
    assert {pynvml.NVML_PERF_POLICY_POWER, pynvml.NVML_PERF_POLICY_THERMAL} == nvidia.VIOLATIONS.keys()
    assert (pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM) == (0, 1, 2)
    assert (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED) == (IS_LOST, RESET_REQUIRED)
    for name in (*FIELDS, "EccMode", "MigMode", "VbiosVersion", "ApplicationsClock", "PowerManagementDefaultLimit"):
        assert callable(getattr(pynvml, f"nvmlDeviceGet{name}"))


@pytest.fixture
def child() -> Any:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()
    assert process.stdin
    process.stdin.close()


def test_our_own_processes_are_not_others(child: subprocess.Popen[bytes]) -> None:
    assert others_of([os.getpid(), child.pid, 1], OUTSIDE) == (1,)
    assert others_of([os.getpid()], OUTSIDE) == ()
    assert others_of([], OUTSIDE) == ()


# A controller with two children, one of which, as pytest-xdist does, learns inside that it is a worker. It looks at its
# sibling and its parent, before and after; so does a process that it starts.
FAMILY = """
import os, subprocess, sys
LOOK = "import sys; from pytest_npubench.backends.telemetry.nvidia import others_of; "
LOOK += f"print(others_of([int(pid) for pid in sys.argv[1:]], {sys.argv[1]!r}))"
WORKER = "import os, subprocess, sys\\nLOOK = sys.argv[1]\\nsys.argv[1:] = sys.argv[2:]\\nexec(LOOK)\\n"
WORKER += "os.environ['PYTEST_XDIST_WORKER'] = 'gw0'\\nexec(LOOK)\\nsys.stdout.flush()\\n"
WORKER += "subprocess.run([sys.executable, '-c', LOOK, *sys.argv[1:], str(os.getpid())], check=True)"
sibling = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
try:
    print(sibling.pid, flush=True)
    subprocess.run([sys.executable, "-c", WORKER, LOOK, str(sibling.pid), str(os.getpid())], check=True)
finally:
    sibling.communicate()
"""


def test_who_started_us_and_siblings_of_an_xdist_worker_are_not_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    command = [sys.executable, "-c", FAMILY, OUTSIDE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    sibling, *seen = done.stdout.splitlines()
    assert seen == [f"({sibling},)", "()", "()"]


def test_inside_a_container_a_list_without_us_says_nothing() -> None:
    """Its numbers may be the host's, so neither that 123 is another's nor that nobody else is there is known."""
    assert others_of([123], INSIDE) is None
    assert others_of([], INSIDE) is None
    assert others_of([os.getpid(), 1], INSIDE) == (1,)


def test_other_processes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia, "_pid_namespace", lambda: OUTSIDE)
    monkeypatch.setattr(nvidia.linux, "own_processes", lambda: {7})
    running = [SimpleNamespace(pid=pid) for pid in (7, 2**30, 2**30, 2**30 + 1)]
    state = read(FakeNvml(ComputeRunningProcesses=running))
    assert state.num_other_processes == 2
    assert state.other_processes == (f"pid {2**30}", f"pid {2**30 + 1}")
    cut_up = read(FakeNvml(ComputeRunningProcesses=running, MigMode=[1, 1]))
    assert (cut_up.num_other_processes, cut_up.others_unknown) == (None, nvidia.OTHERS_UNKNOWN)


def test_a_gpu_is_asked_for_by_its_uuid_alone() -> None:
    nvml = FakeNvml()
    NvidiaTelemetry(nvml, [GPU])
    assert nvml.handles == [("HandleByUUID", "GPU-7")]


def test_facts_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml(EnforcedPowerLimit=600_000)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    settings = ("CUDA_LAUNCH_BLOCKING", "CUDA_DEVICE_MAX_CONNECTIONS", "CUBLAS_WORKSPACE_CONFIG")
    for name in settings:
        monkeypatch.setenv(name, "1")
    stack = _with_facts(STACK, [GPU])
    assert stack == dataclasses.replace(
        STACK,
        device_class="NVIDIA H200, ECC on",
        driver="570.86.15",
        compiler=", ".join(["jaxlib", *(f"{name}=1" for name in settings)]),
        power_policy="600 W (default 700 W)",
        firmware="VBIOS 96.00.5E.00.01",
        clock_policy="application clocks 1980/2619 MHz",
    )
    assert nvml.num_open == 0
    for name in settings:
        monkeypatch.delenv(name)
    nvml.answers |= {"EccMode": [0, 1], "MigMode": [1, 0], "EnforcedPowerLimit": 700_000}
    assert _with_facts(STACK, [GPU]).device_class == "NVIDIA H200, ECC off, MIG"
    assert _with_facts(STACK, [GPU]).power_policy == "700 W"
    nvml.answers = {}
    assert _with_facts(STACK, [GPU]) == dataclasses.replace(STACK, driver="570.86.15")


def test_without_nvml_there_is_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert backend("cuda").telemetry([GPU]) is None
    assert _with_facts(STACK, [GPU]) == STACK
    nvml = FakeNvml()
    monkeypatch.setattr(FakeNvml, "nvmlInit", lambda self: (_ for _ in ()).throw(NVMLError(9)))
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    assert backend("cuda").telemetry([GPU]) is None


def test_a_backend_watches_the_devices_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())  # type: ignore[arg-type]
    telemetry = backend("cuda").telemetry([GPU, dataclasses.replace(GPU, ordinal=0, uuid="GPU-8")])
    assert telemetry is not None
    assert telemetry.read().power_limit_w == 1400  # both together
    telemetry.close()
    telemetry.close()
    assert backend("cuda").telemetry([]) is None
