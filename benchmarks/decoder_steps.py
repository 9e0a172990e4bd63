"""The reference decoder's steps on this machine's CPU, of this checkout and of another one, in turn.

    python benchmarks/decoder_steps.py OTHER_CHECKOUT [rounds]

Three processes a checkout, each compiled once, since the same binary differs by some percent from process to process; a
round runs one batch in each, in random order. Prints the median over the rounds of this checkout's time / the other's
(geometric means of the three), for a prefill and for a decode step, and the binaries' compile times.
"""

import json
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

STEPS = 40
PROCESSES = 3
POINTS = ((128, 1), (512, 1), (1024, 1), (2048, 1), (4096, 1), (2048, 8))  # (bucket, batch size)
CHILD = f"""
import json, sys
from pytest_npubench.backends import backend
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.core.measurement import Phase, Request
host = backend("cpu")
runtime = host.open(host.probe(1).devices, None)
engines = {{}}
for line in sys.stdin:
    bucket, batch_size = json.loads(line)
    if (bucket, batch_size) not in engines:
        engine = StaticBucketEngine(decoder_shape("tiny-llama"), runtime, buckets=(bucket,), batch_size=batch_size)
        engines[bucket, batch_size] = engine
        engine.load((bucket,))
    engine = engines[bucket, batch_size]
    run = engine.run([Request(input_tokens=bucket - {STEPS}, output_tokens={STEPS} + 1)] * batch_size)
    times = {{phase: sum(part.duration_s for part in run.segments if part.phase is phase) for phase in Phase}}
    answer = [times[Phase.PREFILL] / batch_size, times[Phase.DECODE] / {STEPS}]
    print(json.dumps([*answer, sum(record.compile_s for record in engine.compiles[1:])]), flush=True)
"""


class Checkout:
    """A process that runs the decoder of one checkout."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-c", CHILD]
        environment = os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
        self._process = subprocess.Popen(
            command, cwd=root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, point: tuple[int, int]) -> list[float]:
        """Seconds of a prefill, of a decode step, and of compiling both."""
        print(json.dumps(point), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


def main(other: Path, rounds: int) -> None:
    this = Path(__file__).parents[1]
    processes = [(root, Checkout(root)) for root in (this, other) for _ in range(PROCESSES)]
    for point in POINTS:
        compile_s = {root: process.run(point)[2] for root, process in processes}
        ratios = []
        for _ in range(rounds):
            times: dict[Path, list[list[float]]] = {this: [], other: []}
            for root, process in random.sample(processes, len(processes)):
                times[root].append(process.run(point)[:2])
            means = {
                root: [statistics.geometric_mean(column) for column in zip(*runs, strict=True)]
                for root, runs in times.items()
            }
            ratios.append([mine / theirs for mine, theirs in zip(means[this], means[other], strict=True)])
        prefill, decode = (statistics.median(column) for column in zip(*ratios, strict=True))
        compiling = compile_s[this] / compile_s[other]
        print(f"bucket {point[0]}, batch {point[1]}: prefill x{prefill:.3f}, decode x{decode:.3f}, ", end="")
        print(f"compiling x{compiling:.2f} ({compile_s[this]:.2f} s)", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 40)
