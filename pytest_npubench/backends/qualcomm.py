"""Snapdragon devices through Qualcomm AI Hub: needs its client, and the user's token in the client's configuration."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from pytest_npubench.backends.probe_only import ProbeOnlyBackend


def _find(timeout_s: float) -> tuple[str, str]:
    if not find_spec("qai_hub"):
        return "qai-hub is not installed: pip install pytest-npubench[qaihub]", ""
    configuration = Path("~/.qai_hub/client.ini").expanduser()
    if not configuration.is_file():
        return f"no Qualcomm AI Hub token: {configuration} is missing (run: qai-hub configure --api_token TOKEN)", ""
    return "", "a Qualcomm AI Hub configuration"


BACKEND = ProbeOnlyBackend("qualcomm", _find)
