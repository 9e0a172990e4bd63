"""What an engine answers to the probe prompts (probe.py), and how far two answers lie apart.

An answer is the logits of NUM_FIXED vocabulary entries at one position. Its distance from another is |v - w| / |w|,
each centred, because a softmax does not see what all logits have in common. Logits [..., NUM_FIXED] give [...].

Worked example: v = (1, 3), w = (0, 4): centred (-1, 1) and (-2, 2), a distance of |(1, -1)| / |(-2, 2)| = 0.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.probe import HostWeights, ProbePrompts
from pytest_npubench.errors import MeasurementError

Logits = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """logits [prompts, positions, NUM_FIXED]: of each prompt those that its prefill ends in, then those of each forced
    token's step.

    `agree` and `differ` are distances between two answers of this engine, [prompts] of each pair by its name, NaN where
    a prompt has no such pair: of pairs that mean the same and must agree, and of prompts in which tokens were changed,
    whose answers must differ. weights_bits is the checksum of the weights where the engine holds them, made_bits that
    of what the host made of the recipe; None where the engine cannot tell. `prompts` are those that were asked.
    `weights` are the engine's own, where they are not those of probe.py. `tokens` [prompts, positions] are the greedy
    tokens, and `timed` [positions, NUM_FIXED] answers to the shortest prompt on the weights that are timed; None where
    the engine does not tell."""

    prompts: ProbePrompts
    logits: Logits
    agree: Mapping[str, Logits]
    differ: Mapping[str, Logits]
    weights_bits: int | None = None
    made_bits: int | None = None
    weights: HostWeights | None = None
    tokens: npt.NDArray[np.int64] | None = None
    timed: Logits | None = None


def check_finite(logits: Logits, what: str = "answers") -> None:
    """Raises MeasurementError where some of [..., NUM_FIXED] are no numbers: a distance from them would be none."""
    finite = np.isfinite(logits).all(axis=-1)
    if not finite.all():
        raise MeasurementError(f"{what} are not finite at {int((~finite).sum())} of {finite.size} positions")


def distances(answer: npt.ArrayLike, other: npt.ArrayLike) -> Logits:
    """Returns the distances of answers [..., NUM_FIXED] from others; not a number where both say nothing (all logits
    alike)."""
    centred, wanted = _centred(answer), _centred(other)
    with np.errstate(divide="ignore", invalid="ignore"):
        apart: Logits = np.linalg.norm(centred - wanted, axis=-1) / np.linalg.norm(wanted, axis=-1)
    return apart


def root_mean_square(apart: npt.ArrayLike) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(apart, np.float64)))))


def _centred(answer: npt.ArrayLike) -> Logits:
    logits = np.asarray(answer, np.float64)
    centred: Logits = logits - logits.mean(axis=-1, keepdims=True)
    return centred
