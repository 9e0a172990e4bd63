"""Reading a file that a user named: a regular file of bounded size, or an error that says what it is instead.

A pipe would wait for its writer, /dev/zero never ends, a folder and a socket hold no text, and a giant is another file
by mistake. Every reader of the project's own and of users' files goes through here.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

GZIP = b"\x1f\x8b"  # the first bytes of what it packed
SMALL_BYTES = 16 * 1024 * 1024
"""Of files that people write by hand, such as hardware files and settings."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def opened(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """The file, open for reading. Raises OSError, also for what is no regular file or has more than `max_bytes`; its
    strerror says which."""
    _check(path.stat(), max_bytes)  # before it is opened: opening some devices does something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe put there since is not waited for
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), max_bytes)
        yield file


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """The file's content. Raises OSError as `opened`, also where it grows beyond the limit while it is read."""
    with opened(path, max_bytes) as file:
        return read_rest(file, max_bytes)


def read_text(path: Path, max_bytes: int) -> str:
    """The file's content as UTF-8, unpacked, without a byte order mark. Raises OSError as `unpacked`,
    UnicodeDecodeError."""
    with unpacked(path, max_bytes) as file:
        return read_rest(file, max_bytes).decode("utf-8-sig")


@contextmanager
def unpacked(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """As `opened`; what gzip has packed is unpacked while it is read. Raises OSError also for a damaged pack."""
    with opened(path, max_bytes) as file:
        if file.read(2) != GZIP:
            file.seek(0)
            yield file
            return
        import gzip
        import zlib

        file.seek(0)
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                yield cast(BinaryIO, stream)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise OSError(errno.EIO, f"is damaged: {error}") from error


def read_rest(file: BinaryIO, max_bytes: int) -> bytes:
    """What an opened file still holds. Raises OSError where that is more than `max_bytes`."""
    content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large(f"more than {max_bytes}", max_bytes)
    return content


def check_kind(status: os.stat_result, *, devices: bool = False) -> None:
    """Raises OSError, whose strerror says what it is, for what is no regular file, nor a device where these may be."""
    if not (stat.S_ISREG(status.st_mode) or (devices and stat.S_ISCHR(status.st_mode))):
        what = KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
        code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
        raise OSError(code, f"is {what}; want a file")


def _check(status: os.stat_result, max_bytes: int) -> None:
    check_kind(status)
    if status.st_size > max_bytes:
        raise _too_large(str(status.st_size), max_bytes)


def _too_large(num_bytes: str, max_bytes: int) -> OSError:
    return OSError(errno.EFBIG, f"has {num_bytes} bytes; at most {max_bytes} are read")
