"""Suites of made-up nights: log-normal samples whose truth is known.

Nights differ by `night` for all cases alike, a case's session by `case` besides, samples by `within`.
"""

import numpy as np


def suite(seed, num_cases=12, num_sessions=10, *, night=0.003, case=0.005, within=0.005, num_processes=1):
    """(baseline, current) as `judge` takes them; current is one more night of the same kind."""
    rng = np.random.default_rng(seed)
    level = rng.uniform(-5, 0, (num_cases, 1))
    shape = (num_cases, num_sessions + 1)
    medians = level + rng.normal(0, night, shape[1]) + rng.normal(0, case, shape)
    samples = np.exp(medians[:, :, None, None] + rng.normal(0, within, (*shape, num_processes, 9)))
    names = [f"case-{index}" for index in range(num_cases)]
    baseline = {name: samples[row, :-1].tolist() for row, name in enumerate(names)}
    return baseline, {name: samples[row, -1].tolist() for row, name in enumerate(names)}


def slower(sessions, by):
    """A session, or any nest of lists, with every sample times 1 + by."""
    return [slower(one, by) for one in sessions] if isinstance(sessions, (list, tuple)) else sessions * (1 + by)


def kinds(verdicts):
    return {case: verdict.kind.value for case, verdict in verdicts.items()}
