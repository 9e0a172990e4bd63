"""Each of XLA's worker threads on a core of its own, as the kernel tells."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import json, os
os.sched_setaffinity(0, CORES)
import jax, jax.numpy as jnp
from pathlib import Path
from pytest_npubench.backends import backend
cpu = backend("cpu")
runtime = cpu.open(cpu.probe(60).devices, None)
a = jnp.ones((512, 512))
for _ in range(3):
    jax.block_until_ready(a @ a)
workers = [int(one.parent.name) for one in Path("/proc/self/task").glob("*/comm") if "XLAEigen" in one.read_text()]
print(json.dumps([sorted(map(sorted, map(os.sched_getaffinity, workers))), runtime.stack().runtime]))
"""


def workers(cores: set[int]) -> tuple[list[list[int]], str]:
    import json

    program = PROGRAM.replace("CORES", str(cores))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    found, runtime = json.loads(done.stdout.splitlines()[-1])
    return found, runtime


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
def test_workers_have_cores_of_their_own() -> None:
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        pytest.skip("one core")
    found, runtime = workers(set(cores))
    assert found == [[core] for core in cores]
    assert runtime.endswith(", 2 worker threads pinned")


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins no threads")
def test_on_one_core_nothing_is_pinned() -> None:
    core = min(os.sched_getaffinity(0))
    found, runtime = workers({core})
    assert all(one == [core] for one in found)
    assert "pinned" not in runtime
