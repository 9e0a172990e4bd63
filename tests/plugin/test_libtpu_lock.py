"""libtpu's real lock, which a process that has loaded libtpu holds until it ends. No TPU is needed to take it.

Skipped where libtpu is not installed (`pip install libtpu`). The devices are the fake's; the lock is not.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device

from .conftest import COMPARED
from .test_regression import SLOW_CASE, changed

pytestmark = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")

LOAD = """
import jax

def load_libtpu():
    jax.config.update("jax_platforms", "tpu")
    try:
        jax.devices("tpu")
    except RuntimeError as error:  # without a TPU: past the lock, or not
        if "lockfile" in str(error):
            raise
"""
OPEN = """
fake_open = fake_device.FakeBackend.open

def open_with_libtpu(self, devices, cache_dir):
    load_libtpu()
    return fake_open(self, devices, cache_dir)

fake_device.FakeBackend.open = open_with_libtpu
"""
TWO_PROCESSES = f"""{LOAD}
import subprocess, sys

load_libtpu()
if len(sys.argv) == 1:
    sys.exit(subprocess.call([sys.executable, __file__, "second"]))
"""
VARIABLES = {"TPU_ACCELERATOR_TYPE": "v5litepod-8", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_SKIP_MDS_QUERY": "1"}


def test_two_processes_at_once_meet_the_lock_unless_their_chips_are_told_apart(tmp_path):
    program = tmp_path / "two.py"
    program.write_text(TWO_PROCESSES, encoding="utf-8")

    def run(variables):
        command = [sys.executable, str(program)]
        return subprocess.run(command, env={**os.environ, **VARIABLES, **variables}, capture_output=True, check=False)

    locked = run({})
    assert locked.returncode != 0
    assert b"lockfile" in locked.stderr
    chip = Device(family="tpu", ordinal=3, name="TPU v5 lite")
    assert run(backends.visible(backends.backend("tpu"), [chip])).returncode == 0


def test_a_regression_is_confirmed_where_the_lock_is_real(nights, tmp_path):
    """The first process and both fresh ones load libtpu, each while the run itself goes on."""
    project = nights.after(tmp_path / "project", changed(1.1), "alter=changed")
    project.in_front(LOAD)
    with (project.root / "conftest.py").open("a", encoding="utf-8") as conftest:
        conftest.write(OPEN)
    result = project.run(*COMPARED, env=VARIABLES)
    assert result.ret == 1, result.stdout.str()
    assert project.kinds()[SLOW_CASE] == "regressed"
    assert len(project.cases()[SLOW_CASE]["metrics"]["ttft_s"]["processes"]) == 3
