"""The host's telemetry on trees of /proc and /sys written by hand, and on the host the tests run on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.backends.telemetry import cpu, linux
from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
from pytest_npubench.backends.telemetry.linux import TICK_S

PID = 4321


class Host:
    """A hand-written host: `proc` and `sys` are folders, write() fills a file in either."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.sys = folder / "proc", folder / "sys"
        self.proc.mkdir()
        self.sys.mkdir()
        self.process(PID, parent=1, own=(100, 40), waited=(10, 5))

    def write(self, path: str, text: object) -> None:
        root, _, rest = path.partition("/")
        file = getattr(self, root) / rest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n", encoding="utf-8")

    def cpu(self, number: int, path: str, text: object) -> None:
        self.write(f"sys/devices/system/cpu/cpu{number}/{path}", text)

    def process(self, pid: int, parent: int, own: tuple[int, int], waited: tuple[int, int] = (0, 0)) -> None:
        fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 {own[0]} {own[1]} {waited[0]} {waited[1]} 20 0 1 0 99"
        self.write(f"proc/{pid}/stat", f"{pid} (a (bad) name 7) {fields}")

    def telemetry(self, cpus: tuple[int, ...] = (0, 1), with_children: bool = False) -> CpuTelemetry:
        return CpuTelemetry(proc=self.proc, sys=self.sys, cpus=cpus, pid=PID, has_children=lambda: with_children)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


STAT = """cpu  9 9 9 9 9 9 9 9 0 0
cpu0 1000 20 300 5000 11 4 6 70 500 0
cpu1 2000 10 100 4000 12 3 7 30 0 0
cpu10 9999 9999 9999 9999 9999 9999 9999 9999 0 0
intr 123 0 0
ctxt 99"""


def test_busy_time_of_others_is_that_of_our_processors_less_our_own(host: Host) -> None:
    """1330 + 2120 ticks, guests inside user, less 155 of this process and the children it waited for."""
    host.write("proc/stat", STAT)
    state = host.telemetry().read()
    assert state.other_busy_s == pytest.approx((1330 + 2120 - 155) * TICK_S)
    assert state.steal_s == pytest.approx(100 * TICK_S)
    assert state.num_cores == 2
    only = host.telemetry(cpus=(1,)).read()
    assert (only.num_cores, only.steal_s) == (1, pytest.approx(30 * TICK_S))


def test_running_children_and_theirs_are_ours(host: Host) -> None:
    host.write("proc/stat", STAT)
    host.process(5000, parent=PID, own=(200, 0))
    host.process(5001, parent=5000, own=(0, 30), waited=(3, 0))
    host.process(6000, parent=1, own=(999, 999))
    host.process(7000, parent=6000, own=(999, 999))
    alone, together = (host.telemetry(with_children=flag).read().other_busy_s for flag in (False, True))
    assert alone is not None
    assert together == pytest.approx(alone - 233 * TICK_S)


def test_a_child_that_is_waited_for_moves_and_is_not_lost(host: Host) -> None:
    host.write("proc/stat", STAT)
    host.process(5000, parent=PID, own=(200, 50))
    before = host.telemetry(with_children=True).read()
    (host.proc / "5000" / "stat").unlink()
    host.process(PID, parent=1, own=(100, 40), waited=(210, 55))
    assert host.telemetry(with_children=True).read().other_busy_s == before.other_busy_s


def test_nothing_to_read_is_nothing_known(host: Host) -> None:
    no_energy = host.telemetry().read().energy_unknown
    known = {"num_cores": 2, "energy_unknown": no_energy}
    assert host.telemetry().read().to_json() == known
    (host.proc / str(PID) / "stat").unlink()
    assert host.telemetry().read().to_json() == known


