"""npubench probe shows the state of what it finds. The telemetry is a FAKE except in the test that says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.cli.probe import state_text
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.errors import DeviceUnavailableError

from .conftest import Answer

Run = Callable[..., Answer]
GPU = Device(family="cuda", ordinal=0, name="NVIDIA H200", uuid="GPU-7")
STATE = {
    "clock_hz": 1.755e9,
    "max_clock_hz": 1.98e9,
    "temperature_c": 61.0,
    "power_w": 612.3,
    "power_limit_w": 700.0,
    "throttle_reasons": ("sw_power_cap",),
    "memory_used_bytes": 3 * 2**30,
    "duty_cycle": 0.25,
    "num_other_processes": 1,
    "other_processes": ("pid 9 python",),
}
WORDS = (
    "clock 1755 of 1980 MHz, 61 °C, 612 of 700 W, clocks held by sw_power_cap, 3.0 GiB used, busy 25 %, pid 9 python"
)


class Watched:
    """A backend with one device, or none, whose telemetry reads this state or raises this error."""

    def __init__(self, answer: dict[str, Any] | Exception | None, *devices: Device) -> None:
        self._answer = answer
        self._devices = devices
        self.num_closed = 0

    def probe(self, timeout_s: float) -> Probe:
        return Probe(devices=self._devices, reason="" if self._devices else "found 2, but no engine")

    def telemetry(self, devices: Any) -> Any:
        return None if self._answer is None else self

    def read(self) -> DeviceState:
        if isinstance(self._answer, Exception):
            raise self._answer
        assert self._answer is not None
        return DeviceState.now(**self._answer)

    def close(self) -> None:
        self.num_closed += 1


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Watched]:
    found = dict.fromkeys(FAMILIES, Watched(None))
    monkeypatch.setattr(backends, "backend", found.__getitem__)
    return found


def test_the_state_stands_below_its_device(call: Run, watched: dict[str, Watched]) -> None:
    watched["cuda"] = Watched(STATE, GPU)
    lines = call("probe", "cuda").out.splitlines()
    assert [line.strip() for line in lines] == ["cuda:0  NVIDIA H200; hardware file nvidia-h200", WORDS]
    answer = call("probe", "cuda", "--json").json["families"]
    assert answer["cuda"]["devices"][0]["state"] == {
        name: list(value) if isinstance(value, tuple) else value for name, value in STATE.items()
    }
    assert watched["cuda"].num_closed == 2


def test_a_family_without_an_engine_is_watched_as_a_whole(call: Run, watched: dict[str, Watched]) -> None:
    watched["neuron"] = Watched({"num_other_processes": 0, "other_processes": ()})
    lines = call("probe", "neuron").out.splitlines()
    assert [line.strip() for line in lines] == ["neuron  found 2, but no engine", "no other process"]


@pytest.mark.parametrize("answer", [None, {}])
def test_nothing_known_is_nothing_shown(call: Run, watched: dict[str, Watched], answer: Any) -> None:
    watched["cuda"] = Watched(answer, GPU)
    assert len(call("probe", "cuda").out.splitlines()) == 1
    assert "state" not in call("probe", "cuda", "--json").json["families"]["cuda"]["devices"][0]


def test_a_device_that_is_lost_is_said_and_ends_nothing(call: Run, watched: dict[str, Watched]) -> None:
    watched["cuda"] = Watched(DeviceUnavailableError("cuda:0 is lost"), GPU)
    answer = call("probe", "cuda")
    assert answer.status == 0
    assert answer.out.splitlines()[1].strip() == "cuda:0 is lost"
    assert watched["cuda"].num_closed == 1


def test_every_part_of_a_state_may_be_missing() -> None:
    for name in STATE:
        words = state_text({key: value for key, value in STATE.items() if key != name})
        assert words
        assert words != WORDS
    assert state_text({"throttled_s": {"thermal": 1.0}}) == "tells nothing of its state"


def test_this_host(call: Run) -> None:
    entry = call("probe", "cpu", "--json").json["families"]["cpu"]
    if entry["devices"]:
        assert entry["devices"][0]["state"]["num_cores"] >= 1


def test_a_device_that_nobody_can_name_says_why(call: Run, watched: dict[str, Watched]) -> None:
    unknown = Device(family="cuda", ordinal=0, name="NVIDIA H200", unidentified="the CUDA driver tells no UUID of it")
    watched["cuda"] = Watched(None, unknown)
    reason = "which device of the host it is is unknown, so its state is not read: the CUDA driver tells no UUID of it"
    assert [line.strip() for line in call("probe", "cuda").out.splitlines()][1:] == [reason]
    (device,) = call("probe", "cuda", "--json").json["families"]["cuda"]["devices"]
    assert device["unidentified"] == unknown.unidentified


def test_a_vendor_that_was_given_up_is_said(call: Run, watched: dict[str, Watched]) -> None:
    silent = "NVML gave no answer within 10 s and is asked no more"
    watched["cuda"] = Watched({"given_up": silent}, GPU)
    assert [line.strip() for line in call("probe", "cuda").out.splitlines()][1:] == [silent]
