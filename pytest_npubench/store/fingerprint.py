"""Who measured: the device, its software and its host. Tells whether two results may be compared, and why not.

Two results may be compared when their keys are equal: accelerator, device class, driver, runtime, compiler, power
policy, firmware and clock policy. GPUs of one model differ by 8 % on average and 22 % at most (Sinha et al., arXiv
2208.11035), so the device class is part of the key; the host is not. A measurement may be resumed only where
everything is equal (`digest`).

firmware and clock_policy are written where they are known only: what was written before they existed keeps its digest.

Worked example: with drivers 570.86 and 580.12, a.differences(b) == ("driver 570.86 -> 580.12",).

HostFacts are about the machine and the software that measured, as far as they can be read without touching a device.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest_npubench
from pytest_npubench.core.entry_points import installed_version
from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.store.json_text import JsonError, canonical, take

# whatever compiles, runs or times a kernel, tests of a user's own included; those that are not installed are left out
LIBRARIES = (
    "cupy-cuda12x",
    "jax",
    "jax-cuda12-pjrt",
    "jaxlib",
    "libtpu",
    "neuronx-cc",
    "numba",
    "numpy",
    "nvidia-cublas-cu12",
    "nvidia-cudnn-cu12",
    "onnxruntime",
    "onnxruntime-gpu",
    "openvino",
    "pytest",
    "pytest-benchmark",
    "pytest-xdist",
    "qai-hub",
    "scipy",
    "tensorflow",
    "torch",
    "transformers",
    "triton",
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
    def from_json(cls, mapping: Any, key: str = "host") -> HostFacts:
        """Fields this version does not know are left aside. Raises WrongEntryError naming the field."""
        return JSON.record(cls, mapping, key, others=mapping)


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
    return tuple((name, version) for name in names if (version := installed_version(name)) is not None)


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


def why_no_revision(rootdir: Path) -> str:
    """Why it is unknown which commit the checkout is at, and what mends that; empty where it is known."""
    revision = git_revision(rootdir)
    if revision is not None and not revision.endswith("-dirty"):
        return ""
    if revision is not None:
        return f"git took more than {DIFF_TIMEOUT_S} s over what differs from the commit: commit it"
    try:
        done = _run_git(rootdir, GIT_TIMEOUT_S, "rev-parse", "HEAD")
    except (OSError, subprocess.SubprocessError) as error:
        return f"git does not answer: {error}"
    said = next(iter(done.stderr.decode(errors="replace").splitlines()), "no commit").removeprefix("fatal: ")
    if "ownership" in said:
        return f"{said}: git config --global --add safe.directory {rootdir}"
    return f"{said}: put the folder under git, with a commit"


def untracked_python(rootdir: Path) -> tuple[str, ...]:
    """Returns the Python files that are in no commit and not ignored: whether they changed no revision tells."""
    names = _git(rootdir, GIT_TIMEOUT_S, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py") or b""
    return tuple(sorted(filter(None, names.decode(errors="replace").split("\0"))))


def _git(rootdir: Path, timeout_s: float, *arguments: str) -> bytes | None:
    """What git prints; None where there is no git, or it fails or takes too long."""
    try:
        done = _run_git(rootdir, timeout_s, *arguments)
    except (OSError, subprocess.SubprocessError):
        return None
    return None if done.returncode else done.stdout


def _run_git(rootdir: Path, timeout_s: float, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Raises OSError, subprocess.SubprocessError."""
    command = ["git", "-C", str(rootdir), *arguments]
    # inside a git hook GIT_DIR names the hook's repository; optional locks would get in the way of a commit going on
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    return subprocess.run(command, env=environment, capture_output=True, timeout=timeout_s, check=False)


