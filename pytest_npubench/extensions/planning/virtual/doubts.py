"""Whether a calibration explains the very run that it was made of: a cost that was fitted to a disturbed run is wrong.

Residuals are logarithms of predicted over measured, one a request or an iteration, in the order in which they came.
Two things are looked for: residuals that scatter by more than the form leaves open, and a run whose thirds differ, as
the machine then was not the same all the time.

Worked example: TPOT residuals around -0.12 in the first third and +0.05 in the last are 17 % apart, and told.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pytest_npubench.extensions.planning.virtual.calibration import Array, Calibration

LARGEST_SCATTER = {"tpot": 0.08, "e2e": 0.08, "step": 0.25}
"""A standard deviation of logarithms (1.4826 times the median distance from the median): of requests twice what is
believed beforehand, of iterations what a grouped step or a garbage collection now and then leaves."""
LARGEST_DRIFT = 0.08
LEAST = 12  # with four a third
TOLD = 0.5
"""Of the standard deviation that a factor's logarithm had beforehand: where it is told, so much is left at most."""


def doubts(residuals: Mapping[str, Array]) -> tuple[str, ...]:
    """In words; none where nothing speaks against it. By name: tpot, e2e or step."""
    sentences = []
    for name, values in residuals.items():
        usable = values[np.isfinite(values)]
        if len(usable) < LEAST:
            continue
        what = {"tpot": "TPOT", "e2e": "E2E", "step": "an iteration's time"}[name]
        scatter = _scatter(usable)
        if scatter > LARGEST_SCATTER[name]:
            sentences.append(
                f"predicted and measured {what} scatter by {scatter:.0%}: the form does not explain this run"
            )
        thirds = np.array_split(usable, 3)
        middles = [float(np.median(part)) for part in thirds]
        # a third's median is itself known to about 1.25 scatters over the root of its number
        noise = 3 * 1.25 * float(np.median([_scatter(part) for part in thirds])) * np.sqrt(2 * 3 / len(usable))
        if (apart := max(middles) - min(middles)) > max(LARGEST_DRIFT, noise):
            sentences.append(
                f"{what} is off by {apart:.0%} more in one third of the run than in another: what served it changed"
            )
    return tuple(sentences)


def untold(calibration: Calibration) -> tuple[str, ...]:
    """In words, the terms of which the run says little beyond what was believed beforehand; none where it tells all.

    How many it tells apart is the rank of what it was fitted to: the directions of the factors' logarithms in which the
    posterior is narrower than the prior.
    """
    believed = calibration.prior.covariance
    posterior = np.atleast_2d(np.cov(calibration.logs, rowvar=False))
    to_unit = np.linalg.inv(np.linalg.cholesky(believed))
    rank = int((np.linalg.eigvalsh(to_unit @ posterior @ to_unit.T) < TOLD**2).sum())
    names = calibration.prior.names
    left = np.sqrt(np.diag(posterior) / np.diag(believed))
    open_terms = [name for name, ratio in zip(names, left.tolist(), strict=True) if ratio > TOLD]
    if rank == len(names) or not open_terms:
        return ()
    return (
        f"requests alone tell {rank} of {len(names)} terms apart: the factors of {', '.join(open_terms)} are little "
        "better known than beforehand; iterations tell them (a step log or a journal)",
    )


def _scatter(values: Array) -> float:
    """The standard deviation of normal ones."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
