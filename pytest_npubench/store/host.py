"""Facts about the machine and the software that measured, as far as they can be read without touching a device."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest_npubench
from pytest_npubench.core.record_reader import JSON

# whatever compiles, runs or times a kernel; those that are not installed are left out
LIBRARIES = (
    "jax",
    "jax-cuda12-pjrt",
    "jaxlib",
    "libtpu",
    "neuronx-cc",
    "numpy",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-cu12",
    "openvino",
    "pytest",
    "pytest-benchmark",
    "pytest-xdist",
    "qai-hub",
    "scipy",
    "torch",
    "vllm",
)
GIT_TIMEOUT_S = 10
DIFF_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """The host and its software. num_cores counts the cores this process may use; git_revision is the suite's."""

    name: str
    cpu_model: str
    num_cores: int
    system: str
    python: str
    libraries: tuple[tuple[str, str], ...]
    plugin_version: str
    git_revision: str | None

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"libraries": dict(self.libraries)}

    @classmethod
    def from_json(cls, mapping: Any, place: str = "host") -> HostFacts:
        """Fields this version does not know are left aside. Raises WrongEntryError naming the field."""
        return JSON.record(cls, mapping, place, others=mapping)


def collect_host(rootdir: Path) -> HostFacts:
    """The facts of this process. `rootdir` is the folder whose git revision is recorded."""
    return HostFacts(
        name=platform.node(),
        cpu_model=cpu_model(),
        num_cores=num_usable_cores(),
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libraries=installed(LIBRARIES),
        plugin_version=pytest_npubench.__version__,
        git_revision=git_revision(rootdir),
    )


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name; the architecture where the kernel gives no name (most ARM hosts)."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(filter(None, names), platform.processor() or platform.machine())


def num_usable_cores() -> int:
    """The cores this process may run on, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def installed(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """(distribution, version) of those that are installed, in the order given. Nothing is imported."""
    found = []
    for name in names:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            continue
    return tuple(found)


def git_revision(rootdir: Path) -> str | None:
    """The short hash of the checkout; None without git or a commit.

    Where tracked files differ from it, -dirty and a hash of the differences follow: "0123456789ab-dirty.1f2e3d". The
    hash is left out where git takes too long over them. Files that git does not track tell no revision.
    """
    described = _git(rootdir, GIT_TIMEOUT_S, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    revision = (described or b"").decode(errors="replace").strip()
    if not revision.endswith("-dirty"):
        return revision or None
    # a binary file is told by the hash of its content, which --full-index shows, not by the content itself
    changes = _git(rootdir, DIFF_TIMEOUT_S, "diff", "HEAD", "--full-index", "--no-color", "--no-ext-diff")
    return revision if changes is None else f"{revision}.{hashlib.sha256(changes).hexdigest()[:6]}"


def _git(rootdir: Path, timeout_s: float, *arguments: str) -> bytes | None:
    """What git prints; None where there is no git, or it fails or takes too long."""
    command = ["git", "-C", str(rootdir), *arguments]
    # inside a git hook GIT_DIR names the hook's repository; optional locks would get in the way of a commit going on
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=timeout_s, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
