"""What a hardware file leaves out and takes from the file that it is `like`.

Devices of one maker differ in their names and peaks; buckets, models and run sizes are often the same. A file with
`like = "nvidia-h100"` takes each table that it lacks from that file, and of a table that both have each key that it
lacks. `false` in place of a table or a key leaves it out. What says which device it is, and what anybody says of it
alone, is never taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_npubench.core.record_reader import TomlTable, listed
from pytest_npubench.errors import did_you_mean

LIKE = "like"
OF_EACH_DEVICE = ("title", "probe", "peak", "compiler", "published", "price", "slo", "not_run", LIKE)


def completed(file: TomlTable, shipped: Path) -> TomlTable:
    """The file with what it takes from another: one of its own folder, or of `shipped`. Raises the file's error where
    there is no such file, or where that takes from a third one."""
    if LIKE not in file.entries:
        return file
    name = str(file.entries[LIKE])
    folders = (file.path.parent, shipped)
    path = next((path for folder in folders if (path := folder / f"{name}.toml").is_file()), None)
    if path is None or path == file.path:
        names = sorted({path.stem for folder in folders for path in folder.glob("*.toml")} - {file.path.stem})
        problem = f"no other hardware file is named {name!r}; known: {listed(names)}{did_you_mean(name, names)}"
        raise file.error(LIKE, problem)
    other = TomlTable.of(path, file.kind_of_error)
    if LIKE in other.entries:
        raise file.error(LIKE, f"{name!r} is itself like {other.entries[LIKE]!r}; want that one")
    taken = {key: value for key, value in other.entries.items() if key not in OF_EACH_DEVICE}
    return replace(file, entries=_merged(taken, file.entries, depth=2))


def _merged(taken: Mapping[str, object], entries: Mapping[str, object], *, depth: int) -> Mapping[str, object]:
    merged = {**taken, **entries}
    for key in taken.keys() & entries.keys():
        before, value = taken[key], entries[key]
        if value is False:
            del merged[key]
        elif depth > 1 and isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value, depth=depth - 1)
    return merged
