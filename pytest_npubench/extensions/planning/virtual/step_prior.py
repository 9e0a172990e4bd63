"""A prior without peaks: the terms of a step cost in the window of iterations that it is to be fitted to.

A CPU has no published peaks. The form is linear once it is known what rows are worth (calibrated.Curve),

    seconds = fixed + row x max(kink, worth) + pair x pairs + context x context tokens (+ activation x activations)
              (+ waking, from idle)

so several are tried, with non-negative least squares of the relative errors, in which what is far off counts less
(Huber): a line; kinks, up to which the weights take longer than the rows; and a slope for each stretch of rows, as each
of many takes longer where a cache no longer holds them. Each is believed where it explains the iterations better than
what is simpler. What came out is the unit of each term, whose factor may be ten times more or less: so wide a prior
leaves the fit (step_calibration.py) to the iterations. A term whose part of an iteration is not known to within
LARGEST_UNKNOWN cannot be told from the others in this window, and is refused; a prompt's pairs are then left to the
rows, and waking, which fewer than LEAST_FROM_IDLE iterations never tell, to what is fixed.

Worked example: iterations of 8 to 64 rows take 3.3 ms + 0.137 ms a row. Had all of them 32 rows, 7.7 ms could be all
fixed or all rows, and nothing would say what 64 rows take.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.calibrated import Curve
from pytest_npubench.extensions.planning.virtual.calibration import ROBUST, Array, Prior
from pytest_npubench.extensions.planning.virtual.measured_router import climbed
from pytest_npubench.extensions.planning.virtual.step_calibration import (
    NUM_INDEPENDENT,
    SCALES,
    StepSamples,
    check_enough,
)

WIDE = 2.3
"""Standard deviation of a factor's logarithm: ten times more or less."""
LARGEST_UNKNOWN = 0.25
"""Of the mean iteration: the standard error of one term's part."""
LEAST_PART = 0.01
"""Of the mean iteration: what a term is given beforehand that least squares left nothing."""
NUM_KINKS = 24
STRETCH = 2  # the rows at which a slope ends, over those at which it began, at least
LEAST_IN_STRETCH = 20  # iterations
LEAST_FROM_IDLE = 10  # iterations: the first one of a run may be slow for other reasons
MOST_TRIED = 2000  # iterations that each of these is tried on
BETTER = 0.95  # times the error of what is simpler, for one to be believed
NUM_PASSES = 4
TINY = 1e-12
WORDS = {
    "fixed_s": "the fixed part",
    "row_s": "rows",
    "pair_s": "prompts' attention",
    "context_s": "the context that decode rows read",
    "activation_s": "expert activations",
    "waking_s": "waking",
}
MAY_LACK = ("pair_s", "waking_s")


def prior_of_steps(shape: DecoderShape, samples: StepSamples, *, num_blocks: int = 1) -> Prior:
    """num_blocks: of iterations that follow one another. Raises ConfigError for too few iterations, where none of them
    decoded, and for a term that the window does not tell from the others."""
    check_enough(samples)
    usable = samples.usable
    columns = {"fixed_s": np.ones(len(usable.seconds)), "row_s": usable.rows(), "pair_s": usable.share * usable.pairs}
    columns |= {"context_s": usable.context} | ({} if shape.is_dense else {"activation_s": usable.activations})
    if usable.from_idle.sum() >= LEAST_FROM_IDLE:
        columns["waking_s"] = usable.from_idle
    columns = {name: column for name, column in columns.items() if column.any()}
    while True:
        kink, curve = _worth(columns, usable, has_experts=not shape.is_dense)
        columns["row_s"] = np.maximum(kink, usable.rows(curve))
        factors, off = _fitted(columns, usable.seconds)
        if not factors.get("waking_s", 1.0):
            del columns["waking_s"]
            continue
        unknown = _unknown(columns, usable.seconds, off, num_independent=num_blocks * NUM_INDEPENDENT)
        worst = max(unknown, key=lambda name: unknown[name])
        if unknown[worst] <= LARGEST_UNKNOWN:
            break
        spare = [name for name in MAY_LACK if name in columns]
        if not spare:
            raise ConfigError(
                f"these iterations do not tell {WORDS[worst]} from the rest: its part is known to "
                f"{min(1.0, unknown[worst]):.0%} of an iteration; want a load whose batches and prompts differ more, "
                "more iterations, or peaks"
            )
        del columns[max(spare, key=lambda name: unknown[name])]
    mean_s = usable.seconds.mean()
    terms = {name: max(factors[name], LEAST_PART * mean_s / column.mean()) for name, column in columns.items()}
    if kink:
        terms["weights_s"] = kink * terms["row_s"]
    return Prior(
        names=tuple(terms),
        unit_s=np.array(list(terms.values())),
        mean=np.zeros(len(terms)),
        covariance=WIDE**2 * np.eye(len(terms)),
        curve=curve,
    )


