"""Baseline files on the disk: baselines/<hardware>/<suite>-<key digest>.json, reviewed and kept in git.

A file holds one suite under one fingerprint key, so a driver or compiler upgrade begins a new file, and the old one
stays as it is until a person prunes it. Beside them lies aliases.json, the renamed cases. Whatever cannot be read is an
error with path and place, never an empty baseline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pytest_npubench.core.record_reader import WrongEntryError
from pytest_npubench.core.regular_file import read_bytes, replace_text, sync_directory
from pytest_npubench.errors import BaselineError, FormatVersionError
from pytest_npubench.store import aliases
from pytest_npubench.store.aliases import Aliases, alias_path
from pytest_npubench.store.baseline_format import FORMAT, VERSION, BaselineFile
from pytest_npubench.store.json_text import JsonError, decode, layout, take

LOCK_TIMEOUT_S = 60
PUBLISHED = "published"  # figures out of papers, in a format of their own
MAX_BYTES = 64 * 1024 * 1024  # 100 cases of 25 sessions are 5 MB: what is larger is another file by mistake

_Read = TypeVar("_Read")


def baseline_paths(directory: Path) -> tuple[Path, ...]:
    """The baseline files under `directory`, relative to it; not those in `published` or a hidden folder.

    Raises BaselineError on a link or a JSON file out of place, OSError where a folder cannot be read.
    """
    files = sorted(Path(folder, name).relative_to(directory) for folder, name in _json_files(directory))
    paths = [path for path in files if path != Path(aliases.FILE_NAME)]
    for path in paths:
        if len(path.parts) != 2:
            raise BaselineError(f"baseline {directory / path}: out of place; want {directory}/HARDWARE/SUITE-KEY.json")
    return tuple(paths)


def read_baseline_file(directory: Path, relative_path: Path) -> BaselineFile:
    """Raises BaselineError naming file and place, FormatVersionError where the version is not known."""
    path = directory / relative_path
    file = _read(path, FORMAT, VERSION, BaselineFile.from_json)
    if file.relative_path != relative_path:
        raise BaselineError(f"baseline {path}: its hardware, suite and key belong in {directory / file.relative_path}")
    return file


def write_baseline_file(directory: Path, file: BaselineFile) -> Path:
    """Replace the file as a whole; the caller holds the lock. Raises OSError."""
    return _replace(directory / file.relative_path, file.to_json())


def remove_baseline_file(directory: Path, file: BaselineFile) -> None:
    """The caller holds the lock. Raises OSError."""
    path = directory / file.relative_path
    path.unlink()
    sync_directory(path.parent)


def read_aliases(directory: Path) -> Aliases:
    """No aliases where there is no such file. Raises BaselineError and FormatVersionError as read_baseline_file."""
    path = alias_path(directory)
    if not os.path.lexists(path):
        return Aliases()
    return _read(path, aliases.FORMAT, aliases.VERSION, Aliases.from_json)


def write_aliases(directory: Path, content: Aliases) -> Path:
    """Replace the file as a whole; the caller holds the lock. Raises OSError."""
    return _replace(alias_path(directory), content.to_json())


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


def _read(path: Path, form: str, version: int, parse: Callable[[Any], _Read]) -> _Read:
    try:
        content = decode(read_bytes(path, MAX_BYTES))
        if take(content, "format", (str,)) != form:
            raise JsonError(f"format: want {form!r}, found {content['format']!r}")
        if (written := take(content, "version", (int,))) != version:
            raise FormatVersionError(f"baseline {path}: written by format {written}; this version reads {version}")
        return parse(content)
    except OSError as error:
        raise BaselineError(f"baseline {path}: {error.strerror}") from error
    except WrongEntryError as error:
        raise BaselineError(f"baseline {path}: {error}") from None
    except JsonError as error:
        where = f" line {error.line} column {error.column}" if error.line else ""
        remedy = "; the file is damaged: restore it, as from git" if error.line else ""
        raise BaselineError(f"baseline {path}{where}: {error}{remedy}") from None


def _replace(path: Path, content: Any) -> Path:
    """Raises BaselineError on more than a file of ours has, OSError."""
    text = layout(content) + "\n"
    if len(text) > MAX_BYTES:
        raise BaselineError(f"baseline {path}: {len(text)} bytes to write; a file of ours has at most {MAX_BYTES}")
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)
    return path


def _json_files(directory: Path) -> Iterator[tuple[str, str]]:
    """(folder, name) of what is named like a JSON file; a folder of such a name too, since reading it is an error.
    Raises BaselineError on a link, which might lead out of the directory or round in it for ever."""
    for folder, subfolders, names in os.walk(directory, onerror=_raise):
        for path in (Path(folder, name) for name in (*subfolders, *names)):
            if path.is_symlink():
                raise BaselineError(f"baseline {path}: is a link; want plain files in folders")
        is_top = Path(folder) == directory
        subfolders[:] = [name for name in subfolders if name[0] != "." and not (is_top and name == PUBLISHED)]
        yield from ((folder, name) for name in (*names, *subfolders) if name.endswith(".json"))


def _raise(error: OSError) -> None:
    raise error  # os.walk, as Path.rglob, would pass over a folder that it may not read: an empty baseline
