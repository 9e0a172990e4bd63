"""A file of lines that several processes append to, and that a kill at any instant leaves readable.

One append: take the file's lock, drop what a killed writer left without a line end, write the line with one os.write,
fsync, release. A write that fails is cut back, so the file ends on a whole line. The lock is flock(2) on the file
itself: the kernel releases it when its holder dies, and no second file lies about. A child made by fork opens the
file anew, because an inherited descriptor shares its parent's lock.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from pytest_npubench.core import regular_file

SEARCH_BYTES = 65536


class LineFile:
    """A file opened for appending whole lines. Every method may raise OSError."""

    def __init__(self, path: Path, check_head: Callable[[bytes], None]) -> None:
        """Opens or creates `path`. `check_head` sees the first bytes (64 KiB) and raises if the file is not ours."""
        self._path = path.absolute()
        self._check_head = check_head
        self._open()

    @contextmanager
    def appending(self) -> Iterator[int]:
        """Nobody else appends while this lasts, neither a process nor a thread. Yields the bytes of a torn line that a
        killed writer left, which are dropped."""
        if self._pid != os.getpid():
            os.close(self._fd)
            self._open()
        with self._mutex, _locked(self._fd):
            yield _drop_torn_tail(self._fd)

    def write(self, line: bytes) -> None:
        """Add a line, which ends with a newline, and put it on the disk; only while `appending`."""
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        _write_whole(self._fd, line)

    def close(self) -> None:
        os.close(self._fd)

    def _open(self) -> None:
        self._pid = os.getpid()
        self._mutex = threading.Lock()  # flock does not keep threads apart that share a descriptor
        is_new = not self._path.exists()
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            regular_file.check_kind(os.fstat(self._fd), devices=True)  # which speak for themselves: /dev/full is full
            with _locked(self._fd):
                size = os.fstat(self._fd).st_size  # 0 for /dev/null and its like, which must not be read
                self._check_head(os.pread(self._fd, min(size, SEARCH_BYTES), 0))
            if is_new:
                regular_file.sync_directory(self._path.parent)
        except BaseException:
            os.close(self._fd)
            raise


@contextmanager
def opened_whole(path: Path, max_bytes: int) -> Iterator[tuple[BinaryIO, int, int]]:
    """The file for reading, where its last whole line ends, and the bytes of a torn line behind that.

    No append is half done there. Raises OSError, also for what regular_file.py refuses.
    """
    with regular_file.opened(path, max_bytes) as file:
        with suppress(OSError):  # a file system without locks still lets us read; a torn end is told apart anyway
            fcntl.flock(file, fcntl.LOCK_SH)
        end, size = _end_of_lines(file.fileno())
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
        yield file, end, size - end


def lines_before(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Each line before that place, without its line end, and where it begins."""
    start = 0
    while start < end and (line := file.readline()):
        yield start, line.removesuffix(b"\n")
        start += len(line)


@contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def _drop_torn_tail(descriptor: int) -> int:
    """Cut the file after its last newline: what stands behind it was never acknowledged. Returns the bytes cut."""
    end, size = _end_of_lines(descriptor)
    if end < size:
        os.ftruncate(descriptor, end)
    return size - end


def _end_of_lines(descriptor: int) -> tuple[int, int]:
    """Where the last whole line ends, and the file."""
    size = os.fstat(descriptor).st_size
    end = size
    while end > 0:
        start = max(0, end - SEARCH_BYTES)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    return end, size


def _write_whole(descriptor: int, line: bytes) -> None:
    end = os.fstat(descriptor).st_size
    try:
        num_written = os.write(descriptor, line)
        while num_written < len(line):  # a short write does not say why; the next one does, or completes the line
            num_written += os.write(descriptor, line[num_written:])
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # the reader and the next append drop a torn line too
            if os.fstat(descriptor).st_size > end:
                os.ftruncate(descriptor, end)
        raise
