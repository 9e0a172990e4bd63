"""Blocks of iterations between which the machine's speed drifts: one cost, a speed for each block, and what that leaves
open of a further one.

Cost and speeds are fitted in turns: each block's seconds over its speed, the cost of all of them, the speeds under that
cost. Fitted at once, a round that was slow and had more context than others would make context cost what it does not.

Draws of the posterior are then moved by what a further block of a further round may be slower or faster by
(rounds_spread.py), at evenly spaced chances and in their order, so that every n-th of them is spread as all are.

Worked example: two rounds 10 % slower and 10 % faster than one cost: 90 % of further rounds lie within 6.31 x 0.173.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.planning.rounds_spread import half_width
from pytest_npubench.extensions.planning.virtual.calibration import Array, Calibration, Prior
from pytest_npubench.extensions.planning.virtual.step_calibration import StepSamples, calibrate_steps, pooled
from pytest_npubench.extensions.planning.virtual.step_prior import prior_of_steps

NUM_TURNS = 4


def calibrate_blocks(
    shape: DecoderShape, blocks: Sequence[StepSamples], prior: Prior | None = None, *, seed: int = 0
) -> Calibration:
    """At the mean speed of the blocks. Without a prior that of the iterations themselves. Raises ConfigError as
    step_calibration.check_enough, and without a prior as prior_of_steps."""
    slow = np.zeros(len(blocks))
    for _ in range(NUM_TURNS if len(blocks) > 1 else 1):
        even = [replace(one, seconds=one.seconds / np.exp(by)) for one, by in zip(blocks, slow, strict=True)]
        every = pooled(even)
        before = prior or prior_of_steps(shape, every, num_blocks=len(blocks))
        calibration = calibrate_steps(shape, before, every, num_blocks=len(blocks), seed=seed)
        slow = np.array([one.slow(calibration.best) for one in blocks])
        slow -= slow.mean()
    return calibration


def with_drift(calibration: Calibration, slow: Array) -> Calibration:
    """slow: logarithms of measured over predicted seconds, [rounds, blocks]. Raises MeasurementError for fewer than two
    rounds."""
    chances = (np.arange(len(calibration.logs)) + 0.5) / len(calibration.logs)
    moves = [np.sign(chance - 0.5) * float(half_width(slow, max(abs(2 * chance - 1), 1e-9))) for chance in chances]
    logs = calibration.logs + slow.mean() + np.array(moves)[:, None]
    return replace(calibration, logs=logs, centre=calibration.centre + slow.mean())
