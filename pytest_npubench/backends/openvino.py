"""Intel NPUs and GPUs through OpenVINO, which ships its plugins even without the device: ask which are there."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

from pytest_npubench.backends.probe_only import ProbeOnlyBackend

_QUESTION = "import openvino; print(' '.join(openvino.Core().available_devices))"


def _find(timeout_s: float) -> tuple[str, str]:
    if not find_spec("openvino"):
        return "openvino is not installed: pip install pytest-npubench[openvino]", ""
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _QUESTION], capture_output=True, text=True, timeout=timeout_s, check=True
        )
    except (subprocess.SubprocessError, OSError) as error:
        return f"no Intel NPU or GPU: openvino failed: {error}", ""
    found = answer.stdout.split()
    if not {name.partition(".")[0] for name in found} & {"NPU", "GPU"}:
        return f"no Intel NPU or GPU: openvino found devices {', '.join(found) or 'none'}", ""
    return "", f"OpenVINO devices {', '.join(found)}"


BACKEND = ProbeOnlyBackend("openvino", _find)
