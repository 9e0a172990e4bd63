"""One run a device: across processes, for groups, and with a note of who holds it."""

import os
import subprocess
import sys
import tempfile
from itertools import permutations

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.errors import DeviceBusyError

DEVICES = tuple(Device(family="fake", ordinal=ordinal, name="Fake accelerator") for ordinal in range(3))
HOLD = """
import sys
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock

device = Device(family="fake", ordinal=1, name="Fake accelerator", uuid=sys.argv[1] or None)
with device_lock([device], 5.0):
    print("held", flush=True)
    sys.stdin.read()
print("free", flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Locks of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / "pytest-npubench-locks"


@pytest.fixture
def hold():
    """hold(uuid) holds fake:1 in another process until its pipe is closed."""
    processes = []

    def start(uuid=""):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", HOLD, uuid], **pipes)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_a_device_held_elsewhere_is_busy_until_it_is_let_go(hold):
    process = hold()
    with pytest.raises(DeviceBusyError, match=rf"^fake:1 \(Fake accelerator\) is in use by process {process.pid} of "):
        device_lock(DEVICES[1:2], 0.0).__enter__()
    with device_lock(DEVICES[:1], 0.0):  # another device is none of its business
        pass
    output, _ = process.communicate("")  # the end of its input
    assert output == "free\n"
    with device_lock(DEVICES[1:2], 0.0):
        pass


def test_a_group_is_held_whole_or_not_at_all(hold):
    hold()
    with pytest.raises(DeviceBusyError, match=r"^fake:1 "), device_lock(DEVICES, 0.0):
        pytest.fail("one of the group is in use")
    with device_lock([DEVICES[0], DEVICES[2]], 0.0):  # neither was left locked
        pass


def test_any_order_of_a_group_locks_in_one_order(folder):
    """Else two runs could each hold what the other waits for."""
    for group in permutations(DEVICES):
        with device_lock(group, 0.0):
            taken = sorted((path.stat().st_mtime_ns, path.name) for path in folder.glob("*.holder"))
        assert [name for _, name in taken] == [f"fake-{ordinal}.holder" for ordinal in range(3)]


def test_a_uuid_names_the_device_wherever_it_is_counted(hold):
    process = hold("GPU-7")
    moved = Device(family="fake", ordinal=0, name="Fake accelerator", uuid="GPU-7")
    with pytest.raises(DeviceBusyError, match=rf"^fake:0 .* by process {process.pid} "):
        device_lock([moved], 0.0).__enter__()


def test_the_note_says_who_and_goes_with_the_lock(folder):
    with device_lock(DEVICES[:1], 0.0):
        assert (folder / "fake-0.holder").read_text().startswith(f"process {os.getpid()} of ")
    assert not (folder / "fake-0.holder").exists()


def test_a_note_of_a_killed_run_holds_nothing(folder, hold):
    process = hold()
    process.kill()
    process.wait()
    assert (folder / "fake-1.holder").exists()
    with device_lock(DEVICES[1:2], 0.0):
        assert (folder / "fake-1.holder").read_text().startswith(f"process {os.getpid()} of ")


def test_an_error_inside_lets_go():
    with pytest.raises(ZeroDivisionError), device_lock(DEVICES, 0.0):
        raise ZeroDivisionError
    with device_lock(DEVICES, 0.0):
        pass


def test_every_user_of_the_host_may_lock(folder):
    with device_lock(DEVICES[:1], 0.0):
        assert folder.stat().st_mode & 0o7777 == 0o1777
