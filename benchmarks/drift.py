"""How much this machine's speed drifts: the Allan deviation of one decode step over windows of growing length.

    python benchmarks/drift.py [seconds]

The Allan deviation is the root of half the mean squared difference between neighbouring windows (Allan 1966). Where
averaging helps it falls with the root of the window; where it stays flat, only interleaving what is compared helps.
"""

import sys
import time

import numpy as np

from pytest_npubench.backends import backend
from pytest_npubench.core.measurement import Phase, Request
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.shapes import decoder_shape

STEPS = 8


def main(seconds: float) -> None:
    host = backend("cpu")
    runtime = host.open(host.probe(1).devices, None)
    engine = StaticBucketEngine(decoder_shape("tiny-llama"), runtime, buckets=(512,), batch_size=1)
    request = Request(input_tokens=8, output_tokens=STEPS + 1)
    engine.run([request])
    samples = []
    started_s = time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        run = engine.run([request])
        samples.append(sum(part.duration_s for part in run.segments if part.phase is Phase.DECODE) / STEPS)
    step_s = np.array(samples)
    print(f"one decode step: mean {step_s.mean() * 1e3:.3f} ms over {seconds:g} s")
    for width in (1, 2, 4, 8, 16, 32, 128, 512):
        num = len(step_s) // width
        if num < 4:
            break
        windows = step_s[: num * width].reshape(num, width).mean(axis=1)
        allan = np.sqrt(np.mean(np.diff(windows) ** 2) / 2) / step_s.mean()
        window_s = seconds / len(step_s) * width
        white = _white(step_s, width)
        print(f"windows of {window_s * 1e3:6.1f} ms: Allan deviation {allan:.1%}, white noise would have {white:.1%}")


def _white(step_s: np.ndarray, width: int) -> float:
    """What the shortest windows' deviation would average down to if they were independent."""
    return float(np.sqrt(np.mean(np.diff(step_s) ** 2) / 2) / step_s.mean() / np.sqrt(width))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
