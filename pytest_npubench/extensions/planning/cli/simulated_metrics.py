"""The metrics of a simulated run: with a band where its cost is calibrated, and beside those of a real run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.reports.number_text import figures

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.cli.simulation import System
    from pytest_npubench.extensions.planning.measured_run import MeasuredRun
    from pytest_npubench.extensions.planning.virtual.cost_file import CostFile
    from pytest_npubench.serving.metrics import ServingMetric, Slo
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.serving.result import ServingResult

NUM_DRAWS = 12
"""Of the cost, for a band."""
ATTAINED, LATENCY = "slo_attainment", "e2e_mean_s"
GATED = ("ttft_mean_s", "tpot_mean_s", "e2e_mean_s")


def simulated_run(
    system: System,
    policy: str,
    settings: dict[str, Any],
    rate_per_s: float | None,
    requests: tuple[ServingRequest, ...],
    slo: Slo | None,
    calibration: CostFile | None,
) -> tuple[dict[str, Any], ServingResult]:
    """Serves the requests on the virtual clock. Returns what came out as plain data, and the result."""
    from pytest_npubench.extensions.planning.cli.simulation import simulate

    started_s = perf_counter()
    result = simulate(system, policy, settings, requests)
    took_s = perf_counter() - started_s
    metrics = _metrics_of(system, result, slo)
    values = {metric.name: metric.value for metric in metrics}
    served_s = result.ended_s - result.started_s
    asked = "as replayed" if rate_per_s is None else f"at {rate_per_s:g} requests/s"
    print(
        f"{policy} {asked}: {len(requests)} requests, {served_s:.1f} s simulated in {took_s:.2f} s",
        file=sys.stderr,
        flush=True,
    )
    run = {
        "policy": policy,
        "settings": dict(result.settings),
        "rate_per_s": rate_per_s,
        "realised_rate_per_s": values["realised_rate_per_s"],
        "realised_cv": values["realised_cv"],
        "metrics": [asdict(metric) for metric in metrics],
    }
    if calibration is not None:
        run |= _banded(system, policy, settings, requests, slo, calibration, result, metrics)
    return run, result


def _metrics_of(system: System, result: ServingResult, slo: Slo | None) -> tuple[ServingMetric, ...]:
    """What was served, in figures; with shared prefixes also how much of the prompts was cached."""
    from pytest_npubench.extensions.planning.replicas import SimulatedResult
    from pytest_npubench.serving.metrics import ServingMetric, summarize

    metrics = tuple(summarize(result, slo, num_experts=system.shape.mean_experts))
    if not system.shares_prefixes:
        return metrics
    assert isinstance(result, SimulatedResult)
    num_tokens = sum(record.prompt_tokens or 0 for record in result.records)
    return (
        *metrics,
        ServingMetric(
            name="prefix_hit",
            unit="fraction",
            value=result.num_cached_tokens / num_tokens,
            definition="prompt tokens that were in the cache when their request was first admitted / prompt tokens",
            kind="none",
        ),
    )


def _banded(
    system: System,
    policy: str,
    settings: dict[str, Any],
    requests: tuple[ServingRequest, ...],
    slo: Slo | None,
    calibration: CostFile,
    best: ServingResult,
    metrics: Sequence[ServingMetric],
) -> dict[str, Any]:
    """The metrics with the bounds of a 90 % band: what draws of the cost answer, times and rates widened by what the
    form cannot explain. Where an iteration has more than the calibrating run had, the band is twice as wide."""
    import numpy as np

    from pytest_npubench.extensions.planning.cli.simulation import simulate
    from pytest_npubench.extensions.planning.virtual.calibration import MEAN_SCALE

    drawn: dict[str, list[float]] = {metric.name: [] for metric in metrics}
    for cost in calibration.calibration(system.shape).draws(NUM_DRAWS):
        result = simulate(replace(system, cost=cost), policy, settings, requests)
        for metric in _metrics_of(system, result, slo):
            if metric.value is not None and isfinite(metric.value):
                drawn[metric.name].append(metric.value)
    beyond = calibration.beyond(best.log, system.shape, system.guessed_tokens)
    wider, rows = 2.0 if beyond else 1.0, []
    for metric in metrics:
        row = asdict(metric) | {"low": None, "high": None}
        if (values := drawn[metric.name]) and metric.value is not None:
            unknown = 1.645 * MEAN_SCALE * abs(metric.value) if metric.unit in ("s", "1/s", "tokens/s") else 0.0
            low, high = np.quantile(values, (0.05, 0.95), method="hazen").tolist()
            row["low"] = max(0.0, metric.value - wider * (max(0.0, metric.value - low) + unknown))  # none is negative
            row["high"] = metric.value + wider * (max(0.0, high - metric.value) + unknown)
        rows.append(row)
    return {"metrics": rows, "beyond": list(beyond)}


def beside(run: dict[str, Any], measured: Mapping[str, float]) -> dict[str, Any]:
    """The run with what a real one measured, where that is known, and simulated over it - 1."""
    if not measured:
        return run
    rows = []
    for metric in run["metrics"]:
        real = measured.get(metric["name"])
        error = metric["value"] / real - 1 if real and metric["value"] is not None else None
        rows.append(metric | {"measured": real, "error": error})
    outside = [
        row["name"]
        for row in rows
        if row["name"] in GATED and row.get("low") is not None and not row["low"] <= row["measured"] <= row["high"]
    ]
    return run | {"metrics": rows, "outside": outside}


def measured_metrics(run: MeasuredRun) -> dict[str, float]:
    """TTFT, TPOT and E2E of a real run by the metrics' names: it has first and last tokens, and none between."""
    from pytest_npubench.serving.metrics.columns import columns_of
    from pytest_npubench.serving.metrics.latency import latency_metrics

    metrics = latency_metrics(columns_of(run.records()))
    return {
        metric.name: metric.value
        for metric in metrics
        if metric.name.startswith(("ttft", "tpot", "e2e")) and metric.value is not None
    }


def winners(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each rate with several policies: which is better, and by what, in words. An SLO decides by how many requests
    attain it, and where that is equal or there is none, the mean latency decides."""
    sentences = []
    inf = float("inf")
    for rate_per_s in dict.fromkeys(run["rate_per_s"] for run in runs):
        values = {
            run["policy"]: {metric["name"]: metric["value"] for metric in run["metrics"]}
            for run in runs
            if run["rate_per_s"] == rate_per_s
        }
        if len(values) < 2:
            continue
        ranked = sorted(
            values, key=lambda policy: (-(values[policy].get(ATTAINED) or 0.0), values[policy][LATENCY] or inf)
        )
        attained = [values[policy].get(ATTAINED) for policy in ranked]
        by_slo = attained[0] is not None and attained[0] != attained[-1]
        name, unit = (ATTAINED, "") if by_slo else (LATENCY, "s")
        first, *texts = figures([values[policy][name] for policy in ranked], unit)
        others = ", ".join(map(" ".join, zip(ranked[1:], texts, strict=True)))
        asked = "as replayed" if rate_per_s is None else f"at {rate_per_s:g} requests/s"
        sentences.append(f"{ranked[0]} wins {asked}: {name} {first}; {others}")
    return sentences