def test_clocks_heat_and_throttling(host: Host) -> None:
    for number, kilohertz in enumerate((3_000_000, 2_000_000)):
        host.cpu(number, "cpufreq/scaling_cur_freq", kilohertz)
        host.cpu(number, "cpufreq/cpuinfo_max_freq", 3_500_000)
        host.cpu(number, "thermal_throttle/core_throttle_count", number)
        host.cpu(number, "thermal_throttle/core_throttle_total_time_ms", 100 * number)
        host.cpu(number, "thermal_throttle/package_throttle_total_time_ms", 1250)
    host.write("proc/loadavg", "1.25 0.50 0.10 2/345 6789")
    host.write("sys/class/hwmon/hwmon0/name", "nvme")
    host.write("sys/class/hwmon/hwmon0/temp1_input", 30000)
    host.write("sys/class/hwmon/hwmon1/name", "k10temp")
    host.write("sys/class/hwmon/hwmon1/temp1_input", 61500)
    state = host.telemetry().read()
    assert (state.clock_hz, state.max_clock_hz) == (2.5e9, 3.5e9)
    assert (state.temperature_c, state.load) == (61.5, 1.25)
    assert (state.throttled_s, state.num_throttle_events) == ((("thermal", 1.25),), 1)


def test_a_virtual_machine_knows_its_nominal_clock(host: Host) -> None:
    host.write("proc/cpuinfo", "processor\t: 0\ncpu MHz\t\t: 2596.132\nmicrocode\t: 0x1000065\ncpu MHz\t\t: 1.0")
    assert host.telemetry().read().clock_hz == pytest.approx(2.596132e9)
    assert cpu.microcode(host.proc) == "0x1000065"
    assert cpu.microcode(host.sys) is None


def test_few_processors_are_read_of_many(host: Host) -> None:
    for number in range(200):
        host.cpu(number, "cpufreq/scaling_cur_freq", 1_000_000 + number)
    telemetry = host.telemetry(cpus=tuple(range(200)))
    assert telemetry.read().clock_hz == pytest.approx((1_000_000 + (0 + 50 + 100 + 150) / 4) * 1e3)


CGROUPS = {
    "version 2, a limit of the parent": (
        {
            "proc/self/cgroup": "0::/ci/job",
            "sys/fs/cgroup/ci/job/cpu.stat": "usage_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 1500000",
            "sys/fs/cgroup/ci/job/cpu.max": "max 100000",
            "sys/fs/cgroup/ci/cpu.stat": "usage_usec 5\nthrottled_usec 500000",
            "sys/fs/cgroup/ci/cpu.max": "150000 100000",
            "sys/fs/cgroup/cpu.stat": "usage_usec 5",
        },
        1.5,
        2.0,
    ),
    "version 2 in a container, whose path is the host's": (
        {
            "proc/self/cgroup": "0::/host/only/path",
            "sys/fs/cgroup/cpu.stat": "throttled_usec 250000",
            "sys/fs/cgroup/cpu.max": "50000 100000",
        },
        0.5,
        0.25,
    ),
    "version 1": (
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/docker/1\n0::/x",
            "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.stat": "nr_periods 3\nthrottled_time 3000000000",
            "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "200000",
            "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000",
            "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "throttled_time 0",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        },
        2.0,
        3.0,
    ),
    "no limits to be seen": ({"proc/self/cgroup": "0::/"}, None, None),
    "no cgroups": ({}, None, None),
}


@pytest.mark.parametrize(("files", "cores", "throttled_s"), CGROUPS.values(), ids=CGROUPS)
def test_cgroups(host: Host, files: dict[str, str], cores: float | None, throttled_s: float | None) -> None:
    for path, text in files.items():
        host.write(path, text)
    folders = linux.cgroup_folders(host.proc, host.sys)
    assert linux.cgroup_cores(folders) == cores
    assert linux.cgroup_throttled_s(folders) == throttled_s
    assert host.telemetry().read().cgroup_throttled_s == throttled_s


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, None),
        ({"cpu0/cpufreq/scaling_governor": "performance"}, "performance"),
        ({"cpu0/cpufreq/scaling_governor": "schedutil", "cpufreq/boost": "0"}, "schedutil, boost off"),
        ({"cpu0/cpufreq/scaling_governor": "powersave", "intel_pstate/no_turbo": "0"}, "powersave, boost on"),
        ({"intel_pstate/no_turbo": "1"}, "boost off"),
    ],
)
def test_clock_policy(host: Host, files: dict[str, str], words: str | None) -> None:
    for path, text in files.items():
        host.write(f"sys/devices/system/cpu/{path}", text)
    assert cpu.clock_policy(host.sys) == words


