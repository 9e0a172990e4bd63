"""Which accelerators jax sees, asked in a process of its own: `jax.devices()` can hang, and holds a TPU."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.plain_text import last_line
from pytest_npubench.processes import guarded

# jax notes a plugin that did not start in its log, and goes on without it
_QUESTION = """
import json, logging, sys
said = []
class Listener(logging.Handler):
    def emit(self, record):
        error = (record.exc_info or (None, None))[1]
        said.append(record.getMessage() + (f": {type(error).__name__}: {error}" if error else ""))
logging.getLogger("jax._src.xla_bridge").addHandler(Listener(logging.WARNING))
import jax
from pytest_npubench.backends.cuda import identity
devices = jax.devices()
for platform in sys.argv[1:]:
    try:
        jax.devices(platform)
    except RuntimeError as error:
        said.append(str(error))
memory = lambda device: (device.memory_stats() or {}).get("bytes_limit")
named = lambda device: identity(device.local_hardware_id) if device.platform in ("gpu", "cuda") else (None, "")
rows = [[d.platform, d.device_kind, memory(d), *named(d)] for d in devices]
print(json.dumps([rows, said, devices[0].client.platform_version]))
"""
MEMORY_SHARE, DEPRECATED_MEMORY_SHARE = "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"
FAILURES = ("configuration error", "failed to initialize", "Unable to initialize")
NO_DEVICE = ("NO_DEVICE", "No devices found", "no supported devices found", "device found", "load the CUDA libraries")
"""What drivers and jax say where there is no device, or no driver, on a host that shows none."""
PCI_BUS = Path("/sys/bus/pci/devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """What is looked for. `plugin` is a word in the name of what drives it under jax; the host shows such hardware by
    the device files `nodes`, or on the PCI bus by the vendor's id with one of pci_devices, or with any where these are
    empty."""

    family: str
    title: str
    platforms: Sequence[str]
    plugin: str
    nodes: Sequence[str]
    pci_vendor: str
    pci_devices: frozenset[str] = frozenset()

    @property
    def has_plugin(self) -> bool:
        return any(self.plugin in name for name in _plugins())

    @property
    def is_on_host(self) -> bool:
        folders = [path for path in PCI_BUS.glob("*") if _text(path / "vendor") == self.pci_vendor]
        is_on_bus = any(not self.pci_devices or _text(path / "device") in self.pci_devices for path in folders)
        return is_on_bus or any(Path(node).exists() for node in self.nodes)


def set_memory_share(environment: MutableMapping[str, str], share: float) -> None:
    """Lets jax take this share of a GPU at most, or the user's own share where there is one.

    The variable has had two names. Where both are set jaxlib raises, and jax goes on without CUDA.
    """
    environment[MEMORY_SHARE] = users_memory_share(environment) or str(share)
    environment.pop(DEPRECATED_MEMORY_SHARE, None)


def users_memory_share(environment: Mapping[str, str]) -> str:
    """The share that the user set, under either name; empty where there is none."""
    return environment.get(MEMORY_SHARE) or environment.get(DEPRECATED_MEMORY_SHARE, "")


def jax_missing(family: str) -> str:
    """Why jax cannot be used, empty where it can. Imports nothing."""
    return "" if find_spec("jax") else f"jax is not installed: pip install pytest-npubench[{family}]"


def probe_jax(sought: Sought, timeout_s: float) -> Probe:
    """Returns the devices of one of the platforms, in jax's order.

    The probe is failed where their plugin is installed and did not start: nobody knows then whether there are devices.
    """
    if missing := jax_missing(sought.family):
        return Probe(reason=missing)
    title = sought.title
    # takes nothing of a GPU, and reports all that it has: by default the limit that jax tells is three quarters of it
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", MEMORY_SHARE: "1.0"}
    set_memory_share(environment, 1.0)
    question = [sys.executable, "-c", _QUESTION, *sought.platforms]
    try:
        answer = guarded.run(question, limit_s=timeout_s, env=environment)
    except subprocess.TimeoutExpired:
        reason = f"no {title}: jax did not answer within {timeout_s:g} s (--npubench-probe-timeout)"
        return Probe(reason=reason, failed=sought.has_plugin)
    except OSError as error:
        return Probe(reason=f"no {title}: jax could not be asked: {error}", failed=sought.has_plugin)
    if answer.returncode:
        return Probe(reason=f"no {title}: jax failed: {last_line(answer.stderr)}", failed=sought.has_plugin)
    try:
        return _read(sought, *json.loads(last_line(answer.stdout)))
    except (ValueError, TypeError):
        reason = f"no {title}: jax gave no list of devices: {last_line(answer.stdout)}"
        return Probe(reason=reason, failed=sought.has_plugin)


def _read(sought: Sought, rows: list[Any], said: list[str], version: str) -> Probe:
    devices = [row for platform, *row in rows if platform in sought.platforms]
    if not devices:
        return _none(sought, sorted({row[0] for row in rows}), said)
    if "rocm" in version.lower():
        return Probe(reason=f"no {sought.title}: {devices[0][0]} under ROCm is not supported")
    return Probe(
        devices=tuple(
            Device(
                family=sought.family,
                ordinal=ordinal,
                name=name,
                memory_bytes=memory,
                uuid=uuid,
                unidentified=unidentified,
            )
            for ordinal, (name, memory, uuid, unidentified) in enumerate(devices)
        )
    )


def _none(sought: Sought, platforms: Sequence[str], said: Sequence[str]) -> Probe:
    """No device was found; the probe is failed unless what jax says of the plugin is that there is none."""
    limits = os.environ.get("JAX_PLATFORMS")  # the user's: jax looks for no others
    reason = f"no {sought.title}: jax found platforms {', '.join(platforms)}"
    reason += f", as JAX_PLATFORMS={limits} has it" if limits else ""
    about = [text for text in said if sought.plugin in text.lower() and any(word in text for word in FAILURES)]
    if not sought.has_plugin and sought.is_on_host:
        return Probe(
            reason=f"{reason}; the host has one, and jax no plugin: pip install pytest-npubench[{sought.family}]"
        )
    if not about or not sought.has_plugin:
        return Probe(reason=reason)
    is_absent = not sought.is_on_host and any(word in about[0] for word in NO_DEVICE)
    return Probe(reason=f"{reason}; {_first_line(about[0])}", failed=not is_absent)


def _plugins() -> Iterator[str]:
    """Yields the names of jax's plugins that are installed, and libtpu, which jax knows by itself. Imports none."""
    if find_spec("libtpu") or "TPU_LIBRARY_PATH" in os.environ:
        yield "libtpu"
    if folder := find_spec("jax_plugins"):
        yield from (module.name for module in pkgutil.iter_modules(folder.submodule_search_locations))
    yield from (point.value for point in metadata.entry_points(group="jax_plugins"))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _first_line(text: str) -> str:
    return text.splitlines()[0].strip()
