"""What a verdict costs: `judge` of 300 cases against 20 accepted sessions of 20 samples, beside Mann-Whitney of scipy
for the same cases against one session, one call a case.

    python benchmarks/judge.py [--cases 300] [--sessions 20] [--samples 20]
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
from scipy import stats

from pytest_npubench.verdict import judge

NUM_RUNS = 5


def main() -> None:
    arguments = _arguments()
    rng = np.random.default_rng(0)
    shape = (arguments.cases, arguments.sessions, 1, arguments.samples)
    baseline = _cases(rng.lognormal(0.0, 0.01, shape))
    current = _cases(rng.lognormal(0.0, 0.01, shape[:1] + shape[2:]))
    ours = _fastest(lambda: judge(baseline, current))
    theirs = _fastest(
        lambda: [stats.mannwhitneyu(current[case][0], sessions[-1][0]) for case, sessions in baseline.items()]
    )
    print(f"judge: {ours:.3f} s, {ours / arguments.cases * 1e6:.0f} us a case")
    print(f"scipy.stats.mannwhitneyu: {theirs / arguments.cases * 1e6:.0f} us a case")
    print(f"ratio: {ours / theirs:.2f}")


def _cases(samples: np.ndarray) -> dict[str, list]:
    """As the baselines give them: lists of Python numbers."""
    return {f"case-{index}": values.tolist() for index, values in enumerate(samples)}


def _fastest(run: Callable[[], object]) -> float:
    """Seconds of the fastest of some runs, the first of which loads scipy."""
    run()
    times = []
    for _ in range(NUM_RUNS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--samples", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
