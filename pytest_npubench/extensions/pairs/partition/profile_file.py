"""A profile as a JSON file: written whole or not at all, read back equal, refused with path and place where wrong.

{"format": "npubench-partition-profile", "version": 1, "fingerprint": {...}, "options": {...}, "latencies": [...], ...}
Every list holds objects of one kind; their entries are the fields of the records in partition.profile.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.record_reader import JSON, WrongEntryError
from pytest_npubench.core.regular_file import read_text, replace_text
from pytest_npubench.errors import FormatVersionError, PartitionError, StoreError
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.unit import UnitPair
from pytest_npubench.store.fingerprint import cpu_model, installed

FORMAT = "npubench-partition-profile"
VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


LIBRARIES = ("numpy", "torch", "jax", "jaxlib", "openvino")


def machine_facts(cpuinfo: Path = Path("/proc/cpuinfo")) -> dict[str, str]:
    """Returns the processor and the libraries that units run on, without importing or opening any of them."""
    return {"processor": cpu_model(cpuinfo), "system": platform.system(), **dict(installed(LIBRARIES))}


def pair_facts(pair: UnitPair) -> dict[str, str]:
    """Returns the facts of the machine and of both units."""
    return {**machine_facts(), "gpu": pair.gpu.name, "npu": pair.npu.name}


def write_profile(path: Path, profile: PartitionProfile) -> None:
    """Raises StoreError naming the file where it cannot be written."""
    data = {"format": FORMAT, "version": VERSION, **asdict(profile), "fingerprint": dict(profile.fingerprint)}
    try:
        replace_text(path, _layout(data))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def read_profile(
    path: Path, *, facts: Mapping[str, str] | None = None, any_fingerprint: bool = False
) -> PartitionProfile:
    """facts: of this machine, against which the profile's are held (machine_facts); None: of any machine.

    Raises StoreError naming file and place for what cannot be read or is no profile, FormatVersionError for another
    version, PartitionError for a profile measured elsewhere, unless any_fingerprint.
    """
    profile = _profile(path, _decoded(path))
    if facts is not None and not any_fingerprint:
        try:
            profile.check_fingerprint(facts)
        except PartitionError as error:
            raise PartitionError(f"{path}: {error}") from None
    return profile


def _layout(data: Mapping[str, Any]) -> str:
    """Returns a line for each record, so that two profiles can be compared by eye."""
    lines = []
    for name, value in data.items():
        if isinstance(value, (list, tuple)) and value:
            items = ",\n  ".join(json.dumps(item, allow_nan=False) for item in value)
            lines.append(f" {json.dumps(name)}: [\n  {items}\n ]")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value, allow_nan=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _decoded(path: Path) -> dict[str, Any]:
    try:
        text = read_text(path, MAX_BYTES)
        data = json_value(text, partial(json.loads, parse_constant=_refuse))
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        empty = " (the file is empty)" if not text.strip() else ""
        raise StoreError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}{empty}") from None
    except ValueError as error:  # no UTF-8, a NaN, a number of too many digits, nested too deeply
        raise StoreError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f"{path}: no object with format {FORMAT!r}")
    if data.get("version") != VERSION:
        raise FormatVersionError(f"{path}: version {data.get('version')!r}; this release reads version {VERSION}")
    return data


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a finite number")


def _profile(path: Path, data: dict[str, Any]) -> PartitionProfile:
    try:
        return JSON.record(PartitionProfile, data, others=("format", "version"))
    except WrongEntryError as error:
        raise StoreError(f"{path}: {error}") from error
