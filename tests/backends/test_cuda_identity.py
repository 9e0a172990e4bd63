"""Which GPU a device of ours is, under every way to hide and reorder them: on FAKES of libcuda and of NVML, which count
differently. Lock and telemetry must be those of the GPU that CUDA computes on."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.backends import backend, cuda
from pytest_npubench.backends.cuda import identity
from pytest_npubench.backends.protocol import Device, Probe, class_of
from pytest_npubench.campaign.lock import lock_name
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.processes import guarded

from .fake_libcuda import FakeGpu, FakeLibcuda
from .fake_nvml import FakeNvml

SLOW, FAST, OTHER = (uuid.UUID(int=number << 96 | 7) for number in (0x1A1A, 0x2B2B, 0x2B2C))
PART, SECOND_PART = uuid.UUID(int=0xAAA1), uuid.UUID(int=0xAAA2)
GPUS = (FakeGpu(SLOW, 1.0), FakeGpu(FAST, 9.0), FakeGpu(OTHER, 5.0))  # in the order of the bus, which is NVML's
POWER_MW = {f"GPU-{SLOW}": 100_000, f"GPU-{FAST}": 200_000, f"GPU-{OTHER}": 300_000, f"MIG-{SECOND_PART}": 400_000}


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a probe finds under an environment, where a device's local_hardware_id is CUDA's number of it."""
    nvml = FakeNvml()
    nvml.by_uuid = {name: {"PowerUsage": power_mw} for name, power_mw in POWER_MW.items()}
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]

    def probe(environment: Mapping[str, str], gpus: tuple[FakeGpu, ...] = GPUS) -> Probe:
        driver = FakeLibcuda(gpus, environment)
        rows = [["cuda", "NVIDIA", None, *identity(number, lambda _: driver)] for number in range(len(driver.seen))]
        monkeypatch.setattr(
            guarded, "run", lambda *_, **__: subprocess.CompletedProcess("", 0, json.dumps([rows, [], ""]), "")
        )
        return backend("cuda").probe(5)

    return probe


ORDERS = {
    "fastest first": ({}, (FAST, OTHER, SLOW)),
    "as on the bus": ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (SLOW, FAST, OTHER)),
    "reordered": ({"CUDA_VISIBLE_DEVICES": "1,0"}, (OTHER, FAST)),
    "all of them, reordered": ({"CUDA_VISIBLE_DEVICES": "2,1,0"}, (SLOW, OTHER, FAST)),
    "hidden": ({"CUDA_VISIBLE_DEVICES": "2"}, (SLOW,)),
    "up to the first that is none": ({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, (FAST,)),
    "bus, reordered": ({"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (FAST, SLOW)),
    "by UUID": ({"CUDA_VISIBLE_DEVICES": f"GPU-{OTHER}, GPU-{SLOW}"}, (OTHER, SLOW)),
    "by parts of UUIDs": ({"CUDA_VISIBLE_DEVICES": "GPU-00001a1a,GPU-00002b2b"}, (SLOW, FAST)),
}


@pytest.mark.parametrize(("environment", "order"), ORDERS.values(), ids=ORDERS)
def test_lock_and_telemetry_are_those_of_the_gpu(
    probed: Any, environment: Mapping[str, str], order: tuple[uuid.UUID, ...]
) -> None:
    devices = probed(environment).devices
    assert [device.uuid for device in devices] == [f"GPU-{found}" for found in order]
    for device in devices:
        telemetry = backend("cuda").telemetry([device])
        assert telemetry.read().power_w == POWER_MW[device.uuid] / 1000
        telemetry.close()
        elsewhere = Device(family="cuda", ordinal=7, name="NVIDIA", uuid=device.uuid)
        assert lock_name(device) == lock_name(elsewhere)
    assert len({lock_name(device) for device in devices}) == len(devices)


def test_an_instance_of_a_gpu_is_a_device_of_its_own(probed: Any) -> None:
    cut_up = (FakeGpu(SLOW, 1.0, (PART, SECOND_PART)),)
    (first,) = probed({}, cut_up).devices
    (second,) = probed({"CUDA_VISIBLE_DEVICES": f"MIG-{SECOND_PART}"}, cut_up).devices
    assert (first.uuid, second.uuid) == (f"MIG-{PART}", f"MIG-{SECOND_PART}")
    assert backend("cuda").telemetry([second]).read().power_w == 400
    assert backend("cuda").telemetry([first]) is None  # this NVML knows no such instance: nothing is read of another


def test_a_driver_without_the_newer_call_tells_the_whole_gpu() -> None:
    full = FakeLibcuda(GPUS, {})
    older = SimpleNamespace(cuInit=full.cuInit, cuDeviceGet=full.cuDeviceGet, cuDeviceGetUuid=full.cuDeviceGetUuid)
    assert identity(0, lambda _: older) == (f"GPU-{FAST}", "")


def _absent(name: str) -> Any:
    raise OSError(f"{name}: cannot open shared object file")


@pytest.mark.parametrize(
    ("ordinal", "load", "why"),
    [
        (0, _absent, "the CUDA driver does not tell its UUID: libcuda.so.1: cannot open shared object file"),
        (3, lambda _: FakeLibcuda(GPUS, {}), "the CUDA driver does not tell its UUID: cuDeviceGet returned error 101"),
        (0, lambda _: FakeLibcuda((FakeGpu(uuid.UUID(int=0), 1.0),), {}), "the CUDA driver tells no UUID of it"),
        (None, _absent, "jax does not say which device of CUDA it is"),
        (-1, _absent, "jax does not say which device of CUDA it is"),
    ],
)
def test_what_nobody_knows_is_said(ordinal: int | None, load: Any, why: str) -> None:
    assert identity(ordinal, load) == (None, why)


def test_an_unknown_gpu_has_no_telemetry_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    device = Device(family="cuda", ordinal=0, name="NVIDIA", unidentified="the CUDA driver tells no UUID of it")
    assert backend("cuda").telemetry([device]) is None
    stack = cuda._with_facts(class_of([device]), [device])
    assert stack.extra == (("telemetry", "none: the CUDA driver tells no UUID of it"),)
    assert nvml.handles == []


def test_a_gpu_that_is_another_one_by_now_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(family="cuda", ordinal=0, name="NVIDIA", uuid=f"GPU-{SLOW}")
    here = FakeLibcuda(GPUS, {})
    monkeypatch.setattr(cuda, "identity", lambda ordinal: identity(ordinal, lambda _: here))
    cuda._check([device], [2])
    with pytest.raises(DeviceUnavailableError, match=rf"^cuda:0 is GPU-{FAST} in this process and was GPU-{SLOW} when"):
        cuda._check([device], [0])
    monkeypatch.setattr(cuda, "identity", lambda ordinal: (None, "no driver"))
    cuda._check([device], [0])
