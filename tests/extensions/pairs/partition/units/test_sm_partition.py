"""How the driver is asked to split a device, on a made-up driver that counts multiprocessors. Nothing runs."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.units.sm_partition import COUNT_AT, SM_RESOURCE, split_streams

NUM_SMS = 132


class Driver:
    """Resources are a first multiprocessor (in the bytes that the driver keeps to itself) and a number of them."""

    def __init__(self, **codes: int) -> None:
        self._codes = codes
        self.contexts: list[tuple[int, int]] = []  # first and number, by handle less 1

    def __getattr__(self, name: str) -> Any:
        if f"_{name}" not in dir(type(self)):
            raise AttributeError(name)
        return lambda *arguments: self._codes.get(name) or getattr(self, f"_{name}")(*arguments) or 0

    def _cuDeviceGet(self, handle: Any, ordinal: int) -> None:
        handle._obj.value = ordinal

    def _cuDeviceGetDevResource(self, device: Any, resource: Any, kind: int) -> None:
        assert kind == SM_RESOURCE
        write(resource, 0, NUM_SMS)

    def _cuDevSmResourceSplitByCount(
        self, part: Any, groups: Any, whole: Any, rest: Any, flags: Any, least: Any
    ) -> None:
        assert groups._obj.value == 1
        first, number = read(whole)
        taken = -(-least.value // 8) * 8
        write(part, first, taken)
        write(rest, first + taken, number - taken)

    def _cuDevResourceGenerateDesc(self, description: Any, resource: Any, number: Any) -> None:
        self.contexts.append(read(resource))
        description._obj.value = len(self.contexts)

    def _cuGreenCtxCreate(self, context: Any, description: Any, device: Any, flags: Any) -> None:
        context._obj.value = description.value

    def _cuGreenCtxStreamCreate(self, stream: Any, context: Any, flags: Any, priority: int) -> None:
        stream._obj.value = context.value


def write(resource: Any, first: int, number: int) -> None:
    ctypes.c_uint.from_buffer(resource._obj, 8).value = first
    ctypes.c_uint.from_buffer(resource._obj, COUNT_AT).value = number


def read(resource: Any) -> tuple[int, int]:
    return tuple(ctypes.c_uint.from_buffer(resource._obj, at).value for at in (8, COUNT_AT))


TORCH = SimpleNamespace(
    cuda=SimpleNamespace(init=lambda: None, ExternalStream=lambda handle, device: (handle, device)),
    device=lambda kind, ordinal: f"{kind}:{ordinal}",
)


def test_each_stream_has_multiprocessors_of_its_own() -> None:
    driver = Driver()
    (first, num_first), (second, num_second) = split_streams(TORCH, 0, driver)
    assert (num_first, num_second) == (72, 60)
    assert driver.contexts == [(0, 72), (72, 60)]
    assert (first, second) == ((1, "cuda:0"), (2, "cuda:0"))


def test_a_driver_that_cannot_says_which_call_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceUnavailableError, match="cannot be split: cuGreenCtxCreate: 801"):
        split_streams(TORCH, 0, Driver(cuGreenCtxCreate=801))
    monkeypatch.delattr(Driver, "_cuDeviceGetDevResource")
    with pytest.raises(DeviceUnavailableError, match="cuDeviceGetDevResource: unknown to this driver, which is older"):
        split_streams(TORCH, 0, Driver())