def test_the_share_of_the_machine(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    monkeypatch.setattr(cpu, "usable_cpus", lambda: (3,))
    assert cpu.share_of_machine(host.proc, host.sys) == "1 core of 12: 3"  # and not that of another night
    monkeypatch.setattr(cpu, "usable_cpus", lambda: (0, 1, 2, 5, 8, 9))
    assert cpu.share_of_machine(host.proc, host.sys) == "6 cores of 12: 0-2,5,8-9"
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    host.write("proc/self/cgroup", "0::/")
    host.write("sys/fs/cgroup/cpu.stat", "throttled_usec 0")
    host.write("sys/fs/cgroup/cpu.max", "150000 100000")
    monkeypatch.setattr(cpu, "usable_cpus", lambda: (0, 1))
    assert cpu.share_of_machine(host.proc, host.sys) == "2 cores, cgroup limit 1.5"


@settings(max_examples=50)
@given(st.lists(st.integers(0, 10**6), min_size=8, max_size=10), st.integers(0, 10**6))
def test_more_idle_time_is_nobodys(fields: list[int], more: int) -> None:
    """Idle and iowait (the fourth and fifth field) are no work; every other one of the first seven is."""
    found = []
    for index in (None, *range(8)):
        changed = [value + (more if place == index else 0) for place, value in enumerate(fields)]
        text = "cpu0 " + " ".join(map(str, changed))
        found.append(_times(text))
    base, *others = found
    for index, (busy_s, steal_s) in enumerate(others):
        is_work = index in (0, 1, 2, 5, 6)
        assert busy_s - base[0] == pytest.approx(more * TICK_S if is_work else 0, abs=1e-6)
        assert steal_s - base[1] == pytest.approx(more * TICK_S if index == 7 else 0, abs=1e-6)


def _times(text: str) -> tuple[float, float]:
    class Proc:
        def __truediv__(self, name: str) -> Any:
            return self

        def read_text(self, **_: Any) -> str:
            return text

    times = linux.cpu_times_s([0], Proc())  # type: ignore[arg-type]
    assert times is not None
    return times


def test_a_process_knows_whether_it_has_children() -> None:
    script = (
        "import subprocess, sys\n"
        "from pytest_npubench.backends.telemetry.linux import has_children\n"
        "first = has_children()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "second = has_children()\n"
        "child.communicate()\n"
        "print(first, second, has_children(), child.returncode is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "True", "False", "True"]


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc/stat on this system")
def test_this_host() -> None:
    """Work of our own is not others': burn half a second of it here and look at the difference."""
    telemetry = CpuTelemetry()
    before = telemetry.read()
    used_s, ends_s = time.process_time(), time.monotonic() + 0.5
    while time.monotonic() < ends_s:
        pass
    used_s = time.process_time() - used_s
    after = telemetry.read()
    assert before.other_busy_s is not None
    assert after.other_busy_s is not None
    assert before.num_cores == len(cpu.usable_cpus())
    core_s = (after.taken_at_s - before.taken_at_s) * len(cpu.usable_cpus())
    ticks_s = 4 * len(cpu.usable_cpus()) * TICK_S
    assert -ticks_s <= after.other_busy_s - before.other_busy_s <= core_s - used_s + ticks_s
    assert linux.process_name(os.getpid()).startswith(f"pid {os.getpid()} ")
    assert os.getpid() in linux.own_processes()


def test_the_busiest_programs_are_named_with_their_share_of_a_processor(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid, name in ((7, "cc1plus"), (8, "cc1plus"), (9, "chrome"), (10, "idle"), (11, "ours")):
        host.process(pid, parent=1, own=(100, 0))
        host.write(f"proc/{pid}/comm", name)

    def work(_: float) -> None:
        for pid, ticks in ((7, 70), (8, 50), (9, 30), (10, 0), (11, 99)):
            host.process(pid, parent=1, own=(100 + ticks, 0))

    monkeypatch.setattr(linux.time, "sleep", work)
    window_s = 100 * TICK_S
    assert linux.busiest({11}, window_s, host.proc) == ("cc1plus 120 %", "chrome 30 %")
