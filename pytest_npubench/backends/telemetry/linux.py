"""What Linux tells of processors and processes, from /proc and /sys. A file that is not there is None, not an error.

Times of /proc are ticks of 1/sysconf(SC_CLK_TCK) s, as a rule 10 ms (proc_stat(5), proc_pid_stat(5)). Every function
takes the folder it reads, so that a tree written by hand is read the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

PROC = Path("/proc")
SYS = Path("/sys")
NUM_BUSIEST = 3
XDIST_WORKER = "PYTEST_XDIST_WORKER"
TICK_S = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01


def read_text(path: Path) -> str | None:
    """Returns the file's text without the space around it; None where it is missing, empty or not for us to read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def read_number(path: Path) -> float | None:
    """Returns the number that a file holds, else None."""
    try:
        return float(read_text(path) or "")
    except ValueError:
        return None


def cpu_times_s(cpus: Collection[int], proc: Path = PROC) -> tuple[float, float] | None:
    """(busy, stolen) seconds of these processors together since the machine started; None without /proc/stat.

    Busy is user, nice, system, irq and softirq; guests are inside user. Stolen time ran on another virtual machine.
    """
    wanted = {f"cpu{cpu}" for cpu in cpus}
    busy, stolen = 0, 0
    is_listed = False
    for line in (read_text(proc / "stat") or "").splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu"):
            break  # the processors stand first, and what follows them can be long
        if name in wanted and len(fields) >= 8:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            busy += user + nice + system + irq + softirq
            stolen += steal
            is_listed = True
    return (busy * TICK_S, stolen * TICK_S) if is_listed else None


def tree_cpu_s(pid: int, with_children: bool, proc: Path = PROC) -> float | None:
    """Processor seconds of a process, of the children it waited for and, on demand, of those that still run."""
    process = _process(pid, proc)
    if process is None:
        return None
    ticks = process[1]
    if with_children:
        processes = _processes(proc)
        ticks += sum(processes[child][1] for child in _below(pid, processes))
    return ticks * TICK_S


