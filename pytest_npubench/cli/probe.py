"""`npubench probe`: which devices each backend finds, what state they are in, or why there are none."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Backend, Device
from pytest_npubench.cli.arguments import Commands, add_command, add_json_option, columns, print_document, seconds
from pytest_npubench.core.device_names import NEXT_STEP
from pytest_npubench.core.hardware import FAMILIES, HardwareSpec
from pytest_npubench.errors import BrokenEntryError, DeviceUnavailableError, did_you_mean
from pytest_npubench.suites.hardware_files import folders_of_runs, load_all

TIMEOUT_S = 120.0


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "probe", about, "npubench probe cuda tpu --timeout 30")
    parser.add_argument("family", nargs="*", help=f"device families to probe (default: all): {', '.join(FAMILIES)}")
    add_json_option(parser)
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=TIMEOUT_S,
        help=f"give a device so long to answer (default {TIMEOUT_S:g})",
    )
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> None:
    """Prints the devices. Returns 0 also where none is found; a family that does not exist is a usage error."""
    for family in arguments.family:
        if family not in FAMILIES:
            parser.error(f"unknown family {family!r}; allowed: {', '.join(FAMILIES)}{did_you_mean(family, FAMILIES)}")
    families = tuple(dict.fromkeys(arguments.family)) or FAMILIES
    specs = load_all(folders_of_runs())
    answers = {family: probe_family(family, arguments.timeout, specs) for family in families}
    if arguments.json:
        print_document("probe", families=answers)
    else:
        print(columns([row for family, answer in answers.items() for row in _rows(family, answer)]))


def probe_family(family: str, timeout_s: float, specs: Mapping[str, HardwareSpec]) -> dict[str, Any]:
    """The devices of a family with the hardware files that match each, or the reason why there are none."""
    try:
        backend = backends.backend(family)
    except BrokenEntryError as error:
        return {"devices": [], "reason": str(error)}
    probe = backend.probe(timeout_s)
    devices = [
        {
            "id": device.id,
            "name": device.name,
            "uuid": device.uuid,
            **({"unidentified": device.unidentified} if device.unidentified else {}),
            "memory_bytes": device.memory_bytes,
            "hardware": [spec.name for spec in specs.values() if spec.family == family and spec.matches(device.name)],
            **_state(backend, (device,)),
        }
        for device in probe.devices
    ]
    whole = {} if devices else _state(backend, ())  # a family that can be watched and not yet measured
    return {"devices": devices, "reason": probe.reason, **whole}


def _state(backend: Backend, devices: Sequence[Device]) -> dict[str, Any]:
    """The device's state under the key "state"; empty where the backend has no telemetry, or the telemetry no value."""
    opener = getattr(backend, "telemetry", None)
    telemetry = opener(devices) if opener is not None else None
    if telemetry is None:
        return {}
    try:
        state = telemetry.read().to_json()
    except DeviceUnavailableError as error:
        state = {"lost": str(error)}
    finally:
        telemetry.close()
    return {"state": state} if state else {}


def _rows(family: str, answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [(device["id"], f"{_device(device)}; {_hardware(device)}", device) for device in answer["devices"]]
    rows = rows or [(family, answer["reason"], answer)]
    return [
        line for name, text, entry in rows for line in [(name, text), *_unidentified_row(entry), *_state_row(entry)]
    ]


def _unidentified_row(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    reason = entry.get("unidentified")
    return [("", f"which device of the host it is is unknown, so its state is not read: {reason}")] if reason else []


def _state_row(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("", state_text(entry["state"]))] if "state" in entry else []


def state_text(state: Mapping[str, Any]) -> str:
    """The known parts of a state in words: "clock 1980 of 1980 MHz, 41 °C, 113 of 700 W, no other process"."""
    words = []
    words += [state[name] for name in ("lost", "given_up") if name in state]
    if "clock_hz" in state:
        most = f" of {state['max_clock_hz'] / 1e6:.0f}" if "max_clock_hz" in state else ""
        words.append(f"clock {state['clock_hz'] / 1e6:.0f}{most} MHz")
    if "temperature_c" in state:
        words.append(f"{state['temperature_c']:.0f} °C")
    if "power_w" in state:
        limit = f" of {state['power_limit_w']:.0f}" if "power_limit_w" in state else ""
        words.append(f"{state['power_w']:.0f}{limit} W")
    if reasons := state.get("throttle_reasons"):
        words.append(f"clocks held by {', '.join(reasons)}")
    if "memory_used_bytes" in state:
        words.append(f"{state['memory_used_bytes'] / 2**30:.1f} GiB used")
    if "duty_cycle" in state:
        words.append(f"busy {state['duty_cycle'] * 100:.0f} %")
    if "num_cores" in state:
        words.append(f"{state['num_cores']} cores")
    if "load" in state:
        words.append(f"load {state['load']:.2f}")
    if "num_other_processes" in state:
        words.append(", ".join(state.get("other_processes", ())) or "no other process")
    return ", ".join(words) or "tells nothing of its state"


def _device(device: Mapping[str, Any]) -> str:
    memory = device["memory_bytes"]
    return f"{device['name']}, {memory / 2**30:.1f} GiB" if memory else str(device["name"])


def _hardware(device: Mapping[str, Any]) -> str:
    names = ", ".join(device["hardware"])
    return f"hardware file {names}" if names else NEXT_STEP
