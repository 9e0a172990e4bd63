"""`npubench probe`: which devices each backend finds and which hardware file describes them, or why there are none."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_npubench import backends
from pytest_npubench.cli.arguments import add_command, columns, seconds
from pytest_npubench.hardware import FAMILIES, HardwareSpec, default_directory, load_all

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands

TIMEOUT_S = 120.0


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "probe", "say which devices are found, or why none is", "npubench probe cuda tpu --timeout 30"
    )
    parser.add_argument("family", nargs="*", help=f"device families to probe (default: all): {', '.join(FAMILIES)}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        default=TIMEOUT_S,
        help=f"give a device so long to answer (default {TIMEOUT_S:g})",
    )
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """0 whatever is found; a family that does not exist is a usage error."""
    for family in arguments.family:
        if family not in FAMILIES:
            parser.error(f"unknown family {family!r}; allowed: {', '.join(FAMILIES)}")
    families = tuple(dict.fromkeys(arguments.family)) or FAMILIES
    specs = load_all([default_directory()])
    found = {family: probe_family(family, arguments.timeout, specs) for family in families}
    if arguments.json:
        print(json.dumps(found, indent=2))
    else:
        print(columns([row for family, answer in found.items() for row in _rows(family, answer)]))
    return 0


def probe_family(family: str, timeout_s: float, specs: Mapping[str, HardwareSpec]) -> dict[str, Any]:
    """The devices of a family with the hardware files that match each, and the reason where there are none."""
    probe = backends.backend(family).probe(timeout_s)
    devices = [
        {
            "id": device.id,
            "name": device.name,
            "uuid": device.uuid,
            "memory_bytes": device.memory_bytes,
            "hardware": [spec.name for spec in specs.values() if spec.family == family and spec.matches(device.name)],
        }
        for device in probe.devices
    ]
    return {"devices": devices, "reason": probe.reason}


def _rows(family: str, answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not answer["devices"]:
        return [(family, answer["reason"])]
    return [(device["id"], f"{_device(device)}; {_hardware(device)}") for device in answer["devices"]]


def _device(device: Mapping[str, Any]) -> str:
    memory = device["memory_bytes"]
    return f"{device['name']}, {memory / 2**30:.1f} GiB" if memory else str(device["name"])


def _hardware(device: Mapping[str, Any]) -> str:
    names = ", ".join(device["hardware"])
    return f"hardware file {names}" if names else "no hardware file matches this name"
