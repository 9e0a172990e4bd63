"""Memory that a policy holds: keys and values, and the hidden states of prompts between two layer groups.

Both are known at the end of each iteration, when what it ran is still held. The mean weights each iteration by its
seconds; idle time, when nothing runs, is left out:

    mean = sum(bytes_i (end_i - start_i)) / sum(end_i - start_i)

Worked number: 100 bytes for 1 s, then 400 bytes for 3 s: maximum 400, mean (100 + 1200) / 4 = 325.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.served import ServedRun, column
from pytest_npubench.stats.checks import FloatArray


def memory_metrics(run: ServedRun) -> tuple[ServingMetric, ...]:
    """Maximum and time-weighted mean of KV cache and hidden states, in bytes."""
    weights_s = np.maximum(column("end_s", run.log.end_s) - column("start_s", run.log.start_s), 0.0)
    return (
        *_both("kv_bytes", "bytes of keys and values held", run.log.kv_bytes, weights_s),
        *_both("hidden_bytes", "bytes of hidden states held for unfinished prompts", run.log.hidden_bytes, weights_s),
    )


def _both(name: str, what: str, values: Sequence[float], weights_s: FloatArray) -> tuple[ServingMetric, ...]:
    amounts, total_s = column(name, values), float(weights_s.sum())
    largest = float(amounts.max()) if amounts.size else None
    mean = float(amounts @ weights_s) / total_s if total_s else None
    return (
        _metric(
            f"{name}_max", f"largest over iterations of {what} at their ends", largest, amounts.size, "no iteration ran"
        ),
        _metric(
            f"{name}_mean", f"mean over time in iterations of {what}", mean, amounts.size, "no iteration took time"
        ),
    )


def _metric(name: str, definition: str, value: float | None, num_samples: int, missing: str) -> ServingMetric:
    note = missing if value is None else ""
    return ServingMetric(
        name=name, unit="bytes", value=value, definition=definition, num_samples=num_samples, note=note
    )
