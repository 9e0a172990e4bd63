"""A vendor's call that blocks: given up once, said from then on, and never asked again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from pytest_npubench.backends import backend, cuda
from pytest_npubench.backends.cuda import _with_facts
from pytest_npubench.backends.protocol import Device, Stack
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls, VendorSilentError
from pytest_npubench.campaign.watch import Watch
from pytest_npubench.errors import DeviceUnavailableError

from .fake_nvml import IS_LOST, FakeNvml, NVMLError

GPU = Device(family="cuda", ordinal=0, name="NVIDIA H200", uuid="GPU-7")
SILENT = "NVML gave no answer within 0.2 s and is asked no more"


@pytest.fixture
def driver() -> Iterator[threading.Event]:
    """What blocks waits for this, so that no test leaves a thread behind."""
    answers = threading.Event()
    yield answers
    answers.set()


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    found = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", found)  # type: ignore[arg-type]
    monkeypatch.setattr(cuda, "NVML", VendorCalls("NVML", 0.2))
    return found


def test_a_call_that_comes_back_is_as_if_made_here() -> None:
    calls = VendorCalls("NVML")
    assert calls.ask(lambda: 7) == 7
    assert calls.ask(lambda: None) is None
    with pytest.raises(ZeroDivisionError):
        calls.ask(lambda: 1 // 0)
    assert calls.silent is None


def test_a_call_that_blocks_is_the_last_one(driver: threading.Event) -> None:
    calls = VendorCalls("NVML", 0.2)
    with pytest.raises(VendorSilentError, match=f"^{SILENT}$"):
        calls.ask(driver.wait)
    asked: list[int] = []
    with pytest.raises(VendorSilentError, match=f"^{SILENT}$"):
        calls.ask(lambda: asked.append(1))
    assert not asked


class OneRuntime:
    """A runtime with the telemetry that the CUDA backend gives."""

    def telemetry(self) -> object:
        return backend("cuda").telemetry([GPU])


def test_a_round_that_ends_with_a_driver_that_blocks_is_disturbed(nvml: FakeNvml, driver: threading.Event) -> None:
    with Watch(OneRuntime(), DisturbanceLimits()) as watch:  # type: ignore[arg-type]
        watch.begin()
        assert watch.end().disturbed is None
        watch.begin()
        nvml.answers["Temperature"] = lambda kind: driver.wait() and 61
        assert watch.end().disturbed == SILENT
        driver.set()
        num_questions = len(nvml.handles)
        watch.begin()
        assert watch.end().disturbed == SILENT
    assert len(nvml.handles) == num_questions


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlSystemGetDriverVersion", "nvmlDeviceGetHandleByUUID"])
def test_a_driver_that_never_answers_is_said_from_the_first_state_on(
    nvml: FakeNvml, driver: threading.Event, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(FakeNvml, call, lambda *_: driver.wait(), raising=False)
    stack = _with_facts(Stack(device_class="NVIDIA H200", driver=None, runtime=None, compiler=None), [GPU])
    assert stack.device_class == "NVIDIA H200"
    telemetry = backend("cuda").telemetry([GPU])
    assert telemetry is not None
    assert telemetry.read().to_json() == {"given_up": SILENT}
    telemetry.close()


def test_a_lost_gpu_is_lost_from_another_thread_too(nvml: FakeNvml) -> None:
    telemetry = backend("cuda").telemetry([GPU])
    assert isinstance(telemetry, PatientTelemetry)
    nvml.answers["Temperature"] = NVMLError(IS_LOST)
    with pytest.raises(DeviceUnavailableError, match="is lost"):
        telemetry.read()
    telemetry.close()
    assert nvml.num_open == 0
