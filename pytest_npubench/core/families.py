"""The device families: what markers, hardware files and tests ask of one before any of its devices is looked for.

A distribution adds a family by an entry point of the group `pytest_npubench.backends`: its name is the family's, its
value a backend (backends/protocol.py) with a `Family` as `declares`. Of this package's own families the backend is
backends/NAME.py. Nothing here imports a backend of ours; one of another distribution is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.core.entry_points import Entry
from pytest_npubench.core.registry import Registry
from pytest_npubench.errors import BrokenEntryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a device family declares. `about` stands behind its marker in `pytest --markers`.

    classes: which of "gpu" and "npu" its devices can be of; a test marked so runs on a family that runs_programs.
    runs_programs: whether a program of this machine runs there; phones of AI Hub take graphs alone, as jobs.
    jax_platform: the platform by which jax opens its devices; None where something else does. has_torch: whether torch
    runs there. one_process: a process that opened a device keeps it until it exits. hardware: a folder of hardware
    files beside the shipped one.
    """

    name: str
    about: str
    classes: tuple[str, ...] = ()
    runs_programs: bool = True
    jax_platform: str | None = None
    has_torch: bool = False
    one_process: bool = False
    hardware: Path | None = None


OWN = {
    family.name: family
    for family in (
        Family(name="cpu", about="needs the host's processors", jax_platform="cpu", has_torch=True),
        Family(name="cuda", about="needs an NVIDIA GPU", classes=("gpu",), jax_platform="cuda", has_torch=True),
        Family(name="tpu", about="needs a Google TPU", classes=("npu",), jax_platform="tpu", one_process=True),
        Family(name="neuron", about="needs an AWS Inferentia or Trainium device", classes=("npu",), one_process=True),
        Family(
            name="qualcomm",
            about="needs a Snapdragon device on Qualcomm AI Hub",
            classes=("npu",),
            runs_programs=False,
        ),
        Family(name="openvino", about="needs an Intel NPU or GPU", classes=("npu", "gpu")),
        Family(
            name="server",
            about="needs an OpenAI-compatible server at NPUBENCH_SERVER_URL; its suite has this marker too",
        ),
    )
}


OF_EXTENSIONS = {"qualcomm": "compilers"}
"""The families of ours whose backend an extension registers, with the extension's name."""


def _is_backend(thing: Any, name: str) -> bool:
    if name in OWN:
        return getattr(thing, "family", None) == name
    declares = getattr(thing, "declares", None)
    return (
        isinstance(declares, Family)
        and declares.name == name == getattr(thing, "family", None)
        and not isinstance(thing, type)
        and callable(getattr(thing, "probe", None))
        and callable(getattr(thing, "open", None))
    )


BACKENDS: Registry[Any] = Registry(
    what="device family",
    group="pytest_npubench.backends",
    package="pytest_npubench.backends",
    attribute="BACKEND",
    named="family",
    fits=_is_backend,
    want="backend that declares a Family of name {name}",
    files=tuple(name for name in OWN if name not in OF_EXTENSIONS),
    first=tuple(OWN),
    reserved=tuple(OWN),
)


def names() -> tuple[str, ...]:
    """Every family: our own in their fixed order, then those of other distributions. Imports nothing."""
    return (*OWN, *BACKENDS.others())


def markers() -> Iterator[tuple[str, str]]:
    """Each family's marker and what stands behind it. Imports nothing."""
    yield from ((family.name, family.about) for family in OWN.values())
    yield from ((name, _unknown(entry).about) for name, entry in BACKENDS.others().items())


def declared(name: str) -> Family:
    """What the family declares. A family that cannot be loaded declares its name alone: its devices are reported as
    absent, with the reason, when they are looked for. Raises RegistryError on an unknown name."""
    if name in OWN:
        return OWN[name]
    try:
        family: Family = BACKENDS.get(name).declares
    except BrokenEntryError:
        return _unknown(BACKENDS.others()[name])
    return family


def all_families() -> tuple[Family, ...]:
    return tuple(map(declared, names()))


def faults() -> tuple[str, ...]:
    """Returns a sentence for each family of another distribution that cannot be loaded, or has the name of a family of
    ours."""
    sentences = list(BACKENDS.taken())
    for name in BACKENDS.others():
        try:
            BACKENDS.get(name)
        except BrokenEntryError as error:
            sentences.append(str(error))
    return tuple(sentences)


def _unknown(entry: Entry) -> Family:
    return Family(name=entry.name, about=f"a device family of {entry.origin}")
