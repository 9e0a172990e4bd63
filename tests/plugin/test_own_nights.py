"""Users' own tests over nights: what became slower is measured again, and nights that say nothing are told."""

import json
import time
from pathlib import Path

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.plugin.outcome import ExitStatus

from .project import failures, make_project, wait_for

CLOCK = """
import os
import random
from pathlib import Path

from dataclasses import replace

from pytest_npubench.core import families
from pytest_npubench.campaign import repeated_call

STARTS = Path("starts.txt")
STARTS.touch()
number = len(STARTS.read_text().splitlines())
STARTS.open("a").write("a process\\n")
now_s = 0.0


def work(name, duration_s):
    global now_s
    now_s += duration_s * (1 + 0.003 * random.Random(f"{number}/{name}").gauss(0.0, 1.0))


repeated_call.perf_counter = lambda: now_s  # a call takes what it says, however busy the machine
if "KEPT" in os.environ:
    families.OWN["openvino"] = replace(families.OWN["openvino"], one_process=True)
"""
NO_TPU = "fake_device.FakeBackend(fake_device.Faults(absent='fake absence of tpu'), family='tpu')"
TIMED = """
import os

import pytest

import clock

pytestmark = pytest.mark.openvino


def test_steady(npubench):
    npubench(clock.work, "steady", 0.010)


@pytest.mark.tpu
def test_slowing(npubench):
    npubench(clock.work, "slowing", 0.020 * float(os.environ.get("TIMES", "1")))
"""


@pytest.fixture(scope="module")
def timed(tmp_path_factory):
    """Four accepted nights of two own tests, whose calls take 10 and 20 ms by a clock of their own."""
    project = make_project(tmp_path_factory.mktemp("timed"))
    project.fake("throttled=float(os.environ.get('THROTTLED', '0'))")
    project.in_front("")
    conftest = (project.root / "conftest.py").read_text()
    project.write("conftest.py", conftest.replace("return [fake_device", f"return [{NO_TPU}, fake_device"))
    project.write("clock.py", CLOCK)
    project.write("test_own.py", TIMED)
    for _ in range(4):
        assert project.run("test_own.py", "--npubench-accept").ret == 0
    return project


def starts(project) -> int:
    return len((project.root / "starts.txt").read_text().splitlines())


def own(project, name: str):
    return project.cases()[f"own/callable/fake-callable-b1-test_own.py::{name}"]


def test_an_own_case_that_became_slower_is_measured_again_and_regressed(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"TIMES": "1.1"})
    assert result.ret == 1
    (text,) = failures(result).values()
    assert text.startswith("Failed: regressed: call_s: ")
    assert starts(project) == starts(timed) + 3
    metric = own(project, "test_slowing[openvino]")["metrics"]["call_s"]
    assert [sorted(samples)[15] for samples in metric["processes"]] == pytest.approx([0.022] * 3, rel=0.015)
    assert metric["verdict"]["ratio"] == pytest.approx(1.1, abs=0.015)
    assert own(project, "test_steady")["verdict"]["kind"] == "unchanged"


HANGS = """
import subprocess, time


def hang(place):
    if os.environ.get("HANGS") == place and "NPUBENCH_REMEASURING" in os.environ:
        worker = subprocess.Popen(["sleep", "300"], start_new_session=True)
        with open("hanging.txt", "w") as file:
            file.write(f"{os.getpid()} {worker.pid}\\n")
        time.sleep(300)


hang("at its start")
"""


@pytest.mark.parametrize("place", ["at its start", "in a call"])
def test_a_killed_run_takes_the_process_that_measures_again_along(timed, tmp_path, place):
    project = timed.copy(tmp_path / "project")
    clock = (project.root / "clock.py").read_text()
    project.write("clock.py", "import os\n" + HANGS + clock.replace("def work(", "def counted_work("))
    with (project.root / "clock.py").open("a") as file:
        file.write("\n\ndef work(*values):\n    hang('in a call')\n    return counted_work(*values)\n")
    process = project.start("test_own.py", "-m", "openvino", "-k", "slowing", env={"TIMES": "1.1", "HANGS": place})
    hanging = project.root / "hanging.txt"
    wait_for(lambda: hanging.exists() and hanging.read_text().endswith("\n"), process)
    process.kill()
    process.communicate()
    pids = [int(text) for text in hanging.read_text().split()]
    deadline_s = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline_s, pids
        time.sleep(0.02)
    with device_lock([Device(family="openvino", ordinal=0, name="Fake accelerator")], 0.0):
        pass


def test_on_a_device_that_the_process_keeps_the_reason_says_what_to_do(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", "-m", "openvino", env={"TIMES": "1.1", "KEPT": "1"})
    reason = own(project, "test_slowing[openvino]")["verdict"]["reason"]
    assert "this process keeps the openvino until it exits" in reason
    assert "run the test once more by itself (pytest 'test_own.py::test_slowing[openvino]')" in reason
    assert starts(project) == starts(timed) + 1
    alone = project.run("test_own.py::test_slowing[openvino]", "--npubench-remeasure", "0", env={"TIMES": "1.1"})
    assert alone.ret == 1
    assert result.parseoutcomes()["deselected"] == 1


def test_an_own_case_on_a_throttled_device_is_invalid(timed, tmp_path):
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"THROTTLED": "inf"})
    assert result.ret == ExitStatus.DISTURBED
    reason = "invalid: 3 of 3 attempts disturbed: throttled: hw_thermal_slowdown"
    assert set(failures(result).values()) == {f"Failed: {reason}"}
    assert "verdict" not in own(project, "test_steady")["metrics"]["call_s"]


def test_a_night_that_was_disturbed_in_part_is_judged_by_itself_and_is_no_reference(timed, tmp_path):
    """The first of two attempts was on a throttled device."""
    project = timed.copy(tmp_path / "project")
    assert project.run("test_own.py", "--npubench-accept", env={"THROTTLED": "2"}).ret == 0
    record = own(project, "test_steady")
    assert record["is_partly_disturbed"] is True
    reason = record["metrics"]["call_s"]["verdict"]["reason"]
    assert "4 accepted sessions" in reason
    assert "something else used the device" in reason
    (path,) = (project.root / "baselines").glob("*/own-*.json")
    case = json.loads(path.read_text())["cases"][record["case"]]
    assert [session.get("is_disturbed") for session in case["sessions"]] == [None] * 4 + [True]
    assert project.run("test_own.py").ret == 0
    assert "than 4 accepted sessions" in own(project, "test_steady")["metrics"]["call_s"]["verdict"]["reason"]


def test_a_call_that_takes_no_time_at_all_has_a_verdict(timed, tmp_path):
    """A ratio to it says nothing; the run goes on."""
    project = timed.copy(tmp_path / "project")
    result = project.run("test_own.py", env={"TIMES": "0"})
    assert result.ret == ExitStatus.INVALID
    (text,) = failures(result).values()
    assert text.startswith("Failed: invalid: call_s: process 0: its better quartile is 0")
    assert own(project, "test_slowing[openvino]")["verdict"]["kind"] == "invalid"
