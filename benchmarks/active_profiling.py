"""What active profiling saves: fixed and active repeats, replayed from one pool of interleaved repeats.

    python benchmarks/active_profiling.py [BATCH_SIZE] [SECONDS] [POOL.json]

The pool is measured once: the profile points of tiny-llama in the buckets of the CPU's quick profile, all of them in
each shuffled round, for so many seconds; POOL.json keeps it, or has it from a run before. Its means are then the truth,
and replays stop at the same band. A repeat is drawn from the whole pool; or from its rounds about the time at which the
replay has come to, so that the machine's drift is in it; or from a known distribution about the truth, with the pool's
scatter. Fixed: each round visits the points as the bucket suite does without --npubench-active-band.

A row has the mean seconds to the stop and their ratio, the root mean square of the largest error of a replay's
predictions (one a workload), how many of their 90 % bands hold the truth, and the ratio of seconds at equal error, that
of seconds times squared error.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pytest_npubench.backends import backend
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.stats.allocation import MIN_REPEATS, Repeats, half_widths, next_repeats
from pytest_npubench.suites.buckets.active import active_bands
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.reference_buckets import static_bucket_engine
from pytest_npubench.suites.hardware_files import load_all

LIMITS = (0.05, 0.03)
REPLAYS = 100
ABOUT = 5  # rounds of the pool to either side
Draw = Callable[[int, float], float]  # seconds of a repeat of a point, where the replay has come to so many seconds
Choose = Callable[[list[list[float]]], list[int]]  # repeats of the next round; none: stop


def main(batch_size: int, seconds: float, path: Path | None) -> None:
    spec = load_all([default_directory()])["cpu"]
    size = spec.profile("quick")
    plan = BucketPlan(spec=spec, size=size, model="tiny-llama", batch_size=batch_size, case_error=1, mean_error=1)
    if path is not None and path.exists():
        pool = {name: list(map(float, values)) for name, values in json.loads(path.read_text()).items()}
    else:
        pool = measured(plan, seconds)
        if path is not None:
            path.write_text(json.dumps(pool))
    bands = active_bands(plan, pool)
    assert bands is not None
    names, gradients = list(bands.points), bands.gradients
    repeats_s = np.array([pool[name] for name in names])  # [num_points, num_rounds]
    means_s, num_rounds = repeats_s.mean(axis=1), repeats_s.shape[1]
    print(f"batch {batch_size}: {len(names)} points, {num_rounds} rounds of {means_s.sum():.2f} s")
    for name, values, weights in zip(names, repeats_s, gradients.T, strict=True):
        share = ", ".join(f"{weight * values.mean():.0%}" for weight in weights)
        print(
            f"  {name:<18} {values.mean():.4f} s, CV {values.std(ddof=1) / values.mean():5.1%}, of predictions {share}"
        )
    rng = np.random.default_rng(0)
    scatter = float(np.sqrt(np.mean(repeats_s.var(axis=1, ddof=1) / means_s**2)))
    noises: dict[str, Callable[[], float]] = {
        "normal": rng.standard_normal,
        "exponential": lambda: rng.exponential() - 1,
        "spikes": lambda: (0.2 * rng.standard_normal() + (rng.random() < 0.05) - 0.05) / np.sqrt(0.04 + 0.05 * 0.95),
    }
    sources: dict[str, Callable[[], Draw]] = {
        "pool": lambda: lambda point, at_s: float(repeats_s[point, rng.integers(num_rounds)]),
        "pool with drift": lambda: drifting(repeats_s, rng),
        **{
            name: lambda noise=noise: lambda point, at_s: float(means_s[point] * (1 + scatter * noise()))
            for name, noise in noises.items()
        },
    }
    points = {point.name: point for point in map(plan.profile_point, plan.profile_points(plan.buckets))}
    visits = [points[name].visits(mean_s) for name, mean_s in zip(names, means_s, strict=True)]
    print("source           limit   fixed  active  ratio   error fixed/active  held fixed/active  ratio at equal error")
    for source, begin in sources.items():
        for limit in LIMITS:
            kept = {}
            for mode, choose in {
                "fixed": partial(fixed, visits=visits, gradients=gradients, limit=limit),
                "active": partial(active, batch_s=float(means_s @ visits), gradients=gradients, limit=limit),
            }.items():
                kept[mode] = [replay(begin(), choose, means_s, gradients) for _ in range(REPLAYS)]
            print(row(source, limit, kept), flush=True)


def measured(plan: BucketPlan, seconds: float) -> dict[str, list[float]]:
    """Seconds of each profile point, one of each a shuffled round, for about so many seconds on this CPU."""
    host = backend("cpu")
    engine = static_bucket_engine(host.open(host.probe(1).devices, None), plan)
    engine.load(plan.buckets)
    points = [plan.profile_point(point) for point in plan.profile_points(plan.buckets)]
    for point in points * 2:
        engine.run(point.requests)
    pool: dict[str, list[float]] = {point.name: [] for point in points}
    started_s = time.perf_counter()
    while time.perf_counter() - started_s < seconds:
        random.shuffle(points)
        for point in points:
            pool[point.name].append(engine.run(point.requests).e2e_s)
    return pool


def drifting(repeats_s: np.ndarray, rng: np.random.Generator) -> Draw:
    """Repeats about the time in the pool at which they are taken, from a start anywhere in it; behind its end is its
    beginning."""
    round_s, num_rounds = repeats_s.sum(axis=0).mean(), repeats_s.shape[1]
    start = rng.integers(num_rounds)

    def draw(point: int, at_s: float) -> float:
        index = start + at_s / round_s + rng.integers(-ABOUT, ABOUT + 1)
        return float(repeats_s[point, int(index) % num_rounds])

    return draw


def fixed(samples: list[list[float]], visits: list[int], gradients: np.ndarray, limit: float) -> list[int]:
    if min(map(len, samples)) < MIN_REPEATS:
        return visits
    within = half_widths([Repeats.of(values) for values in samples], gradients).max() <= limit
    return [0] * len(visits) if within else visits


def active(samples: list[list[float]], batch_s: float, gradients: np.ndarray, limit: float) -> list[int]:
    if min(map(len, samples)) < MIN_REPEATS:
        return [2] * len(samples)
    return list(next_repeats([Repeats.of(values) for values in samples], gradients, limit=limit, batch_s=batch_s))


def replay(draw: Draw, choose: Choose, means_s: np.ndarray, gradients: np.ndarray) -> tuple[float, Any, Any]:
    """Seconds to the stop, and of each prediction its relative error and whether its band holds the truth."""
    samples: list[list[float]] = [[] for _ in means_s]
    spent_s = 0.0
    while any(more := choose(samples)):
        order = [point for point, often in enumerate(more) for _ in range(often)]
        random.shuffle(order)
        for point in order:
            samples[point].append(draw(point, spent_s))
            spent_s += samples[point][-1]
    off = gradients @ (np.array([np.mean(values) for values in samples]) - means_s)
    half = half_widths([Repeats.of(values) for values in samples], gradients)
    return spent_s, off, np.abs(off) <= half


def row(source: str, limit: float, kept: dict[str, list[tuple[float, Any, Any]]]) -> str:
    seconds, errors, held = {}, {}, {}
    for mode, runs in kept.items():
        seconds[mode] = np.mean([run[0] for run in runs])
        errors[mode] = np.sqrt(np.mean([max(run[1] ** 2) for run in runs]))
        held[mode] = np.mean([run[2] for run in runs])
    ratio = seconds["active"] / seconds["fixed"]
    equal = ratio * (errors["active"] / errors["fixed"]) ** 2
    return (
        f"{source:<16} {limit:5.1%} {seconds['fixed']:6.1f}s {seconds['active']:6.1f}s  x{ratio:.2f}"
        f"       {errors['fixed']:.2%} / {errors['active']:.2%}      {held['fixed']:.0%} / {held['active']:.0%}"
        f"               x{equal:.2f}"
    )


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 2,
        float(sys.argv[2]) if len(sys.argv) > 2 else 180.0,
        Path(sys.argv[3]) if len(sys.argv) > 3 else None,
    )