LATER_PARTS = ("firmware", "clock_policy")  # absent from what the first versions wrote


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a backend knows of its device, as text; None for unknown. `extra` holds facts that stay the same all day."""

    family: str
    name: str
    device_class: str
    driver: str | None
    runtime: str | None
    compiler: str | None
    power_policy: str | None = None
    firmware: str | None = None
    clock_policy: str | None = None
    extra: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        return _without_later_unknown({name: getattr(self, name) for name in self.__slots__}) | {
            "extra": dict(self.extra)
        }

    @classmethod
    def from_json(cls, mapping: Any, key: str = "device") -> DeviceFacts:
        """Fields this version does not know are left aside. Raises WrongEntryError naming the field."""
        return JSON.record(cls, _with_later(mapping), key, others=mapping)


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintKey:
    """The parts that two results must share to be compared; None for unknown."""

    accelerator: str
    device_class: str
    driver: str | None
    runtime: str | None
    compiler: str | None
    power_policy: str | None
    firmware: str | None = None
    clock_policy: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return _without_later_unknown({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, mapping: Any, key: str = "key") -> FingerprintKey:
        """Raises WrongEntryError naming a field that is missing, wrong or unknown."""
        return JSON.record(cls, _with_later(mapping), key)

    def digest(self) -> str:
        """8 hex digits, the part of a baseline's file name that tells keys apart."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()[:8]

    def is_of_device(self, other: FingerprintKey) -> bool:
        """Whether both are of the same accelerator in the same device class, whatever drove it."""
        return (self.accelerator, self.device_class) == (other.accelerator, other.device_class)

    def differences(self, other: FingerprintKey, across: Collection[str] = ()) -> tuple[str, ...]:
        """What differs from `other`, but for the parts named in `across`. Raises ConfigError on an unknown part."""
        if unknown := set(across) - set(self.__slots__):
            raise ConfigError(f"cannot compare across {min(unknown)!r}: allowed are {', '.join(self.__slots__)}")
        mine, theirs = self.to_json(), other.to_json()
        return _differences(*({name: part[name] for name in part if name not in across} for part in (mine, theirs)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A device with the host and the software that drove it."""

    device: DeviceFacts
    host: HostFacts

    def key(self) -> FingerprintKey:
        device = self.device
        return FingerprintKey(
            accelerator=device.name,
            device_class=device.device_class,
            driver=device.driver,
            runtime=device.runtime,
            compiler=device.compiler,
            power_policy=device.power_policy,
            firmware=device.firmware,
            clock_policy=device.clock_policy,
        )

    def differences(self, other: Fingerprint) -> tuple[str, ...]:
        """Everything that differs, this one's value first, the parts of the key before the rest."""
        return _differences(self._facts(), other._facts())

    def digest(self) -> str:
        """12 hex digits over everything, git revision and host included: equal where a measurement may be resumed."""
        return hashlib.sha256(canonical(self.to_json())).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        return {"device": self.device.to_json(), "host": self.host.to_json()}

    @classmethod
    def from_json(cls, mapping: Any, key: str = "fingerprint") -> Fingerprint:
        """Raises StoreError naming the field that is missing or wrong."""
        try:
            return cls(
                device=DeviceFacts.from_json(take(mapping, "device", (dict,), key), f"{key}.device"),
                host=HostFacts.from_json(take(mapping, "host", (dict,), key), f"{key}.host"),
            )
        except (JsonError, WrongEntryError) as error:
            raise StoreError(str(error)) from None

    def _facts(self) -> dict[str, object]:
        host = self.host.to_json()
        libraries = host.pop("libraries")
        return {
            **self.key().to_json(),
            "family": self.device.family,
            **{f"device {name}": value for name, value in self.device.extra},
            "host": host.pop("name"),
            **host,
            **libraries,
        }


def collect(device: DeviceFacts, rootdir: Path) -> Fingerprint:
    """The fingerprint of `device` in this process; `rootdir` is the folder whose git revision is recorded."""
    return Fingerprint(device=device, host=collect_host(rootdir))


def _with_later(mapping: Any) -> Any:
    """With the parts that earlier versions did not know, None where they are missing."""
    return {**dict.fromkeys(LATER_PARTS), **mapping} if isinstance(mapping, Mapping) else mapping


def _without_later_unknown(parts: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parts.items() if value is not None or name not in LATER_PARTS}


def _differences(mine: Mapping[str, object], theirs: Mapping[str, object]) -> tuple[str, ...]:
    names = [*mine, *(name for name in theirs if name not in mine)]
    pairs = ((name, mine.get(name), theirs.get(name)) for name in names)
    return tuple(f"{name} {_shown(old)} -> {_shown(new)}" for name, old, new in pairs if old != new)


def _shown(value: object) -> str:
    return "unknown" if value is None else str(value)
