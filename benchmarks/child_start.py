"""What it takes to start each kind of child process, and what a fork server with the plain imports done would save.

python benchmarks/child_start.py [REPEATS]

Seconds from the start to the first answer, and of the processor's time (all processes that were started); the least of
the repeats. A campaign's child is a whole pytest that collects the bucket suite; forked, it finds pytest, numpy and the
plugin imported, and no jax, which does not survive forks.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench.extensions.pairs.partition.units import open_pair
from pytest_npubench.processes import guarded
from pytest_npubench.processes.child import hosted

SUITES = Path(__file__).parent.parent / "suites" / "buckets"
COLLECT = ["--assert=plain", "-q", "--collect-only", "-p", "no:cacheprovider", "-m", "cpu", str(SUITES)]


def guarded_command() -> None:
    guarded.run(["true"], limit_s=60)


def plain_command() -> None:
    subprocess.run(["true"], check=True)


def hosted_object() -> None:
    child = hosted("collections:Counter", {}, name="a counter")
    child.started()
    child.close()


def pair_of_units() -> None:
    open_pair("host", standard_sizes=(4,)).close()


def fresh_pytest() -> None:
    guarded.run([sys.executable, "-m", "pytest", *COLLECT], limit_s=600)


def forked_pytest() -> None:
    pid = os.fork()
    if pid == 0:
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            pytest.main(COLLECT)
            os._exit(0)
    os.waitpid(pid, 0)


def least(start: Callable[[], None], repeats: int) -> tuple[float, float]:
    """(seconds, processor's seconds)"""
    found = []
    for _ in range(repeats):
        before, began_s = _processor_s(), time.perf_counter()
        start()
        found.append((time.perf_counter() - began_s, _processor_s() - before))
    return min(took_s for took_s, _ in found), min(used_s for _, used_s in found)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        show(repeats)


def show(repeats: int) -> None:
    rows: list[tuple[str, Callable[[], None]]] = [
        ("a command without a guard", plain_command),
        ("a command under its guard", guarded_command),
        ("a child that answers", hosted_object),
        ("a pair of units, torch and jax", pair_of_units),
        ("pytest that collects, fresh", fresh_pytest),
    ]
    for name, start in rows:
        print("{:34} {:.3f} s, processor {:.3f} s".format(name, *least(start, repeats)))
    import pytest_npubench.plugin.campaign_child
    import pytest_npubench.plugin.session  # noqa: F401

    print("{:34} {:.3f} s, processor {:.3f} s".format("pytest that collects, forked", *least(forked_pytest, repeats)))


if __name__ == "__main__":
    main()
