"""What a prefill takes behind other work, and a decode step behind a prefill, on the reference decoder of this CPU.

    python benchmarks/behind_a_prefill.py [num_rounds]

tiny-llama on 8 slots. Each round visits every bucket, and in it every kind of predecessor, in a shuffled order; medians
of all rounds, in ms. Twice: with XLA's worker threads kept to cores of their own, and as the kernel places them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from statistics import median
from unittest import mock

import numpy as np

from pytest_npubench.backends import backend, cpu
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.shapes import dense_shape

BUCKETS = (128, 256, 512, 1024)
NUM_STEPS = 16
BEFORE = ("a prefill", "8 steps", "300 steps", "50 ms of nothing")
FREE = "--free"


def measure(num_rounds: int) -> None:
    cpu = backend("cpu")
    runtime = cpu.open(cpu.probe(60).devices, None)
    engine = StaticBucketEngine(dense_shape("tiny-llama"), runtime, buckets=BUCKETS, batch_size=8)
    engine.load_slots()
    draw = np.random.default_rng(0)
    prefills, steps = defaultdict(list), defaultdict(list)

    def timed(call: Callable[[], object]) -> float:
        started_s = time.perf_counter()
        call()
        return (time.perf_counter() - started_s) * 1e3

    for _ in range(num_rounds):
        for bucket in random.sample(BUCKETS, len(BUCKETS)):
            prompt = draw.integers(0, engine.shape.vocab_size, bucket - NUM_STEPS - 1, dtype=np.int32)
            for before in random.sample(BEFORE, len(BEFORE)):
                engine.begin(bucket)
                engine.prefill_row(bucket, 0, prompt)
                if before.endswith("steps"):
                    for _ in range(int(before.split()[0])):
                        engine.decode_step(bucket)
                elif before != BEFORE[0]:
                    time.sleep(0.05)
                prefills[bucket, before].append(timed(lambda: engine.prefill_row(bucket, 1, prompt)))  # noqa: B023
                for place in range(NUM_STEPS):
                    steps[bucket, place].append(timed(lambda: engine.decode_step(bucket)))  # noqa: B023
                engine.end(bucket)
    print("bucket  a prefill behind " + ", ".join(BEFORE) + "  a step behind it: 1st, 2nd, 4th, 8th, 16th")
    for bucket in BUCKETS:
        before = "  ".join(f"{median(prefills[bucket, one]):7.2f}" for one in BEFORE)
        after = "  ".join(f"{median(steps[bucket, place]):6.3f}" for place in (0, 1, 3, 7, 15))
        print(f"{bucket:>6}  {before}    {after}")


if __name__ == "__main__":
    arguments = [one for one in sys.argv[1:] if one != FREE]
    rounds = int(arguments[0]) if arguments else 20
    if FREE in sys.argv:
        with mock.patch.object(cpu, "_workers", list):
            measure(rounds)
    else:
        print("worker threads with cores of their own")
        measure(rounds)
        print("as the kernel places them", flush=True)
        subprocess.run([sys.executable, __file__, str(rounds), FREE], check=True)
