"""AWS Inferentia and Trainium, found by `neuron-ls --json-output`."""

from __future__ import annotations

import json
import subprocess
from shutil import which

from pytest_npubench.backends.probe_only import ProbeOnlyBackend


def _find(timeout_s: float) -> tuple[str, str]:
    if not which("neuron-ls"):
        return "no Neuron device: neuron-ls is not on the PATH (install aws-neuronx-tools)", ""
    try:
        answer = subprocess.run(
            ["neuron-ls", "--json-output"], capture_output=True, text=True, timeout=timeout_s, check=False
        )
        chips = json.loads(answer.stdout) if answer.stdout.strip() else []
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        return f"no Neuron device: neuron-ls failed: {error}", ""
    if not chips:
        return "no Neuron device: neuron-ls lists none (is the aws-neuronx-dkms driver loaded?)", ""
    return "", f"{len(chips)} Neuron devices"


BACKEND = ProbeOnlyBackend("neuron", _find)
