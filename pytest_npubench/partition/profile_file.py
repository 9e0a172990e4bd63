"""A profile as a JSON file: written whole or not at all, read back equal, refused with path and place where wrong.

{"format": "npubench-partition-profile", "version": 2, "fingerprint": {...}, "options": {...}, "latencies": [...], ...}
Every list holds objects of one kind; their entries are the fields of the records in partition.profile.
Version 1 had no measured_alone: its profiles were all measured on open pairs, so they read as false.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from pytest_npubench.core.regular_file import read_text
from pytest_npubench.errors import FormatVersionError, PartitionError, StoreError
from pytest_npubench.partition.options import SplitOptions
from pytest_npubench.partition.profile import (
    CopyLatency,
    GraphTime,
    PartitionProfile,
    PartLatency,
    Slowdown,
    SyncLatency,
)

FORMAT = "npubench-partition-profile"
VERSION = 2
MAX_BYTES = 256 * 1024 * 1024
_LISTS = {
    "latencies": PartLatency,
    "copies": CopyLatency,
    "graphs": GraphTime,
    "slowdowns": Slowdown,
    "syncs": SyncLatency,
}
_FLAGS = ("decode_sync_inside", "prefill_sync_inside", "copy_inside", "measured_alone", "is_finished")
_ENTRIES = ("format", "version", "fingerprint", "options", *_LISTS, *_FLAGS, "gpu_threshold_tokens")
_Record = TypeVar("_Record")


def write_profile(path: Path, profile: PartitionProfile) -> None:
    """Raises StoreError naming the file where it cannot be written."""
    data = {"format": FORMAT, "version": VERSION, **asdict(profile), "fingerprint": dict(profile.fingerprint)}
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(_layout(data), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error


def read_profile(
    path: Path, *, facts: Mapping[str, str] | None = None, any_fingerprint: bool = False
) -> PartitionProfile:
    """facts: of this machine, against which the profile's are held (profile_fingerprint); None: of any machine.

    Raises StoreError naming file and place for what cannot be read or is no profile, FormatVersionError for another
    version, PartitionError for a profile measured elsewhere, unless any_fingerprint.
    """
    try:
        profile = _profile(path, _decoded(path))
    except PartitionError as error:
        raise StoreError(f"{path}: {error}") from error
    if facts is not None and not any_fingerprint and not profile.is_remote:
        try:
            profile.check_fingerprint(facts)
        except PartitionError as error:
            raise PartitionError(f"{path}: {error}") from None
    return profile


def _layout(data: Mapping[str, Any]) -> str:
    """A line for each record, so that two profiles can be compared by eye."""
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
        data = json.loads(text, parse_constant=_refuse)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        empty = " (the file is empty)" if not text.strip() else ""
        raise StoreError(f"{path}: line {error.lineno} column {error.colno}: {error.msg}{empty}") from None
    except (ValueError, RecursionError) as error:  # no UTF-8, a NaN, a number of too many digits, nested too deeply
        raise StoreError(f"{path}: {error}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise StoreError(f"{path}: no object with format {FORMAT!r}")
    if data.get("version") not in (1, VERSION):
        known = f"this release reads version 1 and {VERSION}"
        raise FormatVersionError(f"{path}: version {data.get('version')!r}; {known}")
    return data if data["version"] == VERSION else _from_version_1(path, data)


def _from_version_1(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    if "measured_alone" in data:
        raise StoreError(f"{path}: the profile: entry 'measured_alone' in version 1; it is of version {VERSION}")
    return {**data, "version": VERSION, "measured_alone": False}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a finite number")


def _profile(path: Path, data: dict[str, Any]) -> PartitionProfile:
    _check_names(path, "the profile", data, _ENTRIES)
    for name in _FLAGS:
        _check(path, name, data[name], bool)
    facts = data["fingerprint"]
    if not isinstance(facts, dict) or not all(isinstance(value, str) for value in facts.values()):
        raise StoreError(f"{path}: fingerprint: want an object of texts")
    if data["gpu_threshold_tokens"] is not None:
        _check(path, "gpu_threshold_tokens", data["gpu_threshold_tokens"], float)
    return PartitionProfile(
        fingerprint=tuple(facts.items()),
        options=_record(path, "options", SplitOptions, data["options"]),
        gpu_threshold_tokens=data["gpu_threshold_tokens"],
        **{name: _records(path, name, kind, data[name]) for name, kind in _LISTS.items()},
        **{name: data[name] for name in _FLAGS},
    )


def _records(path: Path, name: str, kind: type[_Record], items: object) -> Any:
    if not isinstance(items, list):
        raise StoreError(f"{path}: {name}: want a list, found {type(items).__name__}")
    return tuple(_record(path, f"{name}[{index}]", kind, item) for index, item in enumerate(items))


def _record(path: Path, place: str, kind: type[_Record], item: object) -> _Record:
    """A field's annotation says what its entry must be: str, int, float or a tuple of numbers."""
    annotations = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]
    if not isinstance(item, dict):
        raise StoreError(f"{path}: {place}: want an object, found {type(item).__name__}")
    _check_names(path, place, item, tuple(annotations))
    values = {name: _value(path, f"{place}.{name}", annotations[name], item[name]) for name in annotations}
    try:
        return kind(**values)
    except PartitionError as error:
        raise StoreError(f"{path}: {place}: {error}") from error


def _value(path: Path, place: str, annotation: str, value: object) -> object:
    if not annotation.startswith("tuple["):
        return _check(path, place, value, {"str": str, "int": int, "float": float}[annotation])
    if not isinstance(value, list) or (not value and place.endswith(("samples_s", "gpu", "npu"))):
        raise StoreError(f"{path}: {place}: want a list of numbers that is not empty")
    kind = int if "int" in annotation else float
    return tuple(_check(path, f"{place}[{index}]", item, kind) for index, item in enumerate(value))


def _check(path: Path, place: str, value: object, kind: type) -> object:
    """A whole number will do for a float, true for neither."""
    allowed = (int, float) if kind is float else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise StoreError(f"{path}: {place}: {value!r}; want {kind.__name__}")
    return float(value) if kind is float and isinstance(value, (int, float)) else value


def _check_names(path: Path, place: str, entries: Mapping[str, object], wanted: tuple[str, ...]) -> None:
    for name in sorted(entries.keys() ^ set(wanted)):
        problem = "no" if name in wanted else "unknown"
        raise StoreError(f"{path}: {place}: {problem} entry {name!r}; want {', '.join(wanted)}")
