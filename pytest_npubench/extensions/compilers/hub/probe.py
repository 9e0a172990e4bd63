"""Asks Qualcomm AI Hub for its devices and writes the answer as one JSON line: run as a process of its own.

{"devices": [["Samsung Galaxy S24", "14", ["chipset:qualcomm-snapdragon-8gen3", ...]], ...]}
{"reason": "Qualcomm AI Hub refused the token: ..."}
"""

from __future__ import annotations

import json
import sys

from pytest_npubench.errors import NpubenchError
from pytest_npubench.extensions.compilers.hub.service import AiHubService, HubDevice


def answer() -> str:
    """Returns the line for whatever the service answers."""
    try:
        devices = AiHubService().devices()
    except NpubenchError as error:
        return json.dumps({"reason": str(error)})
    return json.dumps({"devices": [[item.name, item.os, item.attributes] for item in devices]})


def read_answer(text: str) -> tuple[tuple[HubDevice, ...], str]:
    """Devices, or why there are none, from what the process wrote; the last line counts."""
    try:
        answered = json.loads(text.strip().splitlines()[-1])
        if "reason" in answered:
            return (), str(answered["reason"])
        rows = ((str(name), str(os), tuple(map(str, attributes))) for name, os, attributes in answered["devices"])
        return tuple(HubDevice(name=name, os=os, attributes=attributes) for name, os, attributes in rows), ""
    except (ValueError, LookupError, TypeError):
        return (), "Qualcomm AI Hub was asked for its devices, but the answer cannot be read"


if __name__ == "__main__":
    sys.stdout.write(answer() + "\n")
