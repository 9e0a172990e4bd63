"""Simulated nights: how often a rule alarms where nothing changed, and how often it sees what did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.verdict.simulation.noise import Noise, SimulatedSuite
from pytest_npubench.verdict.simulation.rules import JOINT, AlarmRule, Observed, entries_of

NUM_SAMPLES = 20
NUM_PROCESSES = 3
NUM_PAIRS = 5
NUM_ANCHOR = 5
EFFECTS = (0.02, 0.05, 0.10)
NUM_PLANTED = 3


@dataclass(slots=True, kw_only=True)
class Score:
    """Counts over nights: alarms where nothing changed, nights with one or more, planted effects seen by effect."""

    num_nights: int = 0
    num_alarms: int = 0
    num_bad_nights: int = 0
    seen: dict[float, list[bool]] = field(default_factory=lambda: {effect: [] for effect in EFFECTS})

    def power(self, effect: float) -> float:
        return float(np.mean(self.seen[effect]))


def run_nights(
    noise: Noise, rules: Mapping[str, AlarmRule], *, num_nights: int, num_cases: int, num_accepted: int, seed: int
) -> dict[str, Score]:
    """Each night has a suite and a history of its own; 3 cases are slowed down for each effect, one effect at a time.

    num_accepted nights come after the 5 of the anchor. The process pairs of an A/B run have no night between them.
    """
    rng = np.random.default_rng(seed)
    scores = {name: Score() for name in rules}
    for _ in range(num_nights):
        seen = one_night(noise, num_cases, num_accepted, rng)
        planted = {effect: rng.choice(num_cases, min(NUM_PLANTED, num_cases), replace=False) for effect in EFFECTS}
        for name, rule in rules.items():
            alarms, score = rule(seen), scores[name]
            score.num_nights += 1
            score.num_alarms += int(alarms.sum())
            score.num_bad_nights += bool(alarms.any())
            for effect, cases in planted.items():
                slower = slowed(seen, cases, effect)
                score.seen[effect].extend(rule(slower)[cases] if name in JOINT else rule(slower.only(cases)))
    return scores


def one_night(noise: Noise, num_cases: int, num_accepted: int, rng: np.random.Generator) -> Observed:
    suite = SimulatedSuite(noise, num_cases, rng)
    history = [suite.night(1, NUM_SAMPLES)[:, 0] for _ in range(NUM_ANCHOR + num_accepted)]
    entries = np.stack([entries_of(samples) for samples in history], axis=1)
    return Observed(
        accepted=entries[:, NUM_ANCHOR:],
        anchor=entries[:, :NUM_ANCHOR],
        before=history[-1],
        tonight=suite.night(NUM_PROCESSES, NUM_SAMPLES),
        pairs=entries_of(suite.night(2 * NUM_PAIRS, NUM_SAMPLES)).reshape(num_cases, NUM_PAIRS, 2),
    )


def slowed(seen: Observed, cases: NDArray[np.int_], effect: float) -> Observed:
    """The same night with some cases slower by `effect`; of the pairs, their second halves."""
    more = np.zeros(len(seen.before))
    more[cases] = np.log1p(effect)
    pairs = seen.pairs.copy()
    pairs[:, :, 1] += more[:, None]
    return replace(seen, tonight=seen.tonight + more[:, None, None], pairs=pairs)
