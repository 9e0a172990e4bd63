"""What the run was asked, and whether the load generator kept up: figures that judge the measurement, not the policy.

    realised rate  (arrivals - 1) / (last - first arrival)
    realised CV    standard deviation of the gaps between arrivals / their mean; 1 for Poisson arrivals
    dispatch lag   when the loop took notice - arrival

None of them is gated.

Worked number: arrivals at 0, 1, 2 and 4 s: 3 gaps in 4 s, 0.75 requests/s; gaps 1, 1, 2 deviate by 0.577 from 1.333,
CV 0.433.
"""

from __future__ import annotations

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.arrivals import realised
from pytest_npubench.serving.metrics.columns import RequestColumns
from pytest_npubench.serving.metrics.latency import of_requests, spread_metrics
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.served import ServedRun

RATE = "(arrivals - 1) / (last - first arrival)"
CV = "standard deviation of the gaps between arrivals / their mean; 1 for Poisson arrivals"


def offered_metrics(run: ServedRun, columns: RequestColumns) -> tuple[ServingMetric, ...]:
    """Counts, the run's length, realised arrivals and dispatch lag."""
    num, records = columns.num_requests, run.records
    lag = columns.dispatched_s - columns.arrival_s
    missing = "never noticed, or nobody said when"
    return (
        _count("num_arrived", num, "requests that arrived", num),
        _count("num_finished", int(columns.finished.sum()), "requests with all their tokens", num),
        _count("num_aborted", sum(record.aborted is not None for record in records), "requests given up", num),
        _count("num_preemptions", sum(record.num_preemptions for record in records), "KV caches taken away", num),
        _figure("duration_s", "s", run.ended_s - run.started_s, "from the run's start to its end", len(run.log.end_s)),
        *_arrivals(columns),
        *spread_metrics(
            of_requests(columns, "dispatch_lag", "when the loop took notice - arrival", lag, missing, "none")
        ),
    )


def _arrivals(columns: RequestColumns) -> tuple[ServingMetric, ...]:
    num_gaps = max(columns.num_requests - 1, 0)
    try:
        rate, cv = realised(columns.arrival_s.tolist())
    except WorkloadError as error:
        why = str(error)
        return (
            _figure("realised_rate_per_s", "requests/s", None, RATE, num_gaps, why),
            _figure("realised_cv", "", None, CV, num_gaps, why),
        )
    return (
        _figure("realised_rate_per_s", "requests/s", rate, RATE, num_gaps),
        _figure("realised_cv", "", cv, CV, num_gaps, "" if cv is not None else "fewer than two gaps"),
    )


def _count(name: str, value: int, definition: str, num_samples: int) -> ServingMetric:
    return _figure(name, "", value, definition, num_samples)


def _figure(
    name: str, unit: str, value: float | None, definition: str, num_samples: int, note: str = ""
) -> ServingMetric:
    return ServingMetric(
        name=name, unit=unit, value=value, definition=definition, kind="none", num_samples=num_samples, note=note
    )
