"""A device in use is waited for once a run: what comes later looks, and waits no more."""

import os
import subprocess
import sys

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import SCOPE, device_lock
from pytest_npubench.errors import DeviceBusyError
from pytest_npubench.plugin.campaigns import BusyDevices

DEVICES = (Device(family="fake", ordinal=0, name="Fake accelerator"),)
HOLD = """
import sys
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
with device_lock((Device(family="fake", ordinal=0, name="Fake accelerator"),), 0):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def scope(monkeypatch, tmp_path):
    monkeypatch.setenv(SCOPE, str(tmp_path))


def test_a_device_that_was_waited_for_in_vain_is_only_looked_at(scope):
    busy = BusyDevices()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DeviceBusyError, match=r"waited 0\.1 s") as first, busy.lock(DEVICES, 0.1):
            pytest.fail("it is held")
        with pytest.raises(DeviceBusyError) as second, busy.lock(DEVICES, 1000.0):
            pytest.fail("it is held")
        assert second.value is first.value
        with pytest.raises(DeviceBusyError) as third:
            busy.check(DEVICES)
        assert third.value is first.value
        holder.stdin.close()
        holder.wait()
    busy.check(DEVICES)
    with busy.lock(DEVICES, 0.0), pytest.raises(DeviceBusyError), device_lock(DEVICES, 0.0):
        pytest.fail("it is held again")
