"""What is said of cases whose engine has no buckets: those of the plan are nominal, and LENS's error is a figure.

Worked example: two prediction cases on vLLM for a CPU, held to errors of 2 % and 4 %: "vLLM on cpu:0 has no buckets:
latency is continuous; LENS's error here is 3.00% (mean of 2 cases in nominal buckets; no stair found)".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Protocol, TypeVar

from pytest_npubench.engines import title_of
from pytest_npubench.suites.buckets.kinds.mean_error import MeanErrorDetail
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail
from pytest_npubench.suites.buckets.kinds.steps import StepsDetail
from pytest_npubench.suites.buckets.profile_detail import ProfileDetail
from pytest_npubench.suites.buckets.report.prediction import Predictions, judged
from pytest_npubench.verdict.case_record import CaseRecord, Cases


class _Continuous(Protocol):
    @property
    def continuous(self) -> bool: ...


DetailT = TypeVar("DetailT", bound=_Continuous)
Device = tuple[str, str]
"""The engine's title, and the device."""


def continuous_lines(cases: Cases) -> list[str]:
    """Each device with cases of such an engine has one line."""
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
    """The steps that were seen and that nobody declared; empty where there are no such cases."""
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
