"""Every metric of a serving run, each with its unit, its definition, what it rests on and how it may be gated.

Worked example: two requests that arrived, one of them in time: slo_attainment 0.5, n = 2, interval 0.013 to 0.987.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.serving.metrics.columns import RequestColumns, columns_of
from pytest_npubench.serving.metrics.energy import energy_metrics
from pytest_npubench.serving.metrics.experts import expert_metrics
from pytest_npubench.serving.metrics.fairness import fairness_metrics
from pytest_npubench.serving.metrics.host import host_metrics
from pytest_npubench.serving.metrics.intervals import COVERAGE
from pytest_npubench.serving.metrics.latency import latency_metrics
from pytest_npubench.serving.metrics.memory import memory_metrics
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.offered import offered_metrics
from pytest_npubench.serving.metrics.served import ServedRun
from pytest_npubench.serving.metrics.slo import Slo, meets
from pytest_npubench.serving.metrics.smoothness import smoothness_metrics
from pytest_npubench.serving.metrics.throughput import throughput_metrics
from pytest_npubench.stats.checks import BoolArray
from pytest_npubench.stats.percentile import proportion_bounds


def summarize(
    run: ServedRun, slo: Slo | None = None, *, num_experts: float | None = None, energy_j: float | None = None
) -> tuple[ServingMetric, ...]:
    """All metrics of a run, always the same names in the same order; one that is not known has None and the reason.

    num_experts of a layer gives coverage (1: a dense decoder); energy_j is the difference of the device's energy
    counter around the run. A ratio of 0 cannot be gated, so its kind is "none". Raises MeasurementError for a log whose
    columns cannot be used, ConfigError for a number of layers or experts that cannot be.
    """
    columns = columns_of(run.records)
    metrics = (
        *attainment_metrics(columns, slo),
        *latency_metrics(columns),
        *host_metrics(run),
        *smoothness_metrics(columns),
        *fairness_metrics(columns),
        *throughput_metrics(run, columns, slo),
        *expert_metrics(run, num_experts),
        *memory_metrics(run),
        *energy_metrics(run, energy_j),
        *offered_metrics(run, columns),
    )
    return tuple(map(_gated, metrics))


def attainment_metrics(columns: RequestColumns, slo: Slo | None) -> tuple[ServingMetric, ...]:
    """Attainment of both limits, of TTFT alone and of TBT alone, over arrived requests."""
    both, in_time, smooth = (None, None, None) if slo is None else meets(columns, slo)
    limits = ("TTFT", "TBT") if slo is None else (f"TTFT <= {slo.ttft_s:g} s", f"every TBT <= {slo.tbt_s:g} s")
    return (
        _attainment("slo_attainment", f"{limits[0]} and {limits[1]}, and finished", both, columns.num_requests),
        _attainment("ttft_attainment", limits[0], in_time, columns.num_requests),
        _attainment("tbt_attainment", f"{limits[1]}, and finished", smooth, columns.num_requests),
    )


def _attainment(name: str, condition: str, met: BoolArray | None, num_arrived: int) -> ServingMetric:
    """The interval is the exact binomial one, as if requests were independent: a capacity needs several runs."""
    is_judged = met is not None and num_arrived > 0
    num_met = int(met.sum()) if met is not None else 0
    return ServingMetric(
        name=name,
        unit="",
        value=num_met / num_arrived if is_judged else None,
        definition=f"requests with {condition} / arrived requests",
        better="higher",
        kind="difference",
        num_samples=num_arrived,
        interval=proportion_bounds(num_met, num_arrived, COVERAGE) if is_judged else None,
        note="" if is_judged else "no SLO was given" if met is None else "no request arrived",
    )


def _gated(metric: ServingMetric) -> ServingMetric:
    return replace(metric, kind="none") if metric.kind == "ratio" and metric.value == 0 else metric
