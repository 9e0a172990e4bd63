"""Snapdragon devices through Qualcomm AI Hub: real phones that compile and profile static graphs as jobs.

Nothing runs on this machine, so there is no end-to-end run: the service profiles one graph at a time. Devices that
only compile, "(Proxy)", and families of which any member may answer, "(Family)", are never chosen. Of several phones
with one chipset the first by name with the newest system is taken: jobs cost the user's quota.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack
from pytest_npubench.backends.remote_runtime import RemoteRuntime
from pytest_npubench.backends.telemetry.state import DeviceState, Telemetry
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.compilers.hub.client_errors import CONFIGURE
from pytest_npubench.extensions.compilers.hub.probe import read_answer
from pytest_npubench.extensions.compilers.hub.service import AiHubService, HubDevice
from pytest_npubench.processes import guarded

FACTS = ("hexagon", "soc-model", "htp-supports-fp16")


class QualcommBackend:
    family = "qualcomm"

    def probe(self, timeout_s: float) -> Probe:
        """Asks the service for its devices, for timeout_s at most."""
        if reason := _missing():
            return Probe(reason=reason)
        listed, reason = _ask(timeout_s)
        if reason:
            return Probe(reason=reason)
        chosen = choose(listed)
        if not chosen:
            compile_only = sum(not device.profiles for device in listed)
            return Probe(
                reason=f"no Snapdragon device: Qualcomm AI Hub lists {len(listed)} devices, {compile_only} of them "
                "proxies, families or without QNN, which cannot be profiled"
            )
        return Probe(devices=tuple(_device(ordinal, device) for ordinal, device in enumerate(chosen)))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """One device. Raises DeviceUnavailableError where the service no longer lists it, with its reason else."""
        if len(devices) != 1:
            raise DeviceUnavailableError(
                f"{len(devices)} devices asked for: Qualcomm AI Hub profiles on one device at a time"
            )
        service = AiHubService()
        chosen = {_uuid(device): device for device in choose(service.devices())}
        device = chosen.get(devices[0].uuid or "")
        if device is None:
            raise DeviceUnavailableError(f"{devices[0].id}: Qualcomm AI Hub no longer lists {devices[0].name}")
        return AiHubRuntime(service, device, service.qairt())

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """None: the service tells nothing of its phones while they work."""
        return None


class AiHubRuntime(RemoteRuntime):
    """One phone of the service. Graphs reach it as jobs of `service`, not as functions.

    `qairt` is (what options call the version, full version) of the tools that jobs are pinned to, None for unknown.
    """

    takes = "Qualcomm AI Hub takes exported graphs"
    elsewhere = "a Python callable does not run on a device of Qualcomm AI Hub; its suites can"

    def __init__(self, service: AiHubService, device: HubDevice, qairt: tuple[str, str] | None) -> None:
        super().__init__()
        self.service = service
        self.device = device
        self.qairt = qairt

    @property
    def devices(self) -> Sequence[Any]:
        return (self.device,)

    def stack(self) -> Stack:
        device, service = self.device, self.service
        system = device.attribute("os")
        version = f"QAIRT {self.qairt[1]}" if self.qairt else None
        facts = [f"{name} {value}" for name in FACTS if (value := _fact(device, name))]
        stand_in = ["stand-in, not Qualcomm's service"] if service.stand_in else []
        return Stack(
            device_class=", ".join([device.title, *facts, *stand_in]),
            driver=f"{system or 'system'} {device.os}",
            runtime=version,
            compiler=version,
            extra=(("service", service.host), ("qai-hub", service.version)),
        )

    def telemetry(self) -> Telemetry:
        return PhoneTelemetry()


class PhoneTelemetry:
    """Knows the time alone, and by the wall clock: a machine that sleeps while a phone works disturbs nothing."""

    def read(self) -> DeviceState:
        now_s = time.time()
        return DeviceState(taken_at_s=now_s, wall_at_s=now_s)

    def close(self) -> None:
        """Nothing is held."""


def choose(devices: Iterable[HubDevice]) -> tuple[HubDevice, ...]:
    """One device a chipset that can be profiled, in the order of their titles."""
    best: dict[str, HubDevice] = {}
    for device in sorted(devices, key=lambda item: item.name):
        chipset = device.attribute("chipset")
        if not device.profiles or chipset is None or "qualcomm" not in chipset:
            continue
        earlier = best.setdefault(chipset, device)
        if earlier.name == device.name and _version(device.os) > _version(earlier.os):
            best[chipset] = device
    return tuple(sorted(best.values(), key=lambda item: item.title))


def _fact(device: HubDevice, name: str) -> str | None:
    """Returns the value of an attribute, "yes" for one that is only there or not."""
    return device.attribute(name) or ("yes" if name in device.attributes else None)


def _device(ordinal: int, device: HubDevice) -> Device:
    return Device(family="qualcomm", ordinal=ordinal, name=device.title, uuid=_uuid(device))


def _uuid(device: HubDevice) -> str:
    """Returns a text that is the same on every machine and day, and fit for a file's name."""
    return "aihub-" + re.sub(r"[^a-z0-9]+", "-", f"{device.name} {device.os}".lower()).strip("-")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _missing() -> str:
    """Why the client cannot be used, before it is imported; empty where it can."""
    if not find_spec("qai_hub"):
        return "qai-hub is not installed: pip install pytest-npubench[qaihub]"
    path = Path(os.environ.get("QAIHUB_CLIENT_INI", "~/.qai_hub/client.ini")).expanduser()
    if not path.is_file():
        return f"no Qualcomm AI Hub token: {path} is missing (run: {CONFIGURE})"
    return ""


def _ask(timeout_s: float) -> tuple[tuple[HubDevice, ...], str]:
    """The service's devices, or why there are none, from a process of its own: the client's retries cannot be cut
    short, and whoever only probes should not carry it."""
    try:
        answer = guarded.run(
            [sys.executable, "-m", "pytest_npubench.extensions.compilers.hub.probe"], limit_s=timeout_s
        )
        answer.check_returncode()
    except subprocess.TimeoutExpired:
        return (), f"Qualcomm AI Hub did not answer within {timeout_s:g} s"
    except (subprocess.SubprocessError, OSError) as error:
        return (), f"Qualcomm AI Hub could not be asked: {type(error).__name__}"
    return read_answer(answer.stdout)


BACKEND = QualcommBackend()
