"""What a bucket campaign shows: its section of a report, and its lines at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Protocol, TypeVar

from pytest_npubench.engines import title_of
from pytest_npubench.reports import definitions
from pytest_npubench.reports.build import of_kind
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Chart, Parts, Rounds
from pytest_npubench.suites.buckets import SUITE
from pytest_npubench.suites.buckets.kinds.band_coverage import CoverageDetail
from pytest_npubench.suites.buckets.kinds.mean_error import MeanErrorDetail
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.points import seconds_in
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.prediction import (
    Predictions,
    coverage_lines,
    error_lines,
    judged,
    mean_error_lines,
    padding_lines,
    prediction_charts,
    rival_lines,
    rival_title,
)
from pytest_npubench.suites.buckets.report.profile import (
    bucket_charts,
    cost_lines,
    host_lines,
)
from pytest_npubench.suites.buckets.report.steps import steps_chart
from pytest_npubench.verdict.case_record import CaseRecord, Cases

NOTES = {
    "answers": definitions.ANSWERS,
    "fusion": (
        "A matrix product, the operator after it, and both compiled together. Hidden: the product's and the operator's "
        "seconds less those of both together, over the operator's. On the NPUs of LENS, Fig. 3, the operator after a "
        "product is nearly hidden; on its GPUs its latency is only partly reduced, by the memory access that is saved "
        "(Fig. 4)."
    ),
    "prediction": (
        "Prefill padding fraction: the share of prefilled positions that are padding, (bucket - true length) / bucket "
        "over many requests of the workload. Decode padding fraction: the share of attended KV positions that are "
        "padding, over the decode steps of the same requests, each alone. Dropped: requests that no bucket holds, "
        "drawn and left out."
    ),
    "profile": (
        "Cost is what the LENS profile took: binaries compiled, points measured (two a bucket), and samples of the "
        "point that has most. Energy is from the two points of each bucket, as its times are (Eq. 14 and 15): of the "
        "device by its own counter, with what it takes while it waits; a host's counter is the whole machine's. Price "
        "is that of a million tokens, by the price of a chip's hour in the hardware file, for full buckets on a device "
        "that does nothing else: the least that tokens cost. Binding is the larger bound of the roofline, of products "
        "and attention alone; launch: over twice both; power cap: as the device itself told for more than a twentieth "
        "of the rounds' time."
    ),
}
"""By kind, what its figures mean."""
PICTURED = {
    "prediction": ("workload", "predicted_s", "measured_s", "continuous", "predictors"),
    "profile": (
        "bucket",
        "ttft_s",
        "tbt_s",
        "ttft_error_s",
        "tbt_error_s",
        "estimated_ttft_s",
        "estimated_tbt_s",
        "points_s",
        "continuous",
        "measured_s",
    ),
    "steps": ("bucket", "lengths_s", "jumps", "continuous", "measured_s"),
}
"""By kind, the fields that pictures of its own show."""


class _Continuous(Protocol):
    @property
    def continuous(self) -> bool: ...


DetailT = TypeVar("DetailT", bound=_Continuous)


Device = tuple[str, str]


"""The engine's title, and the device."""


def parts(cases: Cases, rounds: Rounds) -> Parts:
    detail_charts, detail_tables = detail_parts(cases, pictured=PICTURED, notes={**NOTES, **SUITE.notes()})
    charts = [
        *of_kind("profile", bucket_charts(cases.of("profile", ProfileDetail))),
        *of_kind("steps", [_steps_chart(cases)]),
        drift_chart([{**record, "points": seconds_in(record["points"])} for record in rounds]),
        *of_kind("prediction", prediction_charts(judged(cases.of("prediction", PredictionDetail)))),
        *detail_charts,
    ]
    remarks = [
        *(f"{line}." for line in continuous_lines(cases)),
        *_mean_errors(cases.of("mean_error", MeanErrorDetail)),
        *(f"{line}." for line in coverage_lines(cases.of("band_coverage", CoverageDetail))),
        *(f"{line}." for line in _of_shown_kinds(cases)),
        *(f"{line}." for line in host_lines(cases)),
    ]
    return tuple(chart for chart in charts if chart is not None), tuple(detail_tables), tuple(remarks)


