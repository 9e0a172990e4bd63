"""One run a device: across processes, users and temporary folders, for groups, and with the name of who holds it."""

import os
import subprocess
import sys
import tempfile
import time

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign import lock as lock_module
from pytest_npubench.campaign.lock import SCOPE, device_lock, lock_name, user_name
from pytest_npubench.errors import DeviceBusyError, DeviceUnavailableError

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
NAMELESS = 54321
# where another test of this process imported jax, it warns of each fork
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning"),
]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be other users")


@pytest.fixture(autouse=True)
def scope(tmp_path, monkeypatch):
    """Locks of this test alone."""
    monkeypatch.setenv(SCOPE, str(tmp_path))


@pytest.fixture
def hold():
    """hold(uuid) holds fake:1 in another process until its pipe is closed."""
    processes = []

    def start(uuid="", **options):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        process = subprocess.Popen([sys.executable, "-c", HOLD, uuid], **pipes, **options)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def in_fork(what, uid=0):
    """What a fork of this process, under another user's id, has to say: the text that `what` returns."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            os.write(writing, what().encode())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test is told
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        said = file.read()
    os.waitpid(pid, 0)
    return said


def tries():
    with device_lock(DEVICES[1:2], 0.0):
        return "got it"


def test_a_device_held_elsewhere_is_busy_until_it_is_let_go(hold):
    process = hold()
    with pytest.raises(DeviceBusyError, match=rf"^fake:1 \(Fake accelerator\) is in use by process {process.pid} \("):
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


def test_any_order_of_a_group_locks_in_one_order(monkeypatch):
    """Else two runs could each hold what the other waits for."""
    taken = []
    bound = lock_module._bound
    monkeypatch.setattr(lock_module, "_bound", lambda device, name: taken.append(device.ordinal) or bound(device, name))
    with device_lock([DEVICES[2], DEVICES[0], DEVICES[1]], 0.0):
        assert taken == [0, 1, 2]


def test_a_uuid_names_the_device_wherever_it_is_counted(hold):
    process = hold("GPU-7")
    moved = Device(family="fake", ordinal=0, name="Fake accelerator", uuid="GPU-7")
    with pytest.raises(DeviceBusyError, match=rf"^fake:0 .* by process {process.pid} "):
        device_lock([moved], 0.0).__enter__()


def test_a_killed_holder_holds_nothing(hold):
    process = hold()
    process.kill()
    process.wait()
    with device_lock(DEVICES[1:2], 0.0):
        pass


def test_whoever_waits_has_it_once_it_is_free(hold):
    process = hold()
    process.stdin.close()
    with device_lock(DEVICES[1:2], 30.0):
        pass


def test_an_error_inside_lets_go():
    with pytest.raises(ZeroDivisionError), device_lock(DEVICES, 0.0):
        raise ZeroDivisionError
    with device_lock(DEVICES, 0.0):
        pass


def test_a_fork_neither_has_the_lock_nor_keeps_it():
    """A worker that a measured callable starts may live longer than the measurement."""
    with device_lock(DEVICES[1:2], 0.0):
        assert in_fork(tries).startswith("DeviceBusyError: ")
        reading, writing = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.close(writing)
            os.read(reading, 1)  # until its parent is done
            os._exit(0)
    with device_lock(DEVICES[1:2], 10.0):  # once the worker has come to itself
        os.close(writing)
    os.close(reading)
    os.waitpid(worker, 0)


@as_root
@pytest.mark.parametrize("uid", [65534, NAMELESS])
def test_a_lock_holds_between_users_and_says_whose_it_is(uid):
    with device_lock(DEVICES[1:2], 0.0):
        assert f"is in use by process {os.getpid()} (" in (said := in_fork(tries, uid))
        assert f") of {user_name(0)}; waited 0 s" in said
    assert in_fork(tries, uid) == "got it"

    def holds():
        with device_lock(DEVICES[1:2], 0.0):
            return in_fork(tries)

    assert f"of {user_name(uid)}; waited" in in_fork(holds, uid)


def test_a_user_without_a_name_is_its_number():
    assert user_name(NAMELESS) == f"user {NAMELESS}"


@as_root
def test_a_user_without_a_name_may_lock(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    assert in_fork(tries, NAMELESS) == "got it"


@pytest.mark.parametrize("what", ["link to a folder", "link to a file", "pipe", "file", "a folder of another's"])
def test_what_lies_in_the_temporary_folder_is_none_of_its_business(tmp_path, monkeypatch, what):
    """Where locks and notes were files, links there were followed and a pipe hung the run."""
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.mkdir(mode=0o700)
    (victim / "fake-1.holder").write_text("precious")
    place = shared / "pytest-npubench-locks"
    if what == "link to a folder":
        place.symlink_to(victim)
    elif what == "file":
        place.write_text("")
    else:
        place.mkdir(mode=0o500 if what == "a folder of another's" else 0o777)
        for name in ("fake-1.lock", "fake-1.holder"):
            if what == "link to a file":
                (place / name).symlink_to(victim / "fake-1.holder")
            elif what == "pipe":
                os.mkfifo(place / name)
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert tries() == "got it"
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
    assert victim.stat().st_mode & 0o777 == 0o700
    assert (victim / "fake-1.holder").read_text() == "precious"


def test_users_with_temporary_folders_of_their_own_meet(hold, tmp_path, monkeypatch):
    process = hold(env={**os.environ, "TMPDIR": "/nowhere"})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(DeviceBusyError, match=f"process {process.pid} "):
        tries()


def test_a_scope_of_its_own_meets_nobody(hold, monkeypatch):
    hold()
    monkeypatch.setenv(SCOPE, "another")
    assert tries() == "got it"


def test_names_of_any_length_are_different():
    names = {
        lock_name(Device(family="fake", ordinal=0, name="", uuid=uuid))
        for uuid in (None, "GPU-1", "é", "x" * 300, "x" * 301)
    }
    assert len(names) == 5
    assert all(len(name) <= 107 and name[:1] == b"\0" for name in names)


def test_a_holder_that_was_asked_too_often_is_another_process(monkeypatch):
    monkeypatch.setattr(lock_module, "MAX_ASKED", 0)
    with device_lock(DEVICES[1:2], 0.0):
        said = [in_fork(tries) for _ in range(4)]
    assert "in use by process" in said[0]
    assert "in use by another process; waited" in said[-1]


def test_a_system_without_such_names_is_named(monkeypatch):
    class Refused:
        def bind(self, name):
            raise PermissionError(13, "Permission denied")

        def close(self):
            pass

    monkeypatch.setattr(lock_module.socket, "socket", lambda *_: Refused())
    with pytest.raises(
        DeviceUnavailableError, match=r"^fake:1 \(Fake accelerator\) cannot be locked: Permission denied$"
    ):
        tries()


def test_a_run_that_waits_does_not_wait_long_past_its_time(hold):
    hold()
    started_s = time.monotonic()
    with pytest.raises(DeviceBusyError, match=r"waited 0\.2 s"):
        device_lock(DEVICES[1:2], 0.2).__enter__()
    assert time.monotonic() - started_s >= 0.2


def test_whoever_waits_is_told_once_for_whom(hold):
    process = hold()
    said = []
    with pytest.raises(DeviceBusyError):
        device_lock(DEVICES, 0.2, said.append).__enter__()
    assert len(said) == 1
    assert said[0].startswith(f"fake:1 (Fake accelerator) is in use by process {process.pid} (")
    assert said[0].endswith("; waiting 0.2 s")
