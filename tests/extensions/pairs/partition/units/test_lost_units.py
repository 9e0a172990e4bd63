"""Units that die, hang or cannot start: a named error with the reason, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, UnitLostError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker

from .processes import eventually, opened, rows_shared, runs

MATMUL = Matmul(name="ffn_up", rows=512, cols=512, tokens=8)
KERNELS = "tests.extensions.pairs.partition.units.odd_kernels"
OPENS_AND_WAITS = """
import sys, time
from pytest_npubench.extensions.pairs.partition.units import open_pair
pair = open_pair("host", standard_sizes=(4,))
print(*pair.pids.values(), flush=True)
time.sleep(600)
"""
WORKS_AND_WAITS = """
import os, time
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker
kernels = "tests.extensions.pairs.partition.units.odd_kernels"
worker = XlaWorker(core=max(os.sched_getaffinity(0)), arena=SharedArena(), kernels=kernels)
worker.build("sleep", {"does": "sleep"})
worker.submit(["sleep"])
time.sleep(1)
print(worker.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("unit", ["host", "xla"])
@pytest.mark.parametrize("mechanism", ["flag", "pipe"])
def test_a_unit_killed_in_a_run_is_named(unit: str, mechanism: str) -> None:
    pair = opened()
    pids = dict(pair.pids)
    split = rows_shared(MATMUL, 256)
    pair.load(MATMUL, [split])
    killed_at_s = []

    def kill() -> None:
        killed_at_s.append(time.monotonic())
        os.kill(pids[unit], signal.SIGKILL)

    timer = threading.Timer(0.2, kill)
    timer.start()
    with pytest.raises(UnitLostError, match="was lost: killed by signal 9"):
        run_for_ever(pair, split, mechanism)
    assert time.monotonic() - killed_at_s[0] < 20, "not by a timeout"
    timer.join()
    with pytest.raises(UnitLostError):
        pair.run(MATMUL, split)
    pair.close()
    assert eventually(lambda: not any(runs(pid) for pid in pids.values()))


@pytest.mark.parametrize("unit", ["host", "xla"])
def test_a_unit_that_hangs_is_ended_after_its_timeout(unit: str) -> None:
    pair = opened(timeout_s=3.0)
    pids = dict(pair.pids)
    split = rows_shared(MATMUL, 256)
    pair.load(MATMUL, [split])
    os.kill(pids[unit], signal.SIGSTOP)
    with pytest.raises(UnitLostError, match="gave no answer within"):
        pair.run(MATMUL, split, mechanism="pipe")
    pair.close()
    assert eventually(lambda: not any(runs(pid) for pid in pids.values()))


@pytest.mark.parametrize(("script", "num_children"), [(OPENS_AND_WAITS, 2), (WORKS_AND_WAITS, 1)], ids=["idle", "busy"])
def test_children_end_with_the_process_that_opened_them(script: str, num_children: int) -> None:
    opened().close()  # skips where there is no pair
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == num_children
        assert all(runs(pid) for pid in pids)
        owner.kill()
    assert eventually(lambda: not any(runs(pid) for pid in pids))


def test_a_refused_core_is_unavailable() -> None:
    pytest.importorskip("jax")
    arena = SharedArena()
    with pytest.raises(DeviceUnavailableError, match=r"cannot pin process .* to core 9999"):
        XlaWorker(core=9999, arena=arena, kernels=KERNELS)
    arena.close()


def test_a_worker_that_dies_leaves_its_last_words() -> None:
    worker, arena = worker_of_odd_kernels()
    worker.build("exit", {"does": "exit"})
    worker.submit(["exit"])
    with pytest.raises(UnitLostError, match=r"exit status 3; its last words: .*the unit is on fire"):
        worker.wait()
    worker.close()
    arena.close()


def test_a_worker_may_be_asked_for_while_it_works() -> None:
    worker, arena = worker_of_odd_kernels()
    worker.build("sleep", {"does": "sleep"})
    worker.check()
    worker.submit(["sleep"])
    worker.check()
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(UnitLostError, match="was lost: killed by signal 9"):
        eventually(lambda: worker.check())  # a process is gone only once its last thread is
    worker.close()
    arena.close()


def test_a_kernel_that_fails_is_an_error_and_the_worker_lives_on() -> None:
    worker, arena = worker_of_odd_kernels()
    worker.build("fail", {"does": "fail"})
    worker.build("fine", {"does": "nothing"})
    with pytest.raises(MeasurementError, match="ZeroDivisionError: division by zero"):
        worker.build("broken", {"does": "not build"})
    for mechanism in ("flag", "pipe", "event"):
        worker.submit(["fine", "fail", "fine"], mechanism=mechanism)
        with pytest.raises(MeasurementError, match="RuntimeError: a graph without an end"):
            worker.wait()
        worker.submit(["fine", "fine"], mechanism=mechanism)
        assert len(worker.wait()) == 2
        assert worker.num_done == 2
        assert worker.copies_s == (0.25, 0.25)
    worker.close()
    worker.close()
    arena.close()


def test_every_submission_runs_once_however_it_is_told() -> None:
    """A submission by pipe that a polling process sees before it rings must not run again when it rings."""
    worker, arena = worker_of_odd_kernels()
    counted = arena.allocate("count", (1,), np.int64)
    worker.build("count", {"does": "count"})
    told = [mechanism for _ in range(40) for mechanism in ("flag", "pipe", "flag", "event", "pipe")]
    for number, mechanism in enumerate(told, start=1):
        worker.submit(["count"], mechanism=mechanism)
        worker.wait()
        assert counted[0] == number
    worker.close()
    arena.close()


def run_for_ever(pair: HostPair, split: Split, mechanism: str) -> None:
    while True:
        pair.run_chain(MATMUL, split, 50, mechanism=mechanism)


def worker_of_odd_kernels() -> tuple[XlaWorker, SharedArena]:
    pytest.importorskip("jax")
    arena = SharedArena()
    try:
        return XlaWorker(core=max(os.sched_getaffinity(0)), arena=arena, kernels=KERNELS), arena
    except DeviceUnavailableError as error:
        arena.close()
        pytest.skip(str(error))
