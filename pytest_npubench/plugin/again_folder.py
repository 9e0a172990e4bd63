"""The temporary folder of a fresh process that measures again. A run that is killed leaves it behind; a later one goes.

Its owner holds a lock on a file inside, which the kernel takes away from a killed process: a folder whose lock can be
had has no owner any more, whatever process ids say in another container.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

PREFIX = "npubench-again-"
OWNER = "owner.lock"


@contextmanager
def again_folder() -> Iterator[Path]:
    """A new folder, ours as long as this lasts."""
    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, FileLock(Path(name) / OWNER):
        yield Path(name)


def remove_left_over() -> None:
    """The folders whose owner is gone. One without a lock file, or another user's, is left alone.

    Everybody may put something into a temporary folder under such a name: what is a link, or open to others, is none
    of ours.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and (folder / OWNER).is_file() and _is_free(folder / OWNER):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_free(path: Path) -> bool:
    try:
        with FileLock(path, timeout=0):
            return True
    except (Timeout, OSError):
        return False
