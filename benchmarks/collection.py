"""Collecting 10,000 parametrised cases, against a plain pytest.mark.parametrize of as many.

python benchmarks/collection.py
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPEATS = 5
NUM_FILES, NUM_BATCH_SIZES, NUM_BUCKETS = 10, 20, 50

HARDWARE = """
title = "A device for counting"
family = "cpu"
[probe]
match = ["no such device"]
[buckets]
set = {buckets}
source = "a benchmark of collection"
[models]
default = ["tiny-llama"]
dtype = "fp32"
batch_sizes = {batch_sizes}
"""
PROFILE = """
[profile.{name}]
workloads = ["lens-sharegpt"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
SUITE = """
import pytest
@pytest.mark.npubench_cases("profile")
def test_profile(npubench_case):
    npubench_case.run()
"""
PLAIN = """
import pytest
@pytest.mark.parametrize("case", range({number}))
def test_plain(case):
    pass
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "hardware").mkdir()
        buckets, batch_sizes = [128 * (i + 1) for i in range(NUM_BUCKETS)], [i + 1 for i in range(NUM_BATCH_SIZES)]
        text = HARDWARE.format(buckets=buckets, batch_sizes=batch_sizes)
        text += "".join(PROFILE.format(name=name) for name in ("quick", "nightly", "full"))
        for index in range(NUM_FILES):
            (root / "hardware" / f"device-{index}.toml").write_text(text)
        (root / "test_suite.py").write_text(SUITE)
        (root / "test_plain.py").write_text(PLAIN.format(number=NUM_FILES * NUM_BATCH_SIZES * NUM_BUCKETS))
        ours = _seconds(root, "test_suite.py", "--npubench-hardware", "hardware", "-k", "device-")
        plain = _seconds(root, "test_plain.py")
    number = NUM_FILES * NUM_BATCH_SIZES * NUM_BUCKETS
    print(f"collecting {number} suite cases: median {ours:.2f} s of {REPEATS} runs, process and all (limit 3 s)")
    print(f"against as many plain parameters, {plain:.2f} s: x{ours / plain:.2f}")


def _seconds(root: Path, *arguments: str) -> float:
    only = ["-p", "no:cacheprovider", "-p", "no:hypothesispytest"]  # what other plugins cost is not the question
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *only, *arguments]
    seconds = []
    for _ in range(REPEATS):
        started_s = time.perf_counter()
        subprocess.run(command, cwd=root, capture_output=True, check=True)
        seconds.append(time.perf_counter() - started_s)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
