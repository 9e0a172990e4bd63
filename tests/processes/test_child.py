"""A child of ours ends with its owner, whatever holds it: a library that keeps Python's lock, or a signal."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = """
import ctypes, os, signal, sys
from pytest_npubench.processes.child import Owner
owner = Owner({"connection_fd": int(sys.argv[1]), "lifeline_fd": int(sys.argv[2])})
owner.answer(os.getpid())
owner.connection.recv()
if sys.argv[3] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
ctypes.PyDLL(None).sleep(300)  # unlike CDLL it keeps Python's lock
"""
OWNER = """
import os, signal, sys, time
from pytest_npubench.processes.child import Child
def command(ends):
    numbers = str(ends["connection_fd"]), str(ends["lifeline_fd"])
    return [sys.executable, "-c", sys.argv[1], *numbers, sys.argv[2]], os.environ
child = Child(command, name="a child", grace_s=5.0)
print(child.answer(60), flush=True)
child.send("go")
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["held by a library", "stopped"])
def test_a_killed_owner_takes_a_child_along_that_cannot_listen(how: str) -> None:
    done = subprocess.run([sys.executable, "-c", OWNER, CHILD, how], stdout=subprocess.PIPE, check=False)
    stat = Path(f"/proc/{int(done.stdout)}/stat")
    deadline_s = time.monotonic() + 60
    while stat.exists() and ") Z " not in stat.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
