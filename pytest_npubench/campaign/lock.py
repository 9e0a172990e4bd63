"""One run on a device at a time, also between processes and users of a host.

The lock is the kernel's, on a file in the host's temporary folder: it falls with the process that held it, whatever
killed it. Beside it lies a note of who holds it, for the error that another run is told.
"""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_npubench.backends.protocol import Device
from pytest_npubench.errors import DeviceBusyError


@contextmanager
def device_lock(devices: Sequence[Device], timeout_s: float) -> Iterator[None]:
    """Hold all these devices, waiting up to timeout_s for each (below 0: for ever).

    Raises DeviceBusyError naming the device and the process that holds it.
    """
    with ExitStack() as held:
        for device in sorted(devices, key=lambda device: device.ordinal):
            held.enter_context(_one(device, timeout_s))
        yield


@contextmanager
def _one(device: Device, timeout_s: float) -> Iterator[None]:
    path = _folder() / f"{device.uuid or device.id.replace(':', '-')}.lock"
    note = path.with_suffix(".holder")
    try:
        with FileLock(path, timeout=timeout_s, mode=0o666):
            note.write_text(_holder(), encoding="utf-8")
            try:
                yield
            finally:
                with suppress(OSError):
                    note.unlink()
    except Timeout:
        raise DeviceBusyError(
            f"{device.id} ({device.name}) is in use by {_read(note)}; waited {timeout_s:g} s "
            "(--npubench-lock-timeout waits longer, -1 for ever)"
        ) from None


def _folder() -> Path:
    folder = Path(tempfile.gettempdir()) / "pytest-npubench-locks"
    folder.mkdir(exist_ok=True)
    with suppress(PermissionError):  # another user of the host made it
        folder.chmod(0o1777)
    return folder


def _holder() -> str:
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    return f"process {os.getpid()} of {getpass.getuser()} since {now}"


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8") or "another process"
    except OSError:
        return "another process"