def told_by(prior: Prior, samples: StepSamples) -> Prior:
    """A prior over peaks, of the terms that these iterations tell: waking too, where enough came from idle, and no
    prompt's attention where their log counts no pairs."""
    if not samples.pairs.any():
        prior = prior.without("pair_s")
    return prior.with_waking() if samples.usable.from_idle.sum() >= LEAST_FROM_IDLE else prior


def _worth(columns: dict[str, Array], samples: StepSamples, *, has_experts: bool) -> tuple[float, Curve]:
    """Rows up to which the weights take longer, 0 where they are added to the rows, and what rows are worth; () where
    they are worth themselves. Experts are read as rows need them, which has no kink."""
    every = slice(None, None, 1 + len(samples.seconds) // MOST_TRIED)
    thin = samples.chosen(every)
    others = {name: column[every] for name, column in columns.items() if name != "row_s"}

    def error_of(tried: tuple[float, Curve]) -> float:
        rows = {"row_s": np.maximum(tried[0], thin.rows(tried[1]))}
        return float(np.abs(_fitted(others | rows, thin.seconds)[1]).sum())

    kinks = np.unique(np.quantile(thin.rows(), np.linspace(0.05, 0.95, NUM_KINKS))).tolist()
    best: tuple[float, Curve] = (0.0, ())
    least = error_of(best)
    for more in ([] if has_experts else [(kink, ()) for kink in kinks], [(0.0, _stretches(columns, samples))]):
        errors = {tried: error_of(tried) for tried in more}
        if errors and min(errors.values()) < BETTER * least:
            best = min(errors, key=lambda tried: errors[tried])
            least = errors[best]
    return best


def _stretches(columns: dict[str, Array], samples: StepSamples) -> Curve:
    """A slope for each stretch of rows, the rows in all worth themselves; () where rows cost nothing."""
    ends = _ends(samples)
    without, beside = (climbed(ends, rows) for rows in (samples.decode, samples.decode + samples.prompt))
    slopes = dict(zip(map(str, ends[1:]), (without + samples.share[:, None] * (beside - without)).T, strict=True))
    others = {name: column for name, column in columns.items() if name != "row_s"}
    factors, _ = _fitted(others | slopes, samples.seconds)
    risen = np.cumsum([0.0, *(factors[name] for name in slopes)])
    return tuple(zip(ends.tolist(), (risen / risen[-1] * ends[-1]).tolist(), strict=True)) if risen[-1] else ()


def _ends(samples: StepSamples) -> Array:
    """Of the stretches of rows that have a slope each: each is as long as LEAST_IN_STRETCH ran in it."""
    seen = np.sort(np.concatenate([samples.decode + samples.prompt, samples.decode[samples.share < 1]]))
    seen, ends, begun = seen[seen > 0], [0.0], 0
    while begun + LEAST_IN_STRETCH < len(seen):
        end = max(float(seen[begun + LEAST_IN_STRETCH]), STRETCH * ends[-1])
        begun = int(np.searchsorted(seen, end, side="right"))
        if len(seen) - begun < LEAST_IN_STRETCH or seen[-1] < STRETCH * end:
            break
        ends.append(end)
    return np.array([*ends, float(seen[-1])])


def _fitted(columns: dict[str, Array], seconds: Array) -> tuple[dict[str, float], Array]:
    """Seconds of each term, none below 0, and what each iteration took more than they say, as a logarithm."""
    from scipy.optimize import nnls

    parts = np.stack(list(columns.values()), axis=1)
    sizes = parts.mean(axis=0)  # columns of like size: seconds of a token are tiny
    predicted, weights = seconds, np.ones(len(seconds))
    for _ in range(NUM_PASSES):
        over = (weights / predicted)[:, None]
        factors, _ = nnls(over * parts / sizes, weights * seconds / predicted)
        predicted = np.maximum(parts / sizes @ factors, LEAST_PART * seconds.mean())
        off = np.log(seconds / predicted)
        size = np.abs(off) / max(SCALES[1], _scatter(off))
        weights = np.sqrt(np.minimum(1.0, ROBUST / np.maximum(size, TINY)))
    return dict(zip(columns, (factors / sizes).tolist(), strict=True)), off


def _unknown(columns: dict[str, Array], seconds: Array, off: Array, *, num_independent: int) -> dict[str, float]:
    """The standard error of each term's part, as a part of the mean iteration."""
    parts = np.stack(list(columns.values()), axis=1) / seconds[:, None]
    parts = parts / parts.mean(axis=0)
    share = min(1.0, num_independent / len(seconds))
    # of each column in units of its mean: the standard error is that of its part of the mean iteration
    curvature = share * parts.T @ parts + TINY * len(seconds) * np.eye(len(columns))
    errors = max(SCALES[1], _scatter(off)) * np.sqrt(np.diag(np.linalg.inv(curvature)))
    return dict(zip(columns, errors.tolist(), strict=True))


def _scatter(off: Array) -> float:
    """The standard deviation of normal ones."""
    return 1.4826 * float(np.median(np.abs(off)))
