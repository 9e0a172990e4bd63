"""A site in its folder. Only files that carry the site's mark are replaced or removed; what else lies there stays.

Each file is replaced as a whole, index.html last: a site that was being written when its process was killed is the old
first page with some newer trends, and the next call finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.core.regular_file import opened, replace_text
from pytest_npubench.errors import StoreError
from pytest_npubench.reports.site import CASES, INDEX, MARK

MARKED_BYTES = 64
LARGEST_BYTES = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSite:
    """What a site takes on the disk."""

    index: Path
    num_cases: int
    num_bytes: int


def write_site(folder: Path, files: Iterable[tuple[str, str]]) -> WrittenSite:
    """Writes the files of a site, and removes pages of cases that it no longer has. Raises StoreError, before anything
    is written, where the folder has another first page, and for any other file of somebody else where one of ours
    belongs; OSError."""
    index = folder / INDEX
    _check(index)
    pages: set[Path] = set()
    num_bytes = 0
    for name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _check(path)
        replace_text(path, text)
        num_bytes += len(text.encode())
        pages.add(path)
    left = [path for path in (folder / CASES).glob("*.html") if path not in pages and _is_ours(path)]
    for path in left:
        path.unlink(missing_ok=True)
    return WrittenSite(index=index, num_cases=sum(path.parent.name == CASES for path in pages), num_bytes=num_bytes)


def _check(path: Path) -> None:
    if (path.exists() or path.is_symlink()) and not _is_ours(path):
        raise StoreError(
            f"{path}: is no file that `npubench site` wrote, and is not replaced; want another folder, an empty one or "
            "that of an earlier site"
        )


def _is_ours(path: Path) -> bool:
    try:
        with opened(path, LARGEST_BYTES) as file:
            return MARK.encode() in file.read(MARKED_BYTES)
    except OSError:
        return False