def _steps_chart(cases: Cases) -> Chart | None:
    profile_s = {case.detail.bucket: case.detail.ttft_s for case in cases.of("profile", ProfileDetail)}
    return steps_chart(cases.of("steps", StepsDetail), profile_s)


def lines(cases: Cases) -> list[str]:
    """Errors and costs of LENS and its rivals, engines without buckets, padding waste."""
    predictions = cases.of("prediction", PredictionDetail)
    return [
        *error_lines(judged(predictions)),
        *mean_error_lines(cases.of("mean_error", MeanErrorDetail)),
        *_of_shown_kinds(cases),
        *coverage_lines(cases.of("band_coverage", CoverageDetail)),
        *cost_lines(cases.of("profile", ProfileDetail)),
        *host_lines(cases),
        *rival_lines(predictions),
        *continuous_lines(cases),
        *padding_lines(predictions),
    ]


def _of_shown_kinds(cases: Cases) -> list[str]:
    return [line for kind in SUITE.shown_kinds() for line in kind.lines(cases)]


def _mean_errors(cases: Sequence[CaseRecord[MeanErrorDetail]]) -> list[str]:
    """What the mean_error case of the campaign says."""
    remarks = []
    for detail in (case.detail for case in cases):
        remarks.append(
            f"Mean prediction error {detail.mean:.2%} (signed mean {detail.signed_mean:.2%}, "
            f"median {detail.median:.2%}, p90 {detail.p90:.2%}, max {detail.max:.2%})."
        )
        remarks += [
            f"Mean prediction error of {rival_title(name, rival)}, a rival: {rival.mean:.2%}."
            for name, rival in detail.predictors.items()
            if rival.mean is not None
        ]
    return remarks


def continuous_lines(cases: Cases) -> list[str]:
    """Returns a line for each device whose engine has no buckets: those of the plan are nominal, and LENS's error is a
    figure.

    Worked example: two prediction cases on vLLM for a CPU, held to errors of 2 % and 4 %: "vLLM on cpu:0 has no
    buckets: latency is continuous; LENS's error here is 3.00% (mean of 2 cases in nominal buckets; no stair found)".
    """
    profiles = _by_device(cases.of("profile", ProfileDetail))
    means = _by_device(cases.of("mean_error", MeanErrorDetail))
    predictions = _by_device(cases.of("prediction", PredictionDetail))
    steps = _by_device(cases.of("steps", StepsDetail))
    return [
        f"{' on '.join(device)} has no buckets: latency is continuous; "
        f"{_error(predictions.get(device, []), _steps(steps.get(device, [])))}"
        for device in dict.fromkeys([*profiles, *means, *predictions, *steps])
    ]


def _by_device(cases: Iterable[CaseRecord[DetailT]]) -> dict[Device, list[CaseRecord[DetailT]]]:
    by_device: dict[Device, list[CaseRecord[DetailT]]] = {}
    for case in cases:
        if case.detail.continuous:
            ran = title_of(case.judgement.engine or "the engine"), case.device or "this device"
            by_device.setdefault(ran, []).append(case)
    return by_device


def _steps(cases: Sequence[CaseRecord[StepsDetail]]) -> str:
    """Returns the steps that were seen and that nobody declared; empty where there are no such cases."""
    unclear = sum(bool(case.detail.inconclusive) for case in cases)
    lengths = sorted({length for case in cases for length in case.detail.extra})
    stairs = f"stairs found behind {', '.join(map(str, lengths))}" if lengths else "no stair found"
    doubt = f", {unclear} of {len(cases)} boundaries unclear" if unclear else ""
    return f"{stairs}{doubt}" if cases else ""


def _error(predictions: Predictions, steps: str) -> str:
    errors = [abs(item.gated_error) for item in judged(predictions)]
    if not errors:
        return f"LENS was not judged here ({steps})" if steps else "LENS was not judged here"
    cases = f"mean of {len(errors)} case{'s' if len(errors) > 1 else ''} in nominal buckets"
    return f"LENS's error here is {fmean(errors):.2%} ({cases}{f'; {steps}' if steps else ''})"
