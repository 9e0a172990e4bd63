"""Which vLLM an interpreter has and what that serves, told by metadata alone, in a fraction of a second.

The interpreter is pytest's own or that of another environment, which is asked by `python -m` of this module: one line
of JSON. So cases can be skipped with the reason before anything starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache

from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.errors import DeviceUnavailableError, NpubenchError
from pytest_npubench.extensions.vllm.platform import expected_platform
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE, vllm_python
from pytest_npubench.extensions.vllm.version import check_version, installed_vllm
from pytest_npubench.plain_text import last_line
from pytest_npubench.processes import guarded
from pytest_npubench.processes.child import import_path

ASK_S = 60.0
MODULE = "pytest_npubench.extensions.vllm.installed"
HOW = f"set {PYTHON_VARIABLE} or pip install 'pytest-npubench[vllm]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmThere:
    """A distribution of vLLM, the torch beside it, and the platform it serves; family is the marker of our suites, None
    where they have none."""

    distribution: str
    version: str
    torch: str | None
    platform: str
    family: str | None


@cache
def vllm_there(python: str) -> VllmThere:
    """What that interpreter has. Raises DeviceUnavailableError where there is none or it does not answer, ConfigError
    for a version that this engine does not know."""
    there = _here() if python == sys.executable else _ask(python)
    if there is None:
        where = "" if python == sys.executable else f" in the environment of {python}"
        raise DeviceUnavailableError(f"no vLLM{where}: {HOW}")
    check_version(there.version, there.distribution)
    return there


def why_not_served(family: str) -> str:
    """Why vLLM cannot serve devices of this family here; empty where it can."""
    try:
        python = vllm_python()
    except NpubenchError as error:
        return str(error)
    return _why_not(python, family)


@cache
def _why_not(python: str, family: str) -> str:
    """Asked once for all cases of a family, also where there is nothing: each question is a process."""
    try:
        there = vllm_there(python)
    except NpubenchError as error:
        return str(error)
    build = f"{there.distribution} {there.version}"
    return "" if there.family == family else f"vLLM here serves {there.platform}, not {family} ({build})"


def _here() -> VllmThere | None:
    installed = installed_vllm()
    if installed is None:
        return None
    platform = expected_platform(installed)
    return VllmThere(
        distribution=installed.distribution,
        version=installed.version,
        torch=installed_version("torch"),
        platform=platform.name,
        family=platform.family,
    )


def _ask(python: str) -> VllmThere | None:
    try:
        done = guarded.run([python, "-m", MODULE], limit_s=ASK_S, env={**os.environ, **import_path(python)})
        if done.returncode:
            raise ValueError(f"exit status {done.returncode}: {last_line(done.stdout + done.stderr, 'no output')}")
        answer = json.loads(last_line(done.stdout, "no output"))
        return None if answer is None else VllmThere(**answer)
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
        raise DeviceUnavailableError(f"{PYTHON_VARIABLE}: {python} does not say which vLLM it has: {error}") from error


if __name__ == "__main__":
    there = _here()
    sys.stdout.write(json.dumps(None if there is None else asdict(there)) + "\n")
