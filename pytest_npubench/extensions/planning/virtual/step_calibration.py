"""A step cost from iterations that were seen: what each ran and how long it took.

The terms and what is believed of them beforehand are those of calibration.py. With the iterations at hand no simulation
is needed: the factors' logarithms at the most likely point (scipy's least squares with Huber's loss), and the normal
distribution that has the same curvature there. Iterations that follow one another are alike, so those of one block
count as at most NUM_INDEPENDENT.

Worked example: iterations that differ by 1,000 tokens of context alone, and by 0.1 ms, say 0.1 us a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost, Curve
from pytest_npubench.extensions.planning.virtual.calibration import ROBUST, Array, Calibration, Prior
from pytest_npubench.serving.log import IterationLog

NUM_INDEPENDENT = 200
SCALES = (0.05, 0.005)
"""Of the logarithm of one iteration's seconds, what the form cannot explain: beforehand, and at least, once it was seen
(1.4826 times the median of the residuals' size, which is the standard deviation of normal ones)."""
LEAST_ITERATIONS = 20
LARGEST_GAP = 0.1
"""Of an iteration, that lies between the one before and it, and is its own: the loop. Else nothing was there to run."""
NUM_DRAWS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSamples:
    """Columns, one entry an iteration: seconds, from the end of the one before where one followed the other; decode
    rows; prompt tokens, those that they attend to, and the share of the layers that both went through; tokens that the
    decode rows read; experts activated over all layers; from_idle is 1 where the first request came to an idle device,
    else 0."""

    seconds: Array
    decode: Array
    prompt: Array
    pairs: Array
    share: Array
    context: Array
    activations: Array
    from_idle: Array

    def chosen(self, which: slice | npt.NDArray[np.bool_]) -> StepSamples:
        return StepSamples(**{column.name: getattr(self, column.name)[which] for column in fields(self)})

    def part(self, first: int, stop: int) -> StepSamples:
        return self.chosen(slice(first, stop))

    @property
    def usable(self) -> StepSamples:
        """Those that took any time."""
        return self.chosen(self.seconds > 0)

    def rows(self, curve: Curve = ()) -> Array:
        """Decode rows and prompt tokens, as the layers have them on the mean, and what they are worth under a curve."""
        without, beside = (_worth(curve, rows) for rows in (self.decode, self.decode + self.prompt))
        rows: Array = without + self.share * (beside - without)
        return rows

    def predicted(self, cost: CalibratedCost) -> Array:
        """Seconds under a cost, as cost.seconds says them of each iteration."""
        rows_s = self.rows(cost.curve) * cost.row_s
        attention_s = self.context * cost.context_s + self.share * self.pairs * cost.pair_s
        fixed_s = cost.fixed_s + self.from_idle * cost.waking_s
        if cost.has_experts:
            return fixed_s + cost.weights_s + self.activations * cost.activation_s + rows_s + attention_s
        return fixed_s + np.maximum(cost.weights_s, rows_s) + attention_s

    def slow(self, cost: CalibratedCost) -> float:
        """The logarithm of all measured over all predicted seconds."""
        return float(np.log(self.seconds.sum() / self.predicted(cost).sum()))


def samples_of(
    log: IterationLog, shape: DecoderShape, *, kv_token_bytes: float, arrivals_s: Sequence[float] = ()
) -> StepSamples:
    """kv_token_bytes: of one token's keys and values in all layers. The log counts what all requests hold; what this
    iteration's prompts add is not read by its decode rows. arrivals_s: of all requests, where they are known: an
    iteration from idle takes its time from the arrival on that it waited for, which was the last one: a policy may wait
    for several."""
    decode = np.array(log.num_decode, dtype=np.float64)
    prompt = np.array(log.num_prefill_tokens, dtype=np.float64)
    share = np.where(prompt > 0, np.array(log.num_prefill_layers) / shape.num_layers, 0.0)
    num_tokens = np.array(log.kv_bytes) / kv_token_bytes - share * prompt
    seconds = np.array(log.end_s) - np.array(log.start_s)
    gaps_s = np.diff(np.array(log.start_s)) - seconds[:-1]
    follows = gaps_s < LARGEST_GAP * seconds[1:]
    seconds[1:] += np.where(follows, np.maximum(gaps_s, 0.0), 0.0)
    from_idle = np.append(True, ~follows) & (decode == 0) & (prompt > 0)
    if len(arrivals_s):
        seconds[from_idle] += _waited_s(log, np.sort(arrivals_s))[from_idle]
    return StepSamples(
        seconds=seconds,
        decode=decode,
        prompt=prompt,
        pairs=np.array(log.num_prefill_pairs, dtype=np.float64),
        share=share,
        context=np.where(decode > 0, np.maximum(num_tokens, 0.0), 0.0),
        activations=np.array(log.expert_activations, dtype=np.float64),
        from_idle=from_idle.astype(np.float64),
    )


def _waited_s(log: IterationLog, arrivals_s: Array) -> Array:
    """Of each iteration, from the last arrival before it to its start; 0 where nobody came after the one before."""
    starts_s, free_s = np.array(log.start_s), np.append(-np.inf, np.array(log.end_s)[:-1])
    last_s = np.append(-np.inf, arrivals_s)[np.searchsorted(arrivals_s, starts_s, side="right")]
    waited_s: Array = np.where(last_s > free_s, starts_s - last_s, 0.0)
    return waited_s


def check_enough(samples: StepSamples) -> None:
    """Raises ConfigError for too few iterations, and where none of them decoded."""
    number = int((samples.seconds > 0).sum())
    if number < LEAST_ITERATIONS:
        raise ConfigError(f"{number} iterations to calibrate on; want at least {LEAST_ITERATIONS}")
    if not samples.context.any():
        raise ConfigError("no iteration decoded: nothing tells weights from keys and values; want requests that decode")


def calibrate_steps(
    shape: DecoderShape, prior: Prior, samples: StepSamples, *, num_blocks: int = 1, seed: int = 0
) -> Calibration:
    """num_blocks: of iterations that follow one another. Raises as check_enough."""
    from scipy.optimize import least_squares

    check_enough(samples)
    samples = samples.usable
    share = np.sqrt(min(1.0, num_blocks * NUM_INDEPENDENT / len(samples.seconds)))
    to_unit = np.linalg.cholesky(np.linalg.inv(prior.covariance)).T

    def off_by(logs: Array) -> Array:
        errors: Array = np.log(samples.predicted(prior.cost(shape, logs)) / samples.seconds)
        return errors

    def residuals(logs: Array, scale: float) -> Array:
        off = off_by(logs) / scale
        size = np.abs(off)
        huber = np.where(size <= ROBUST, off, np.sign(off) * np.sqrt(ROBUST * (2 * np.maximum(size, ROBUST) - ROBUST)))
        both: Array = np.concatenate([share * huber, to_unit @ (logs - prior.mean)])
        return both

    first = least_squares(residuals, prior.mean, args=(SCALES[0],))
    scale = max(SCALES[1], 1.4826 * float(np.median(np.abs(off_by(first.x)))))
    best = least_squares(residuals, first.x, args=(scale,))
    slopes = np.asarray(best.jac)
    spread = np.linalg.inv(slopes.T @ slopes)
    draws = np.random.default_rng(seed).multivariate_normal(best.x, spread, NUM_DRAWS)
    return Calibration(prior=prior, shape=shape, logs=draws + (best.x - draws.mean(axis=0)), centre=best.x)


def _worth(curve: Curve, rows: Array) -> Array:
    """calibrated.worth of each."""
    if not curve:
        return rows
    ends, worth = np.array(curve).T
    slope = (worth[-1] - worth[-2]) / (ends[-1] - ends[-2])
    worth_of_rows: Array = np.interp(rows, ends, worth) + slope * np.maximum(rows - ends[-1], 0.0)
    return worth_of_rows


def pooled(samples: Sequence[StepSamples]) -> StepSamples:
    names = [column.name for column in fields(StepSamples)]
    return StepSamples(**{name: np.concatenate([getattr(one, name) for one in samples]) for name in names})
