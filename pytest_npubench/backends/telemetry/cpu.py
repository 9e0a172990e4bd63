"""The host's processors: clocks, who else works on them, what a hypervisor or a cgroup takes away.

Busy time of others = busy time of the processors we may run on - processor time of our own process tree. Worked
example: in 10 s two processors were busy for 16 s and we used 3.4 s: others used 12.6 s, 63 % of 2 cores.

Known of our own tree are this process, its running children and those it waited for; a child that was handed on to
init counts as another's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pytest_npubench.backends.telemetry import linux
from pytest_npubench.backends.telemetry.linux import PROC, SYS, read_number, read_text
from pytest_npubench.backends.telemetry.rapl import Rapl
from pytest_npubench.backends.telemetry.state import DeviceState

MAX_SAMPLED = 4  # processors whose clock is read: each file costs some 20 us, and a host may have hundreds
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


class CpuTelemetry:
    """Reads the processors of this process' affinity. The files are looked for once, here."""

    def __init__(
        self,
        *,
        proc: Path = PROC,
        sys: Path = SYS,
        cpus: Sequence[int] | None = None,
        pid: int | None = None,
        has_children: Callable[[], bool] = linux.has_children,
    ) -> None:
        self._proc = proc
        self._cpus = tuple(cpus if cpus is not None else usable_cpus())
        self._pid = os.getpid() if pid is None else pid
        self._has_children = has_children
        folders = [sys / "devices" / "system" / "cpu" / f"cpu{cpu}" for cpu in _sample(self._cpus)]
        self._clocks = _present(folder / "cpufreq" / "scaling_cur_freq" for folder in folders)
        self._largest = _present(folder / "cpufreq" / "cpuinfo_max_freq" for folder in folders[:1])
        throttle = [folder / "thermal_throttle" / part for folder in folders for part in ("core_", "package_")]
        self._throttled = _present(path.with_name(f"{path.name}throttle_total_time_ms") for path in throttle)
        self._events = _present(path.with_name(f"{path.name}throttle_count") for path in throttle)
        self._fixed_hz = None if self._clocks else nominal_clock_hz(proc)
        self._sensor = _sensor(sys)
        self._cgroups = linux.cgroup_folders(proc, sys)
        self._rapl = Rapl(sys)

    def read(self) -> DeviceState:
        """Never raises: the host cannot vanish."""
        times = linux.cpu_times_s(self._cpus, self._proc)
        own_s = linux.tree_cpu_s(self._pid, self._has_children(), self._proc)
        throttled_ms, events = _numbers(self._throttled), _numbers(self._events)
        celsius = read_number(self._sensor) if self._sensor else None
        energy_j, energy_unknown = self._rapl.energy_j()
        return DeviceState.now(
            clock_hz=self._clock_hz(),
            max_clock_hz=max((value * 1e3 for value in _numbers(self._largest)), default=None),
            temperature_c=celsius / 1e3 if celsius is not None else None,
            throttled_s=(("thermal", max(throttled_ms) / 1e3),) if throttled_ms else None,
            num_throttle_events=int(max(events)) if events else None,
            energy_j=energy_j,
            energy_unknown=energy_unknown,
            num_cores=len(self._cpus),
            load=_load(self._proc),
            other_busy_s=times[0] - own_s if times and own_s is not None else None,
            steal_s=times[1] if times else None,
            cgroup_throttled_s=linux.cgroup_throttled_s(self._cgroups),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _clock_hz(self) -> float | None:
        """Returns the mean of the sampled processors."""
        clocks = _numbers(self._clocks)
        return sum(clocks) / len(clocks) * 1e3 if clocks else self._fixed_hz


def usable_cpus() -> tuple[int, ...]:
    """Returns the processors this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def microcode(proc: Path = PROC) -> str | None:
    """Returns the microcode's revision, as x86 kernels tell it."""
    return _cpuinfo("microcode", proc)


def clock_policy(sys: Path = SYS) -> str | None:
    """Governor and whether the clock may rise above the nominal one: "performance, boost off"."""
    cpu = sys / "devices" / "system" / "cpu"
    governor = read_text(cpu / "cpu0" / "cpufreq" / "scaling_governor")
    boost = read_text(cpu / "cpufreq" / "boost")
    if boost is None:
        boost = {"0": "1", "1": "0"}.get(read_text(cpu / "intel_pstate" / "no_turbo") or "")
    words = [governor, {"0": "boost off", "1": "boost on"}.get(boost or "")]
    return ", ".join(word for word in words if word) or None


def share_of_machine(proc: Path = PROC, sys: Path = SYS) -> str:
    """How much of the machine is ours: "2 cores", which where that is not all of them ("1 core of 2: 0"), and a
    cgroup's limit where there is one."""
    cpus, num_cpus = usable_cpus(), os.cpu_count() or 1
    limit = linux.cgroup_cores(linux.cgroup_folders(proc, sys))
    cores = f"{len(cpus)} core{'s' if len(cpus) > 1 else ''}"
    if len(cpus) < num_cpus:
        cores = f"{cores} of {num_cpus}: {_ranges(cpus)}"
    return cores if limit is None else f"{cores}, cgroup limit {limit:g}"


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as the kernel writes them: "0-3,8"."""
    first_ones = [number for number in numbers if number - 1 not in numbers]
    last_ones = [number for number in numbers if number + 1 not in numbers]
    pairs = zip(first_ones, last_ones, strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)


def nominal_clock_hz(proc: Path = PROC) -> float | None:
    """Returns the clock of /proc/cpuinfo, which is all that a virtual machine is told."""
    try:
        return float(_cpuinfo("cpu MHz", proc) or "") * 1e6
    except ValueError:
        return None


def _cpuinfo(name: str, proc: Path) -> str | None:
    for line in (read_text(proc / "cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip() or None
    return None


def _sample(cpus: Sequence[int]) -> Sequence[int]:
    """At most MAX_SAMPLED of the processors, evenly spread."""
    return cpus[:: max(1, -(-len(cpus) // MAX_SAMPLED))]


def _present(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if read_number(path) is not None)


def _numbers(paths: Sequence[Path]) -> list[float]:
    return [value for value in map(read_number, paths) if value is not None]


def _load(proc: Path) -> float | None:
    """Returns the load average of the latest minute."""
    words = (read_text(proc / "loadavg") or "").split()
    return float(words[0]) if words else None


def _sensor(sys: Path) -> Path | None:
    for folder in sorted((sys / "class" / "hwmon").glob("hwmon*")):
        if read_text(folder / "name") in SENSORS and (folder / "temp1_input").is_file():
            return folder / "temp1_input"
    return None
