"""Files that a user named: read where they are regular and of bounded size, and replaced as wholes.

A pipe would wait for its writer, /dev/zero never ends, a folder and a socket hold no text, and a giant is another file
by mistake. Every reader of the project's own and of users' files goes through here, and every writer of a whole file:
what was there stays until the new content is on the disk.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

GZIP = b"\x1f\x8b"  # the first bytes of what it packed
SMALL_BYTES = 16 * 1024 * 1024
"""Of files that people write by hand, such as hardware files and settings."""
LEFT_S = 3600.0
"""How long nobody takes to write a file."""
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def opened(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """Gives the file, open for reading. Raises OSError, also for what is no regular file or has more than `max_bytes`;
    its strerror says which."""
    _check(path.stat(), max_bytes)  # before it is opened: opening some devices does something
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe put there since is not waited for
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), max_bytes)
        yield file


def read_bytes(path: Path, max_bytes: int) -> bytes:
    """Returns the file's content. Raises OSError as `opened`, also where it grows beyond the limit while it is read."""
    with opened(path, max_bytes) as file:
        return read_rest(file, max_bytes)


def read_text(path: Path, max_bytes: int) -> str:
    """Returns the file's content as UTF-8, unpacked, without a byte order mark. Raises OSError as `unpacked`,
    UnicodeDecodeError."""
    with unpacked(path, max_bytes) as file:
        return read_rest(file, max_bytes).decode("utf-8-sig")


@contextmanager
def unpacked(path: Path, max_bytes: int) -> Iterator[BinaryIO]:
    """Opens as `opened` does, and unpacks what gzip packed while it is read. Raises OSError for a damaged pack too."""
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


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Gives the new content of a file, to be written inside of the context, at whose end it takes the path's place.

    Where the context ends with an error or a kill, what was there stays. A kill leaves a hidden file beside it, which
    the first write in that folder after an hour removes. A link is replaced and not followed. A device or a pipe, such
    as /dev/stdout, is written to at once. Raises OSError.
    """
    mode = _mode_to_keep(path)
    if mode is None:
        with path.open("wb") as file:
            yield file
        return
    for left in path.parent.glob(".npubench-*.tmp"):
        with suppress(OSError):
            if time.time() - left.lstat().st_mtime > LEFT_S:
                left.unlink()
    beside = path.with_name(f".npubench-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(beside, flags, 0o666), "wb") as file:
            if mode:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename in (None, str(beside)):
            error.filename = str(path)
        with suppress(OSError):
            beside.unlink()
        raise
    sync_directory(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Puts a text, as UTF-8, in a file's place. Raises OSError as `replacing`."""
    with replacing(path) as file:
        file.write(text.encode("utf-8"))


def sync_directory(path: Path) -> None:
    """Put a file's new name on the disk, which fsync of the file itself does not do. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mode_to_keep(path: Path) -> int | None:
    """Returns the permissions of the file that will be replaced, 0 where there is none; None for what is no file to
    replace. Raises OSError where the file may not be written."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0
    is_stream = path.is_relative_to("/proc") or (path.is_relative_to("/dev") and not path.is_relative_to("/dev/shm"))
    if is_stream or not stat.S_ISREG(status.st_mode):  # /dev/stdout is a regular file where a shell redirects it
        return None
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return stat.S_IMODE(status.st_mode)


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
