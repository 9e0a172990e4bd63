"""Energy a token, with the denominator in the name, since the two in use differ by an order of magnitude.

    per prompt + output token:   J / (prompt tokens prefilled + output tokens)     Layered Prefill, sections 3.3 and 5.1
    per output token:            J / output tokens                                 what its Table 8 is headed

Prompt tokens count once their request has its first token, each once even if a preemption prefilled them again. Energy
is the difference of a device's counter around the run, idle time included, or the sum over iterations where a cost
model tells it; where neither is known the value is None, with the reason.

Worked number: arXiv at 1.3 requests/s, 9194 + 231 tokens each: 56.6 mJ per prompt + output token is
0.0566 x 9425 x 1.3 = 693 W, as two H100s draw; per output token it would be 0.0566 x 231 x 1.3 = 17 W.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.serving.metrics.served import ServedRun

MILLI = 1000.0


def energy_metrics(run: ServedRun, energy_j: float | None) -> tuple[ServingMetric, ...]:
    """mJ per prompt + output token and per output token; energy_j is the counter's difference, None where unread.

    Raises MeasurementError for an energy that is negative or not finite.
    """
    energy, unknown = _energy(run, energy_j)
    num_output = sum(record.num_tokens for record in run.records)
    num_prompt, no_prompt = _prompt_tokens(run.records)
    num_both = None if num_prompt is None else num_prompt + num_output
    return (
        _metric(
            "energy_mj_per_prompt_and_output_token",
            "energy of the run / (prompt tokens prefilled + output tokens)",
            energy,
            num_both,
            unknown or no_prompt,
        ),
        _metric("energy_mj_per_output_token", "energy of the run / output tokens", energy, num_output, unknown),
    )


def _energy(run: ServedRun, energy_j: float | None) -> tuple[float | None, str]:
    """Joules, or None and why."""
    if energy_j is not None:
        if not 0 <= energy_j < float("inf"):
            raise MeasurementError(f"energy_j is {energy_j}; want a finite number of joules >= 0")
        return energy_j, ""
    joules = np.array(run.log.energy_j, dtype=np.float64)  # None becomes NaN
    is_counted = np.isfinite(joules)
    if not joules.size:
        return None, "no iteration ran"
    if not is_counted.all():
        return (
            None,
            f"no energy counter was read, and {joules.size - is_counted.sum()} of {joules.size} iterations tell none",
        )
    return float(joules.sum()), ""


def _prompt_tokens(records: Sequence[RequestRecord]) -> tuple[int | None, str]:
    prefilled = [record.prompt_tokens for record in records if record.num_tokens]
    counts = [tokens for tokens in prefilled if tokens is not None]
    if len(counts) < len(prefilled):
        return None, f"{len(prefilled) - len(counts)} of {len(prefilled)} requests do not say how long their prompt is"
    return sum(counts), ""


def _metric(name: str, definition: str, energy_j: float | None, num_tokens: int | None, note: str) -> ServingMetric:
    value = MILLI * energy_j / num_tokens if energy_j is not None and num_tokens else None
    return ServingMetric(
        name=name,
        unit="mJ/token",
        value=value,
        definition=definition,
        num_samples=num_tokens or 0,
        note=note if value is not None else note or "no token came",
    )
