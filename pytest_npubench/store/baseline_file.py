"""Baseline files on the disk: baselines/<hardware>/<suite>-<key digest>.json, reviewed and kept in git.

A file holds one suite under one fingerprint key, so a driver or compiler upgrade begins a new file, and the old one
stays as it is until a person deletes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_npubench.errors import BaselineError, FormatVersionError
from pytest_npubench.store.baseline_format import FORMAT, VERSION, BaselineFile
from pytest_npubench.store.json_text import JsonError, decode, layout, take
from pytest_npubench.store.line_file import sync_directory

LOCK_TIMEOUT_S = 60
PUBLISHED = "published"  # figures out of papers, in a format of their own


def baseline_paths(directory: Path) -> tuple[Path, ...]:
    """The baseline files under `directory`, relative to it; not those in `published` or a hidden folder.

    Raises BaselineError on a JSON file out of place, OSError where a folder cannot be read.
    """
    paths = sorted(Path(folder, name).relative_to(directory) for folder, name in _json_files(directory))
    for path in paths:
        if len(path.parts) != 2:
            raise BaselineError(f"baseline {directory / path}: out of place; want {directory}/HARDWARE/SUITE-KEY.json")
    return tuple(paths)


def read_baseline_file(directory: Path, relative_path: Path) -> BaselineFile:
    """Raises BaselineError naming file and place, FormatVersionError where the version is not known."""
    path = directory / relative_path
    try:
        content = decode(path.read_bytes())
        if take(content, "format", (str,)) != FORMAT:
            raise JsonError(f"format: want {FORMAT!r}, found {content['format']!r}")
        version = take(content, "version", (int,))
        if version != VERSION:
            raise FormatVersionError(f"baseline {path}: written by format {version}; this version reads {VERSION}")
        file = BaselineFile.from_json(content)
    except OSError as error:
        raise BaselineError(f"baseline {path}: {error.strerror}") from error
    except JsonError as error:
        place = f" line {error.line} column {error.column}" if error.line else ""
        raise BaselineError(f"baseline {path}{place}: {error}") from None
    if file.relative_path != relative_path:
        raise BaselineError(f"baseline {path}: its hardware, suite and key belong in {directory / file.relative_path}")
    return file


def write_baseline_file(directory: Path, file: BaselineFile) -> Path:
    """Replace the file as a whole: a kill leaves the old one or the new one. The caller holds the lock.

    A temporary file that a killed process left has the same name, so the next writer overwrites it. Raises OSError.
    """
    path = directory / file.relative_path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="ascii") as stream:
        stream.write(layout(file.to_json()) + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
    return path


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the directory's lock. Raises BaselineError where another process holds it for a minute."""
    import filelock  # 45 ms to import, which a run that accepts nothing need not pay

    # the journal's folder name, so that one line of a .gitignore covers both
    lock_path = directory / ".npubench" / "baselines.lock"
    lock_path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(lock_path, timeout=LOCK_TIMEOUT_S):
            yield
    except filelock.Timeout:
        raise BaselineError(
            f"baselines {directory}: another process has held {lock_path} for {LOCK_TIMEOUT_S} s"
        ) from None


def _json_files(directory: Path) -> Iterator[tuple[str, str]]:
    for folder, subfolders, names in os.walk(directory, onerror=_raise, followlinks=True):
        is_top = Path(folder) == directory
        subfolders[:] = [name for name in subfolders if name[0] != "." and not (is_top and name == PUBLISHED)]
        yield from ((folder, name) for name in names if name.endswith(".json"))


def _raise(error: OSError) -> None:
    raise error  # os.walk, as Path.rglob, would pass over a folder that it may not read: an empty baseline