def has_children() -> bool:
    """Whether this process has a child, running or to be waited for. Takes a microsecond, and reaps none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except (OSError, AttributeError):  # no waitid on this system
        return True
    return True


def own_processes() -> set[int]:
    """This process, its children, and those that started it, which may hold a device while they wait for us.

    In a worker of pytest-xdist its siblings too: our device lock keeps them apart in time.
    """
    processes = _processes(PROC)
    above = _above(os.getpid(), processes)
    return {os.getpid(), *above, *_below(_root(above, PROC), processes)}


def process_name(pid: int, proc: Path = PROC) -> str:
    """ "pid 123 python", or "pid 123" where the name is not to be had."""
    name = read_text(proc / str(pid) / "comm")
    return f"pid {pid} {name}" if name else f"pid {pid}"


def busiest(others_than: Collection[int], window_s: float, proc: Path = PROC) -> tuple[str, ...]:
    """Returns the programs that use the processors now, the busiest first, each with its share of one: "cc1plus 92 %".
    Takes `window_s`. `others_than`: processes that do not count."""
    before = _processes(proc)
    time.sleep(window_s)
    used: dict[str, int] = {}
    for pid, (_, ticks) in _processes(proc).items():
        if pid in before and pid not in others_than and ticks > before[pid][1]:
            name = read_text(proc / str(pid) / "comm") or f"pid {pid}"
            used[name] = used.get(name, 0) + ticks - before[pid][1]
    shares = sorted(((ticks * TICK_S / window_s, name) for name, ticks in used.items()), reverse=True)
    return tuple(f"{name} {share * 100:.0f} %" for share, name in shares[:NUM_BUSIEST])


def cgroup_folders(proc: Path = PROC, sys: Path = SYS) -> tuple[Path, ...]:
    """Returns the folders of this process' cgroup that may limit its processor time, its own first, then its parents'.

    In a container the path that /proc tells is often the host's, so what does not exist here is left out.
    """
    for line in (read_text(proc / "self" / "cgroup") or "").splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            roots = [sys / "fs" / "cgroup" / controllers, sys / "fs" / "cgroup" / "cpu"]
        elif number == "0" and not controllers:
            roots = [sys / "fs" / "cgroup"]
        else:
            continue
        for root in roots:
            folders = [root / part for part in _upwards(path.strip("/"))]
            if limiting := tuple(folder for folder in folders if (folder / "cpu.stat").is_file()):
                return limiting
    return ()


def cgroup_throttled_s(folders: Iterable[Path]) -> float | None:
    """Returns seconds that the cgroups' quotas held their tasks back, over all processors; None without such a
    cgroup."""
    total = None
    for folder in folders:
        numbers = dict(line.split(maxsplit=1) for line in (read_text(folder / "cpu.stat") or "").splitlines())
        if "throttled_usec" in numbers:  # cgroup v2; v1 counts nanoseconds
            total = (total or 0.0) + int(numbers["throttled_usec"]) / 1e6
        elif "throttled_time" in numbers:
            total = (total or 0.0) + int(numbers["throttled_time"]) / 1e9
    return total


def cgroup_cores(folders: Iterable[Path]) -> float | None:
    """Returns the smallest quota in cores; None where nothing limits. "150000 100000" in cpu.max is 1.5 cores."""
    limits = []
    for folder in folders:
        quota, _, period = (read_text(folder / "cpu.max") or "").partition(" ")
        if not quota:
            quota = read_text(folder / "cpu.cfs_quota_us") or ""
            period = read_text(folder / "cpu.cfs_period_us") or ""
        if quota.isdigit() and period.isdigit():  # else "max", or -1 in v1: no limit
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def _upwards(path: str) -> Iterator[str]:
    parts = path.split("/") if path else []
    for length in range(len(parts), -1, -1):
        yield "/".join(parts[:length])


def _processes(proc: Path) -> dict[int, tuple[int, int]]:
    """pid -> (parent, ticks) of every process that can be seen."""
    try:
        pids = [int(name) for name in os.listdir(proc) if name.isdigit()]  # noqa: PTH208 - a Path each would be slow
    except OSError:
        return {}
    processes = ((pid, _process(pid, proc)) for pid in pids)
    return {pid: process for pid, process in processes if process is not None}


def _process(pid: int, proc: Path) -> tuple[int, int] | None:
    """(parent, ticks used by it and by the children it waited for); None where it ended."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:  # noqa: PTH123 - a Path each would be slow
            text = file.read()
    except OSError:
        return None
    fields = text.rpartition(b")")[2].split()  # the name before may hold spaces and brackets
    return int(fields[1]), sum(map(int, fields[11:15]))


def _below(pid: int, processes: Mapping[int, tuple[int, int]]) -> set[int]:
    children: dict[int, list[int]] = {}
    for child, (parent, _) in processes.items():
        children.setdefault(parent, []).append(child)
    descendants: set[int] = set()
    queue = [pid]
    while queue:
        new = [child for child in children.get(queue.pop(), ()) if child not in descendants]
        descendants.update(new)
        queue.extend(new)
    return descendants


def _above(pid: int, processes: Mapping[int, tuple[int, int]]) -> list[int]:
    """Returns the parent, its parent and so on, without init."""
    ancestors: list[int] = []
    while pid in processes and (pid := processes[pid][0]) > 1 and pid not in ancestors:
        ancestors.append(pid)
    return ancestors


def _root(above: Sequence[int], proc: Path) -> int:
    """This process; under pytest-xdist the controller, which may be further up where a worker started us.

    A worker sets the variable itself, so it is in the environment that its children began with, and not in its own.
    """
    if XDIST_WORKER not in os.environ:
        return os.getpid()
    chain = [os.getpid(), *above]
    for pid, parent in pairwise(chain):
        if f"{XDIST_WORKER}=" not in (read_text(proc / str(pid) / "environ") or ""):
            return parent
    return chain[-1]
