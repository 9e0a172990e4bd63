"""Prefill and decode on two devices: times by hand, and the same tokens as anywhere (test_invariants.py has more)."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from pytest_npubench.errors import ConfigError, DeviceError, DeviceUnavailableError, MeasurementError, UnitLostError
from pytest_npubench.serving.disaggregated import serve_disaggregated
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.serving.two_devices import ServingSide
from pytest_npubench.serving.two_processes import ProcessPair

from .fake_executor import FakeExecutor, greedy
from .runs import BLOCK, requests, run
from .virtual_pair import VirtualPair


def scheduler(**settings):
    return make_scheduler(
        "disaggregated", **{"num_layers": 4, "kv_blocks": 250, "block_size_tokens": BLOCK, **settings}
    )


def test_times_by_hand():
    # Prompt 0: 1 + 10 * 0.1 = 2.0 s; its 10 tokens of 4 * 2 bytes at 1 ms a byte take 0.08 s; a decode is 1.01 s.
    # Prompt 1 (5 tokens) waited from 1.0, runs 2.0 to 3.5, moves until 3.54 and waits for the decode that ends at 4.1.
    result = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2))).result
    first, second = result.records
    assert first.token_times_s == pytest.approx((2.0, 3.09, 4.10, 5.12))
    assert second.token_times_s == pytest.approx((3.5, 5.12))
    assert (second.dispatched_s, second.scheduled_s) == pytest.approx((1.0, 2.0))
    assert result.handover_s == pytest.approx((0.08, 0.04))
    assert result.handover_bytes == (80, 40)
    assert list(result.log.end_s) == sorted([*result.prefill_log.end_s, *result.decode_log.end_s])
    assert list(result.log.num_decode) == [0, 1, 0, 1, 2]


def test_a_full_decode_device_keeps_prompts_where_they_are():
    result = run("disaggregated", requests((0, 4, 9), (0, 4, 9)), kv_blocks=4).result
    first, second = result.records
    assert second.token_times_s[0] == first.token_times_s[0]
    assert second.token_times_s[1] > first.token_times_s[-1]
    assert max(result.decode_log.num_running) == 1


def test_the_decode_device_may_have_memory_of_its_own():
    outcome = run("disaggregated", requests((0, 4, 9), (0, 4, 9)), kv_blocks=4, decode_kv_blocks=3)
    assert [len(record.tokens) for record in outcome.result.records] == [9, 9]


def test_one_token_never_leaves_the_prefill_device():
    result = run("disaggregated", requests((0, 4, 1), (0, 4, 1))).result
    assert result.handover_bytes == ()
    assert len(result.decode_log) == 0


@pytest.mark.parametrize("until_s", [1.0, 2.03, 2.5, 3.6, 4.5])
def test_nothing_starts_after_until_s_and_all_is_freed(until_s):
    outcome = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2)), until_s=until_s)
    whole = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2))).result
    assert not outcome.executor.held
    assert max((*outcome.result.prefill_log.start_s, *outcome.result.decode_log.start_s)) < until_s
    for record, complete in zip(outcome.result.records, whole.records, strict=False):
        assert record.tokens == complete.tokens[: len(record.tokens)]
        assert record.token_times_s == complete.token_times_s[: len(record.tokens)]


def test_executors_that_cannot_hand_over():
    class Plain:
        num_layers = 4

    with pytest.raises(ConfigError, match="Plain cannot hand KV over; want export_kv and import_kv"):
        VirtualPair(FakeExecutor(), Plain(), transfer_s=lambda num_bytes: 0.0)


def test_a_transfer_that_never_ends():
    devices = VirtualPair(FakeExecutor(), FakeExecutor(), transfer_s=lambda num_bytes: float("inf"))
    with pytest.raises(MeasurementError, match="handing over request 0 took inf s"):
        serve_disaggregated(OpenLoad(requests((0, 4, 2))), scheduler(), devices)


@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_devices_that_do_not_fit_the_scheduler(which):
    smaller = FakeExecutor(num_layers=5)
    pair = (smaller, FakeExecutor()) if which == "prefill" else (FakeExecutor(), smaller)
    devices = VirtualPair(*pair, transfer_s=lambda num_bytes: 0.0)
    with pytest.raises(ConfigError, match=f"on the {which} device, which has 5"):
        serve_disaggregated(OpenLoad(requests((0, 4, 2))), scheduler(), devices)


class Breaking(FakeExecutor):
    """Raises an error in its second iteration."""

    def __init__(self, error: Exception) -> None:
        super().__init__(times=False)
        self.error = error

    def run(self, plan):
        if self.plans:
            raise self.error
        return super().run(plan)


measured = partial(FakeExecutor, times=False)


def test_two_processes_give_the_same_tokens_on_the_wall_clock():
    arriving = requests((0, 10, 6), (0.01, 5, 3), (0.02, 7, 1), (0.05, 30, 12))
    with ProcessPair(measured, measured) as devices:
        result = serve_disaggregated(OpenLoad(arriving), scheduler(), devices)
    assert result.clock == "wall"
    assert {record.id: record.tokens for record in result.records} == {
        request.id: greedy(request.id, request.prompt_tokens, request.output_tokens) for request in arriving
    }
    for record in result.records:
        assert record.arrival_s <= record.dispatched_s <= record.scheduled_s <= record.token_times_s[0]
        assert list(record.token_times_s) == sorted(record.token_times_s)
    assert len(result.handover_s) == 3
    assert all(seconds > 0 for seconds in result.handover_s)


@pytest.mark.parametrize("which", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (MeasurementError("no memory"), MeasurementError, "no memory"),
        (SystemExit(3), UnitLostError, r"the {} process \(process \d+\) was lost: exit status 3"),
    ],
)
def test_what_happens_in_a_process_is_told(which, error, raised, message):
    factories = [measured, measured]
    factories[which == "decode"] = partial(Breaking, error)
    arriving = requests((0, 10, 6), (0.2, 5, 3), (0.3, 5, 3))
    with (
        pytest.raises(raised, match=message.format(which)),
        ProcessPair(*factories) as devices,
    ):
        serve_disaggregated(OpenLoad(arriving), scheduler(), devices)


def children(devices: ProcessPair) -> dict[ServingSide, int]:
    return {side: child.pid for side, child in devices._children.items()}


def num_open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("which", list(ServingSide))
def test_a_process_that_is_killed_is_told_and_leaves_nothing_behind(which):
    num_files = num_open_files()
    pids: dict[ServingSide, int] = {}

    def kill(num_iterations):
        if num_iterations == 4:
            for pid in pids.values():
                assert "/dev/shm" not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
            os.kill(pids[which], signal.SIGKILL)

    arriving = requests((0, 10, 60), (0.1, 5, 60), (0.3, 7, 60), (0.5, 7, 60), (5, 7, 60))

    def serve_and_kill():
        with ProcessPair(measured, measured) as devices:
            pids.update(children(devices))
            serve_disaggregated(OpenLoad(arriving), scheduler(), devices, on_iteration=kill)

    with pytest.raises(UnitLostError, match=rf"the {which.value} process .* was lost: killed by signal 9 \(SIGKILL\)"):
        serve_and_kill()
    assert len(pids) == 2
    assert not any(map(is_there, pids.values()))
    assert num_open_files() == num_files


def test_a_process_that_hangs_is_killed():
    with ProcessPair(measured, measured) as devices:
        pids = children(devices)
        os.kill(pids[ServingSide.DECODE], signal.SIGSTOP)
    assert not any(map(is_there, pids.values()))


PARENT = """
import os, signal
from functools import partial
from pytest_npubench.serving.two_processes import ProcessPair
from tests.serving.fake_executor import FakeExecutor
with ProcessPair(*[partial(FakeExecutor, times=False)] * 2) as devices:
    print(*(child.pid for child in devices._children.values()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
PARENT_OF_BUSY = """
import os, signal, time
from functools import partial
from pytest_npubench.serving.two_processes import ProcessPair
devices = ProcessPair(*[partial(time.sleep, 300)] * 2)
devices._start_processes()
print(*(child.pid for child in devices._children.values()), flush=True)
time.sleep(1.0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("parent", [PARENT, PARENT_OF_BUSY], ids=["between two commands", "within one"])
def test_processes_end_when_their_parent_is_killed(parent):
    done = subprocess.run(
        [sys.executable, "-c", parent],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    until_s = time.monotonic() + 30
    while any(map(is_there, pids)) and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not any(map(is_there, pids))


class Pinned(FakeExecutor):
    """Tells by its KV capacity which processor it runs on."""

    def __init__(self) -> None:
        (core,) = os.sched_getaffinity(0)
        super().__init__(times=False, kv_capacity_tokens=1000 + core)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process")
def test_each_process_runs_on_its_own_processors():
    lent = sorted(os.sched_getaffinity(0))
    first, last = lent[0], lent[-1]
    with ProcessPair(Pinned, Pinned, cores=({first}, {last})) as devices:
        assert [capacity - 1000 for _, capacity, _ in devices.shapes()] == [first, last]


@pytest.mark.parametrize("which", [0, 1])
def test_processors_that_are_not_lent(which):
    cores = [{0}, {0}]
    cores[which] = {4095}
    message = f"the {('prefill', 'decode')[which]} process cannot be pinned to processors .4095.: .*Invalid argument"
    with pytest.raises(DeviceUnavailableError, match=message), ProcessPair(measured, measured, cores=tuple(cores)):
        pass


def test_what_a_library_raises_reaches_the_parent_by_name():
    failing = partial(Breaking, ValueError("no such kernel"))
    arriving = requests((0, 10, 6), (0.2, 5, 3), (0.3, 5, 3))
    with (
        pytest.raises(DeviceError, match="the prefill process: ValueError: no such kernel"),
        ProcessPair(failing, measured) as devices,
    ):
        serve_disaggregated(OpenLoad(arriving), scheduler(), devices)


def test_a_factory_that_cannot_be_sent_leaves_no_process():
    devices = ProcessPair(measured, lambda: FakeExecutor())
    with pytest.raises((AttributeError, pickle.PicklingError)), devices:
        pass
    assert not any(child.is_open for child in devices._children.values())


class Filling(FakeExecutor):
    """Hands over more than a pipe holds, so that the prefill process is still sending when the other one dies."""

    def export_kv(self, request):
        return 10**8, bytes(10**8)

    def import_kv(self, request, kv):
        raise AssertionError("never here")


class Dying(FakeExecutor):
    def begin(self, request, prompt_tokens, output_tokens):
        os.kill(os.getpid(), signal.SIGKILL)


def test_of_two_processes_that_end_the_one_that_failed_is_named():
    def serve():
        with ProcessPair(partial(Filling, times=False), partial(Dying, times=False)) as devices:
            serve_disaggregated(OpenLoad(requests((0, 10, 6), (0, 5, 3), (0, 5, 3))), scheduler(), devices)

    with pytest.raises(UnitLostError, match=r"the decode process .* was lost: killed by signal 9"):
        serve()
