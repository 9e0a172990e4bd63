"""Memory that processes share: named arrays in one anonymous file (memfd), as unified memory is on a phone's chip.

The owner allocates; a process that was handed the file descriptor sees the same arrays by name. The file has no name
in the file system, so nothing is left behind when its last holder ends, however it ends. Every array begins on a page
of its own, hence aligned for any vector unit, and its pages are reserved when it is made: memory that is short shows
as MeasurementError there, not as a bus error later.

The first pages hold the directory: a generation, a length, and that many bytes of JSON {name: [offset, shape, dtype]}.
One process allocates and frees at a time; the others follow by reading the directory again when it has changed.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

DIRECTORY_BYTES = 1 << 20
_GENERATION, _LENGTH, _NEXT_OFFSET = 0, 1, 2
_TEXT_AT = 64


class SharedArena:
    """Named arrays in one shared anonymous file. SharedArena() makes one, SharedArena(fd) joins one that is there.

    Raises DeviceUnavailableError where the system has no memfd (not Linux).
    """

    def __init__(self, fd: int | None = None) -> None:
        if not hasattr(os, "memfd_create"):
            raise DeviceUnavailableError("shared memory between compute units needs memfd_create (Linux)")
        self._fd = os.memfd_create("npubench-arena") if fd is None else fd
        if fd is None:
            os.ftruncate(self._fd, DIRECTORY_BYTES)
        self._map = mmap.mmap(self._fd, DIRECTORY_BYTES)
        with memoryview(self._map) as whole:
            self._words = whole[:_TEXT_AT].cast("q")
        if fd is None:
            self._words[_NEXT_OFFSET] = DIRECTORY_BYTES
            self._write({})
        self._arrays: dict[str, tuple[NDArray[Any], mmap.mmap]] = {}
        self._seen_generation = -1
        self._directory: dict[str, tuple[int, tuple[int, ...], str]] = {}

    @property
    def fd(self) -> int:
        """Returns the file descriptor, to hand to a child (subprocess `pass_fds`)."""
        return self._fd

    def allocate(self, name: str, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Returns a zeroed array of this name. Raises MeasurementError where it is there already or memory is short."""
        directory = dict(self._read())
        if name in directory:
            raise MeasurementError(f"shared array {name!r} is there already: {directory[name][1:]}")
        dtype = np.dtype(dtype)
        num_bytes = max(math.prod(shape) * dtype.itemsize, 1)
        offset = self._words[_NEXT_OFFSET]
        self._reserve(name, offset, num_bytes)
        self._words[_NEXT_OFFSET] = _up_to_page(offset + num_bytes)
        directory[name] = (offset, tuple(int(size) for size in shape), dtype.str)
        self._write(directory)
        return self.view(name)

    def view(self, name: str) -> NDArray[Any]:
        """Returns the array of this name, whoever allocated it. Raises MeasurementError where there is none."""
        directory = self._read()
        if name not in self._arrays:
            if name not in directory:
                raise MeasurementError(f"no shared array {name!r}; there are {', '.join(sorted(directory)) or 'none'}")
            self._arrays[name] = self._mapped(*directory[name])
        return self._arrays[name][0]

    def __contains__(self, name: str) -> bool:
        return name in self._read()

    def free(self, name: str) -> None:
        """Give the array's pages back to the system; whoever still looks at it sees zeros."""
        directory = dict(self._read())
        self.view(name)
        mapped = self._arrays.pop(name)[1]
        mapped.madvise(mmap.MADV_REMOVE)
        del directory[name]
        self._write(directory)

    def close(self) -> None:
        """Let go of all arrays and of the file; views taken before stay readable. May be called twice."""
        self._arrays.clear()
        if self._fd >= 0:
            self._words.release()
            self._map.close()
            os.close(self._fd)
            self._fd = -1

    def _mapped(self, offset: int, shape: tuple[int, ...], dtype: str) -> tuple[NDArray[Any], mmap.mmap]:
        num_bytes = max(math.prod(shape) * np.dtype(dtype).itemsize, 1)
        mapped = mmap.mmap(self._fd, num_bytes, offset=offset)
        return np.frombuffer(mapped, dtype=dtype, count=math.prod(shape)).reshape(shape), mapped

    def _reserve(self, name: str, offset: int, num_bytes: int) -> None:
        available = available_memory_bytes()
        if available is not None and num_bytes > available:
            raise MeasurementError(
                f"shared array {name!r} takes {_readable(num_bytes)}; {_readable(available)} of memory are free"
            )
        try:
            os.posix_fallocate(self._fd, offset, _up_to_page(num_bytes))
        except OSError as error:
            raise MeasurementError(f"shared array {name!r} of {_readable(num_bytes)}: {error.strerror}") from None

    def _read(self) -> dict[str, tuple[int, tuple[int, ...], str]]:
        if self._fd < 0:
            raise MeasurementError("this shared memory was closed")
        if self._seen_generation != self._words[_GENERATION]:
            self._seen_generation = self._words[_GENERATION]
            text = self._map[_TEXT_AT : _TEXT_AT + self._words[_LENGTH]]
            before, self._directory = (
                self._directory,
                {name: (offset, tuple(shape), dtype) for name, (offset, shape, dtype) in json.loads(text).items()},
            )
            # an array that was freed, or freed and made anew elsewhere, must not be served from before
            same = {name for name, place in self._directory.items() if before.get(name) == place}
            self._arrays = {name: held for name, held in self._arrays.items() if name in same}
        return self._directory

    def _write(self, directory: dict[str, tuple[int, tuple[int, ...], str]]) -> None:
        text = json.dumps(directory).encode()
        if len(text) > DIRECTORY_BYTES - _TEXT_AT:
            raise MeasurementError(
                f"{len(directory)} shared arrays: their directory has room for {DIRECTORY_BYTES} bytes"
            )
        self._map[_TEXT_AT : _TEXT_AT + len(text)] = text
        self._words[_LENGTH] = len(text)
        self._words[_GENERATION] += 1


def available_memory_bytes() -> int | None:
    """What the system can still give, the process's control group considered; None where it does not say."""
    return min(
        (found for found in (_system_available_bytes(), _group_available_bytes()) if found is not None), default=None
    )


def _system_available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _group_available_bytes() -> int | None:
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
    except OSError:
        return None
    return None if limit == "max" else max(int(limit) - int(used), 0)


def _up_to_page(num_bytes: int) -> int:
    page = mmap.ALLOCATIONGRANULARITY
    return -(-num_bytes // page) * page


def _readable(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
