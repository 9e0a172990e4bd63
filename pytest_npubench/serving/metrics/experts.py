"""Counters of a mixture of experts: how much of it each iteration wakes up, and the bytes that takes.

An expert of a layer is activated in an iteration when any row, prefill or decode, is routed to it; it is then loaded
once (Layered Prefill, section 3.1). With a_ij experts activated in layer j of iteration i, E experts a layer and B
bytes an expert:

    load bytes = B sum a_ij        coverage = mean of a_ij / E over the (i, j) that had rows

A layer has rows where something decodes, which runs all layers, or where some prompt runs. Rows that only pad a batch
never count here but in the padded counter. On the virtual clock the counters repeat exactly and are gated so; on the
wall clock the plans hang on when requests come, so they do not.

Worked number: 2 layers of 8 experts; iteration 0 prefills through layer 0 only and wakes 6, iteration 1 decodes and
wakes 2 + 3: coverage (6 + 5) / (3 x 8) = 0.458; 11 experts of 9.437 MB are 103.8 MB.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics.metric import ServingMetric
from pytest_npubench.serving.metrics.served import ServedRun, column
from pytest_npubench.stats.checks import BoolArray, FloatArray

COVERAGE = "distinct experts activated / experts of the layer, mean over (iteration, layer) pairs that had rows"


def expert_metrics(run: ServedRun, num_experts: float | None) -> tuple[ServingMetric, ...]:
    """Counters and coverage of a run; num_experts is of one layer, the mean where layers differ; None where nobody
    said, 1 for a dense decoder.

    Raises ConfigError for fewer than one layer or expert.
    """
    return (*_counters(run), *_coverages(run, num_experts))


def _counters(run: ServedRun) -> tuple[ServingMetric, ...]:
    activations = int(column("expert_activations", run.log.expert_activations).sum())
    padded = int(column("padded_expert_activations", run.log.padded_expert_activations).sum())
    num_bytes = int(column("expert_load_bytes", run.log.expert_load_bytes).sum())
    num_finished = sum(record.finished for record in run.records)
    with_rows = int(_layers_with_rows(run.log, run.num_layers).sum())
    per_request = num_bytes / num_finished if num_finished else None
    return (
        _counter(
            run,
            "expert_activations",
            "experts",
            activations,
            with_rows,
            "sum over iterations and layers of distinct experts activated by prefill and decode rows together",
        ),
        _counter(
            run,
            "padded_expert_activations",
            "experts",
            padded,
            with_rows,
            "the same, rows that pad a static batch included",
        ),
        _counter(run, "expert_load_bytes", "bytes", num_bytes, with_rows, "expert activations x bytes of one expert"),
        _counter(
            run,
            "expert_load_bytes_per_request",
            "bytes/request",
            per_request,
            num_finished,
            "expert load bytes / finished requests",
            "" if num_finished else "no request finished",
        ),
    )


def _coverages(run: ServedRun, num_experts: float | None) -> tuple[ServingMetric, ...]:
    only_decode = _only_decode(run.log)
    prefills = column("num_prefill_tokens", run.log.num_prefill_tokens) > 0
    return (
        _coverage(run, num_experts, "expert_coverage", COVERAGE, np.ones_like(prefills)),
        _coverage(
            run, num_experts, "expert_coverage_decode_only", f"{COVERAGE}, of iterations without prefill", only_decode
        ),
        _coverage(
            run, num_experts, "expert_coverage_with_prefill", f"{COVERAGE}, of iterations that prefill", prefills
        ),
    )


def _coverage(
    run: ServedRun, num_experts: float | None, name: str, definition: str, chosen: BoolArray
) -> ServingMetric:
    layers = float(_layers_with_rows(run.log, run.num_layers)[chosen].sum())
    activations = float(column("expert_activations", run.log.expert_activations)[chosen].sum())
    value, note = None, ""
    if num_experts is None:
        note = "the number of experts is not known"
    elif num_experts == 1:
        note = "a dense decoder: no expert is chosen"
    elif not layers:
        note = "no such iteration"
    else:
        _check_shape(run.num_layers, num_experts)
        value = activations / (layers * num_experts)
    return ServingMetric(
        name=name,
        unit="",
        value=value,
        definition=definition,
        kind="exact" if run.clock == "virtual" else "difference",
        num_samples=int(layers),
        note=note,
    )


def _counter(
    run: ServedRun, name: str, unit: str, value: float | None, num_samples: int, definition: str, note: str = ""
) -> ServingMetric:
    return ServingMetric(
        name=name,
        unit=unit,
        value=value,
        definition=definition,
        kind="exact" if run.clock == "virtual" else "ratio",
        num_samples=num_samples,
        note=note,
    )


def _layers_with_rows(log: IterationLog, num_layers: int) -> FloatArray:
    decodes = column("num_decode", log.num_decode) > 0
    return np.where(decodes, float(num_layers), column("num_prefill_layers", log.num_prefill_layers))


def _only_decode(log: IterationLog) -> BoolArray:
    decodes = column("num_decode", log.num_decode) > 0
    return np.asarray(decodes & (column("num_prefill_tokens", log.num_prefill_tokens) == 0))


def _check_shape(num_layers: int, num_experts: float) -> None:
    if num_layers < 1 or num_experts < 2:
        raise ConfigError(f"{num_layers} layers of {num_experts} experts; want at least 1 layer and 2 experts")
