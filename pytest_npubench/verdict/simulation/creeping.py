"""Two scenarios over 14 nights: a baseline that is never renewed, and a case that gets worse by 0.5 % every night."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_npubench.verdict.simulation.nights import NUM_ANCHOR, NUM_PROCESSES, NUM_SAMPLES
from pytest_npubench.verdict.simulation.noise import Noise, SimulatedSuite
from pytest_npubench.verdict.simulation.rules import AlarmRule, Observed, entries_of, gate, median_5_percent

NUM_NIGHTS = 14
CREEP_A_NIGHT = 0.005
PERMANENT = 7


def frozen_baseline(noise: Noise, rule: AlarmRule, *, num_cases: int, num_accepted: int, seed: int) -> float:
    """The share of unchanged cases that alarm on 7 or more of 14 nights against a baseline that is never renewed."""
    rng = np.random.default_rng(seed)
    suite = SimulatedSuite(noise, num_cases, rng)
    history = [suite.night(1, NUM_SAMPLES)[:, 0] for _ in range(NUM_ANCHOR + num_accepted)]
    entries = np.stack([entries_of(samples) for samples in history], axis=1)
    seen = Observed(
        accepted=entries[:, NUM_ANCHOR:],
        anchor=entries[:, :NUM_ANCHOR],
        before=history[-1],
        tonight=np.empty(0),
        pairs=np.empty(0),
    )
    nights = [rule(replace(seen, tonight=suite.night(NUM_PROCESSES, NUM_SAMPLES))) for _ in range(NUM_NIGHTS)]
    return float(np.mean(np.sum(nights, axis=0) >= PERMANENT))


def creep(noise: Noise, *, num_cases: int, num_accepted: int, seed: int) -> tuple[float, float, float]:
    """The share of creeping cases found within 14 nights: by our gate, by our gate without its anchor, and by median:5%
    against the night before. Every tenth case creeps; each night is accepted, whatever it shows."""
    rng = np.random.default_rng(seed)
    suite = SimulatedSuite(noise, num_cases, rng)
    creeping = np.arange(num_cases) % 10 == 0
    history = [entries_of(suite.night(1, NUM_SAMPLES)[:, 0]) for _ in range(NUM_ANCHOR + num_accepted)]
    anchor, nothing = np.stack(history[:NUM_ANCHOR], axis=1), np.empty((num_cases, 0))
    before = suite.night(1, NUM_SAMPLES)[:, 0]
    found = np.zeros((3, num_cases), dtype=np.bool_)
    for night in range(1, NUM_NIGHTS + 1):
        tonight = suite.night(NUM_PROCESSES, NUM_SAMPLES) + (creeping * CREEP_A_NIGHT * night)[:, None, None]
        window = np.stack(history[-num_accepted:], axis=1)
        seen = Observed(accepted=window, anchor=anchor, before=before, tonight=tonight, pairs=np.empty(0))
        found[0] |= gate(seen)
        found[1] |= gate(replace(seen, anchor=nothing))
        found[2] |= median_5_percent(seen)
        before = tonight[:, 0]
        history.append(entries_of(before))
    shares = found[:, creeping].mean(axis=1)
    return float(shares[0]), float(shares[1]), float(shares[2])
