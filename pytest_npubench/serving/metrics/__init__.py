"""Serving metrics: arithmetic on the time points of requests and the counters of iterations.

Worked example: tokens at 1.5, 1.6 and 1.9 s of a request that arrived at 1.0 s meet Slo(ttft_s=0.5, tbt_s=0.3), so
slo_attainment of it and of one that never came to its first token is 1 / 2. docs/serving-metrics.md has every formula.
"""

from __future__ import annotations

from pytest_npubench.serving.metrics.fairness import jain_index
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.serving.metrics.slo import Slo, attainment_split, slo_attainment
from pytest_npubench.serving.metrics.summary import summarize

__all__ = [
    "RequestRecord",
    "ServingMetric",
    "Slo",
    "attainment_split",
    "jain_index",
    "slo_attainment",
    "summarize",
]
