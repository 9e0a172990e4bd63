"""A process whose allocator keeps freed memory writes to the same pages again; one without is given zeroed ones."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

NUM_VALUES = 12_000_000  # 48 MB: more than glibc ever keeps by itself
PAGES = NUM_VALUES * 4 // 4096
CHILD = f"""
import resource, sys
import torch
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.engines.torch_moe.executor import TorchExecutor

if sys.argv[1] == "with":
    TorchExecutor(decoder_shape("small-dense"), kv_capacity_tokens=64)

def write():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty({NUM_VALUES}).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(min(write() for _ in range(5)))
"""


def num_faults(which: str) -> int:
    done = subprocess.run([sys.executable, "-c", CHILD, which], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="page faults are counted on Linux")
def test_blocks_of_one_size_cost_no_new_pages_each() -> None:
    without = num_faults("without")
    if without < PAGES / 2:
        pytest.skip(f"{without} faults for {PAGES} pages: this allocator keeps them by itself, or pages are huge")
    assert num_faults("with") < PAGES / 20
