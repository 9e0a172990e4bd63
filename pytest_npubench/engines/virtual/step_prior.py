"""A prior without peaks: the terms of a step cost in the window of iterations that it is to be fitted to.

A CPU has no published peaks. The form is linear once it is known where rows take longer than the weights,

    seconds = fixed + row x max(kink, rows) + context x context tokens (+ activation x activations)

so each kink (0: rows are added to the weights, which are then in `fixed`) is tried, with non-negative least squares of
the relative errors, in which what is far off counts less (Huber). What came out is the unit of each term, whose factor
may be ten times more or less: so wide a prior leaves the fit (step_calibration.py) to the iterations. A term whose part
of an iteration is not known to within LARGEST_UNKNOWN cannot be told from the others in this window, and is refused.

Worked example: iterations of 8 to 64 rows take 3.3 ms + 0.137 ms a row. Had all of them 32 rows, 7.7 ms could be all
fixed or all rows, and nothing would say what 64 rows take.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.virtual.calibration import ROBUST, Array, Prior
from pytest_npubench.engines.virtual.step_calibration import NUM_INDEPENDENT, SCALES, StepSamples, check_enough
from pytest_npubench.errors import ConfigError

WIDE = 2.3
"""Standard deviation of a factor's logarithm: ten times more or less."""
LARGEST_UNKNOWN = 0.25
"""Of the mean iteration: the standard error of one term's part."""
LEAST_PART = 0.01
"""Of the mean iteration: what a term is given beforehand that least squares left nothing."""
NUM_KINKS = 24
MOST_TRIED = 2000  # iterations that each kink is tried on
BETTER = 0.95  # times the error of the line without a kink, for one to be believed
NUM_PASSES = 4
TINY = 1e-12
WORDS = {
    "fixed_s": "the fixed part",
    "row_s": "rows",
    "context_s": "the context that decode rows read",
    "activation_s": "expert activations",
}


def prior_of_steps(shape: DecoderShape, samples: StepSamples, *, num_blocks: int = 1) -> Prior:
    """num_blocks: of iterations that follow one another. Raises ConfigError for too few iterations, where none of them
    decoded, and for a term that the window does not tell from the others."""
    check_enough(samples)
    usable = samples.usable
    columns = {"fixed_s": np.ones(len(usable.seconds)), "row_s": usable.rows, "context_s": usable.context}
    if not shape.is_dense:
        columns["activation_s"] = usable.activations
    columns = {name: column for name, column in columns.items() if column.any()}
    every = slice(None, None, 1 + len(usable.seconds) // MOST_TRIED)
    thin = {name: column[every] for name, column in columns.items()}
    kink = _kink(thin, usable.chosen(every)) if shape.is_dense else 0.0
    columns["row_s"] = np.maximum(kink, usable.rows)
    found, off = _fitted(columns, usable.seconds)
    _check_identified(columns, usable.seconds, off, num_independent=num_blocks * NUM_INDEPENDENT)
    mean_s = usable.seconds.mean()
    terms = {name: max(found[name], LEAST_PART * mean_s / column.mean()) for name, column in columns.items()}
    if kink:
        terms["weights_s"] = kink * terms["row_s"]
    return Prior(
        names=tuple(terms),
        unit_s=np.array(list(terms.values())),
        mean=np.zeros(len(terms)),
        covariance=WIDE**2 * np.eye(len(terms)),
    )


def _kink(columns: dict[str, Array], samples: StepSamples) -> float:
    """Rows up to which the weights take longer; 0 where no kink explains the iterations better than a line."""
    tried = np.unique(np.quantile(samples.rows, np.linspace(0.05, 0.95, NUM_KINKS)))
    errors = {
        kink: float(np.abs(_fitted(columns | {"row_s": np.maximum(kink, samples.rows)}, samples.seconds)[1]).sum())
        for kink in (0.0, *tried.tolist())
    }
    best = min(errors, key=lambda kink: errors[kink])
    return best if errors[best] < BETTER * errors[0.0] else 0.0


def _fitted(columns: dict[str, Array], seconds: Array) -> tuple[dict[str, float], Array]:
    """Seconds of each term, none below 0, and what each iteration took more than they say, as a logarithm."""
    from scipy.optimize import nnls

    parts = np.stack(list(columns.values()), axis=1)
    sizes = parts.mean(axis=0)  # columns of like size: seconds of a token are tiny
    predicted, weights = seconds, np.ones(len(seconds))
    for _ in range(NUM_PASSES):
        over = (weights / predicted)[:, None]
        found, _ = nnls(over * parts / sizes, weights * seconds / predicted)
        predicted = np.maximum(parts / sizes @ found, LEAST_PART * seconds.mean())
        off = np.log(seconds / predicted)
        size = np.abs(off) / max(SCALES[1], _scatter(off))
        weights = np.sqrt(np.minimum(1.0, ROBUST / np.maximum(size, TINY)))
    return dict(zip(columns, (found / sizes).tolist(), strict=True)), off


def _check_identified(columns: dict[str, Array], seconds: Array, off: Array, *, num_independent: int) -> None:
    parts = np.stack(list(columns.values()), axis=1) / seconds[:, None]
    parts = parts / parts.mean(axis=0)
    share = min(1.0, num_independent / len(seconds))
    # of each column in units of its mean: the standard error is that of its part of the mean iteration
    curvature = share * parts.T @ parts + TINY * len(seconds) * np.eye(len(columns))
    errors = max(SCALES[1], _scatter(off)) * np.sqrt(np.diag(np.linalg.inv(curvature)))
    worst = int(np.argmax(errors))
    if errors[worst] > LARGEST_UNKNOWN:
        raise ConfigError(
            f"these iterations do not tell {WORDS[list(columns)[worst]]} from the rest: its part is known to "
            f"{min(1.0, errors[worst]):.0%} of an iteration; want a load whose batches and prompts differ more, more "
            "iterations, or peaks"
        )


def _scatter(off: Array) -> float:
    """The standard deviation of normal ones."""
    return 1.4826 * float(np.median(np.abs(off)))
