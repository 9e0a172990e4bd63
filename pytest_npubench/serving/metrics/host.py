"""The host's part of a time between tokens: what it takes to launch an iteration on a device that computes beside it.

A gap between two tokens is an iteration of the batch, so an iteration counts once for each of its decode rows. Where
the device ends its kernels before the host has launched the next ones, a gap is the host's nearly whole, and a faster
device would not shorten it.

Worked number: an iteration of 3 decode rows with 4 ms of launches and one of a single row with 8 ms: (3 x 4 + 8) / 4 =
5 ms of a mean gap.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.served import ServedRun, column


def host_metrics(run: ServedRun) -> tuple[ServingMetric, ...]:
    """Returns the mean seconds of launches in a gap between tokens; None unless every iteration with decode rows tells
    them."""
    num_rows = column("num_decode", run.log.num_decode)
    host_s = np.array(run.log.host_s, dtype=np.float64)  # None becomes NaN
    counting = num_rows > 0
    is_known = bool(counting.any()) and bool(np.isfinite(host_s[counting]).all())
    return (
        ServingMetric(
            name="tbt_host_mean_s",
            unit="s",
            value=float(np.average(host_s[counting], weights=num_rows[counting])) if is_known else None,
            definition="from an iteration's start until its last launch returned, mean over its decode rows",
            kind="none",
            num_samples=int(num_rows.sum()),
            note="" if is_known else "no iteration tells apart what is the host's",
        ),
    )
