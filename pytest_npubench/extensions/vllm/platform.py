"""Which devices the installed vLLM serves, and the family (so the marker) of ours that goes with them.

`expected_platform` reads names and metadata alone, in vLLM's own order: VLLM_TARGET_DEVICE, a platform plugin from
outside, libtpu, the build's tag. No driver is opened, so asking harms nobody. `running_platform` is what vLLM itself
settled on, asked in the process that runs it; an engine refuses to start where the two families differ.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec

from pytest_npubench.core import families
from pytest_npubench.extensions.vllm.version import InstalledVllm

PLUGIN_GROUP = "vllm.platform_plugins"
SERVED = ("cpu", "cuda", "tpu", "neuron")
"""The families of ours that vLLM serves, each a part of the name that vLLM has for such devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmPlatform:
    """name as vLLM has it; family is the marker of our suites, None where they have none; known_by says how."""

    name: str
    family: str | None
    known_by: str


def expected_platform(
    installed: InstalledVllm,
    *,
    environment: Mapping[str, str] | None = None,
    plugins: Iterable[str] | None = None,
    has_libtpu: bool | None = None,
) -> VllmPlatform:
    """Returns the platform this build will serve. The keywords stand in for what this process sees, in tests."""
    environment = os.environ if environment is None else environment
    if environment.get("VLLM_TARGET_DEVICE") == "cpu":
        return _platform("cpu", "VLLM_TARGET_DEVICE")
    names = sorted(_plugins() if plugins is None else plugins)
    if names:
        return _platform(names[0], f"platform plugin {names[0]}")
    if find_spec("libtpu") is not None if has_libtpu is None else has_libtpu:
        return _platform("tpu", "libtpu")
    for name in ("cpu", "tpu", "rocm", "xpu"):
        if installed.distribution == f"vllm-{name}" or name in installed.local_tag:
            return _platform(name, f"{installed.distribution} {installed.version}")
    return _platform("cpu" if sys.platform == "darwin" else "cuda", f"{installed.distribution} {installed.version}")


def running_platform() -> VllmPlatform:
    """What vLLM runs on in this process; imports vllm."""
    from vllm.platforms import current_platform

    name = current_platform._enum.name.lower()
    if name == "oot":  # from outside: only its own name tells
        name = str(current_platform.device_name or current_platform.device_type)
    return _platform(name, "vllm.platforms.current_platform")


def _platform(name: str, known_by: str) -> VllmPlatform:
    """A family's name is vLLM's, or a part of a plugin's name. ROCm, XPU, Ascend, Gaudi and others are none of ours."""
    others = (family for family in families.names() if family not in families.OWN)
    family = next((each for each in (*SERVED, *others) if each in name.lower()), None)
    return VllmPlatform(name=name, family=family, known_by=known_by)


def _plugins() -> list[str]:
    return [entry.name for entry in entry_points(group=PLUGIN_GROUP)]
