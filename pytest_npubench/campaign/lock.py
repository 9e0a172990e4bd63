"""One run on a device at a time, between all processes and users of a host.

The lock is a name that the kernel gives to one socket at a time, in Linux' abstract namespace (unix(7)), and takes back
when the process that holds it ends, whatever killed it. It lies in no folder: there is no link to follow, no file that
another user owns, no temporary folder that one user has and the other has not. Who holds it the kernel knows, and tells
whoever asks (SO_PEERCRED): no note is written.

Containers with a network of their own have names of their own: a lock does not keep them apart. NPUBENCH_LOCK_SCOPE set
to any text does the same on purpose, as for tests that use no real device.
"""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import linux
from pytest_npubench.errors import DeviceBusyError, DeviceUnavailableError

SCOPE = "NPUBENCH_LOCK_SCOPE"
POLL_S = 0.05
MAX_NAME_BYTES = 100  # sun_path has 108, one of them the zero that makes a name abstract
MAX_ASKED = 1024  # how often a holder can be asked for its name before it lets go
PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid

_locks: set[socket.socket] = set()


@contextmanager
def device_lock(
    devices: Sequence[Device], timeout_s: float, on_wait: Callable[[str], None] = lambda text: None
) -> Iterator[None]:
    """Holds all these devices, waiting up to timeout_s for each (below 0: for ever). `on_wait(text)` is called once for
    each that is in use, before it is waited for, with the name of who has it.

    Raises DeviceBusyError naming the device and the process that holds it, DeviceUnavailableError where the system
    gives no such names.
    """
    with ExitStack() as locks:
        for device in sorted(devices, key=lambda device: device.ordinal):
            locks.enter_context(_device_lock(device, timeout_s, on_wait))
        yield


@contextmanager
def _device_lock(device: Device, timeout_s: float, on_wait: Callable[[str], None]) -> Iterator[None]:
    lock = _taken(device, timeout_s, on_wait)
    _locks.add(lock)
    try:
        yield
    finally:
        _locks.discard(lock)
        lock.close()


def _taken(device: Device, timeout_s: float, on_wait: Callable[[str], None]) -> socket.socket:
    name = lock_name(device)
    started_s = time.monotonic()
    is_waiting = False
    while (lock := _bound(device, name)) is None:
        in_use = f"{device.id} ({device.name}) is in use by"
        if 0 <= timeout_s <= time.monotonic() - started_s:
            raise DeviceBusyError(
                f"{in_use} {_holder(name)}; waited {timeout_s:g} s (--npubench-lock-timeout waits longer, -1 for ever)"
            )
        if not is_waiting:
            is_waiting = True
            on_wait(f"{in_use} {_holder(name)}; waiting {'for ever' if timeout_s < 0 else f'{timeout_s:g} s'}")
        time.sleep(POLL_S)
    return lock


def lock_name(device: Device) -> bytes:
    """Returns the device's own name wherever it is counted, else its number; a hash of one that is too long."""
    identity = device.uuid or device.id
    name = "/".join(("pytest-npubench", os.environ.get(SCOPE, ""), identity)).encode(errors="surrogateescape")
    if len(name) > MAX_NAME_BYTES:
        name = b"pytest-npubench/" + hashlib.sha256(name).hexdigest().encode()
    return b"\0" + name


def _bound(device: Device, name: bytes) -> socket.socket | None:
    """Returns the socket that has the name now; None where another has it."""
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(name)
        lock.listen(MAX_ASKED)
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise DeviceUnavailableError(f"{device.id} ({device.name}) cannot be locked: {error.strerror}") from error
    return lock


def _holder(name: bytes) -> str:
    """Who has the name: "process 4711 (python) of ann"; "another process" where it cannot be asked."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(name)
            pid, uid, _ = PEER.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
        except OSError:
            return "another process"
    who = f"process {pid}{_program(pid)}" if pid else "a process out of sight, in another container,"
    return f"{who} of {user_name(uid)}"


def _program(pid: int) -> str:
    _, _, name = linux.process_name(pid).partition(f"pid {pid} ")
    return f" ({name})" if name else ""


def user_name(uid: int) -> str:
    """Returns the user's name; "user 54321" for one without a name, as in a container."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _let_go() -> None:
    """Closes a forked child's copies of locks: a copy would keep the device when its parent lets go of it."""
    for lock in _locks:
        lock.close()
    _locks.clear()


os.register_at_fork(after_in_child=_let_go)
