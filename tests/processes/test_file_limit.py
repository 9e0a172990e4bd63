"""The limit on open files: raised while it is needed, named where it cannot be, and no other error is taken for it."""

from __future__ import annotations

import errno
import resource
import socket

import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.processes import file_limit
from pytest_npubench.processes.file_limit import enough_files, ran_out


@pytest.fixture
def soft_limit():
    """soft_limit(number) sets it until the test ends, and gives the hard one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def lowered(number: int) -> int:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, before[1]))
        return before[1]

    yield lowered
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def _soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_soft_limit_is_raised_as_far_as_the_hard_one_goes_and_put_back(soft_limit):
    hard = soft_limit(200)
    if hard != resource.RLIM_INFINITY and hard < 1000:
        pytest.skip(f"{hard} files may be open here (ulimit -Hn), and this test wants 1000")
    with enough_files(500):
        assert 500 < _soft() <= 1000
    assert _soft() == 200
    with enough_files(10):
        assert _soft() == 200
    if hard != resource.RLIM_INFINITY:
        with enough_files(10 * hard):
            assert _soft() == hard


def test_an_error_for_want_of_files_is_ours_and_says_what_is_needed(soft_limit):
    soft_limit(200)
    words = r"ran out of files: \d+ may be open at once .* need 10000000\d{3};"
    with pytest.raises(MeasurementError, match=words), enough_files(10**10):
        raise OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(MeasurementError, match="this machine has none left to open"), enough_files(1):
        raise OSError(errno.ENFILE, "Too many open files in system")
    with pytest.raises(ConnectionRefusedError), enough_files(1):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


def test_what_does_not_say_so_itself_is_tried(monkeypatch):
    not_found = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    several = OSError("Multiple exceptions: [Errno 111] ..., [Errno 24] ...")
    assert not ran_out(not_found)
    assert not ran_out(several)

    def none_left(*arguments: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(file_limit.os, "open", none_left)
    assert ran_out(not_found)
    assert ran_out(several)
    assert not ran_out(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
