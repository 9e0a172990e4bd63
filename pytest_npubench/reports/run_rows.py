"""The rows of a run: one a case, with the figure that its verdict is about, and why, said once for many cases.

The figure is that of the metric that decided: where a case was compared, the one whose change the verdict has; else the
error that it was held to; else the time that was measured. `predicted_s` and `off` stand beside a measured time alone,
and `off` is computed from the two, so that no row contradicts itself.

Worked example: 424.1 ms predicted and 425.5 ms measured are off by 424.1 / 425.5 - 1 = -0.33 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_npubench.core.short_id import short_ids
from pytest_npubench.reports import number_text
from pytest_npubench.store.accepted_session import Quantity
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import CaseRecord, Cases
from pytest_npubench.verdict.observations import BETTER_QUARTILE
from pytest_npubench.verdict.result import Judgement, Metric

WITHOUT_BASELINE = frozenset({VerdictKind.NO_BASELINE, VerdictKind.INCOMPARABLE})
NOTHING_TO_SAY = frozenset({VerdictKind.PASSED, VerdictKind.UNCHANGED})
WORST_FIRST = (
    VerdictKind.REGRESSED,
    VerdictKind.FAILED,
    VerdictKind.INVALID,
    VerdictKind.INCONCLUSIVE,
    VerdictKind.UNAVAILABLE,
    VerdictKind.INCOMPARABLE,
    VerdictKind.NO_BASELINE,
    VerdictKind.IMPROVED,
    VerdictKind.UNCHANGED,
    VerdictKind.PASSED,
)
MOST_METRICS = 4
"""That have a row of their own below their case's."""
FIGURE = "a figure, not judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """`figure` names the metric whose `value` in `unit` was judged; None where nothing was measured. `change` is a
    fraction, or a difference of fractions where `is_difference`; `interval` its 95 % interval. `reason` is why, empty
    where the verdict says all; many rows may have the same."""

    name: str
    record: CaseRecord[Any]
    figure: str | None
    unit: str
    value: float | None
    is_fraction: bool
    is_difference: bool
    change: float | None
    interval: tuple[float, float] | None
    measured_s: float | None
    predicted_s: float | None
    reason: str

    @property
    def verdict(self) -> Verdict:
        return self.record.judgement.verdict

    @property
    def kind(self) -> str:
        return f"{self.record.outcome} (resumed)" if self.record.resumed else self.record.outcome

    @property
    def campaign(self) -> str:
        """The campaign that measured it; of a case that is measured by itself its hardware and model."""
        return self.record.campaign or "-".join(filter(None, (self.record.hardware, self.record.model)))

    @property
    def suite_and_device(self) -> tuple[str, str]:
        return self.record.suite, self.record.device

    @property
    def group(self) -> tuple[str, str, str]:
        """Who measured it: suite, device and campaign."""
        return (*self.suite_and_device, self.campaign)

    @property
    def off(self) -> float | None:
        """The prediction against the time beside it, signed."""
        return None if not (self.predicted_s and self.measured_s) else self.predicted_s / self.measured_s - 1

    @property
    def value_text(self) -> str:
        if self.value is None:
            return ""
        return (
            f"{self.value * 100:.2f} %"
            if self.is_fraction
            else number_text.figure(self.value, self.unit, self._time_unit if self.unit == "s" else None)
        )

    @property
    def quartile_text(self) -> str:
        """The value of a time, a rate or a count."""
        return "" if self.is_difference else self.value_text

    @property
    def error_text(self) -> str:
        """The value of a figure that is held against 0."""
        return self.value_text if self.is_difference else ""

    @property
    def change_text(self) -> str:
        return "" if self.change is None else self._signed(self.change)

    @property
    def predicted_text(self) -> str:
        return "" if self.predicted_s is None else number_text.time(self.predicted_s, self._time_unit)

    @property
    def measured_text(self) -> str:
        return "" if self.measured_s is None else number_text.time(self.measured_s, self._time_unit)

    @property
    def _time_unit(self) -> number_text.Scale:
        """Chooses the unit of all times that stand in the row."""
        return number_text.scale("s", self.value if self.unit == "s" else None, self.measured_s, self.predicted_s)

    @property
    def off_text(self) -> str:
        return "" if self.off is None else f"{self.off * 100:+.2f} %"

    @property
    def interval_text(self) -> str:
        return "" if self.interval is None else f"{self._signed(self.interval[0])} to {self._signed(self.interval[1])}"

    def _signed(self, value: float) -> str:
        return f"{value * 100:+.2f} pt" if self.is_difference else number_text.change(value)


def run_rows(cases: Cases) -> list[RunRow]:
    """One row a case, in the order given, those of one suite, campaign and device together."""
    names = short_ids({record.key: "-".join(_axes(record)) for record in cases.records})
    rows = [run_row(record, names[record.key]) for record in cases.records]
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))


def run_row(record: CaseRecord[Any], name: str) -> RunRow:
    return _row(record, name, judged_metric(record.judgement))


def metric_rows(record: CaseRecord[Any]) -> list[RunRow]:
    """The other metrics of a case, each with its own verdict: none where all say what the case says, whose row then
    speaks for them; of more than MOST_METRICS those that are not unchanged come first, and the rest are left out."""
    said = record.judgement
    decided = judged_metric(said)
    judged = [(metric, metric.verdict) for metric in said.metrics if metric.verdict and metric is not decided]
    if all(verdict.kind is said.verdict.kind for _, verdict in judged):
        return []
    if len(judged) > MOST_METRICS:
        judged.sort(key=lambda item: item[1].kind is VerdictKind.UNCHANGED)
    return [_alone(record, metric, verdict) for metric, verdict in judged[:MOST_METRICS]]


def every_metric(record: CaseRecord[Any]) -> list[tuple[Metric, RunRow | None]]:
    """The metrics of a case, each with its row; None where it has no verdict of its own."""
    return [(one, _alone(record, one, one.verdict) if one.verdict else None) for one in record.judgement.metrics]


def worst_first(kind: VerdictKind) -> int:
    """Ranks a kind of verdict among all kinds."""
    return WORST_FIRST.index(kind)


def judged_metric(judgement: Judgement) -> Metric | None:
    """The metric that the verdict is about; None where it is about no metric."""
    verdict, metrics = judgement.verdict, judgement.metrics
    if verdict.ratio is not None:
        return next((metric for metric in metrics if _decided(metric, verdict)), None)
    if judgement.error is not None:
        return next((metric for metric in metrics if metric.gate == "difference"), None)
    if judgement.measured_s is not None:
        measured_s = judgement.measured_s  # a mean of the same numbers may be summed in another order
        return next((metric for metric in metrics if math.isclose(metric.value, measured_s, rel_tol=1e-9)), None)
    return next(iter(metrics), None)


def judged_level(metric: Metric | Quantity) -> float:
    """The quantile of a process's samples that the gate judges: verdict.observations."""
    return BETTER_QUARTILE[metric.better] if metric.gate == "ratio" else 0.5


def judged_at(processes: Sequence[Sequence[float]], level: float) -> float:
    """What is judged of a session, the median of its processes."""
    return statistics.median(quantile(values, level) for values in processes)


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    floor = math.floor(position)
    above = ordered[min(floor + 1, len(ordered) - 1)]
    return ordered[floor] + (above - ordered[floor]) * (position - floor)


def shared_reason(judgement: Judgement) -> str:
    """Why, without what its own limits said where it was compared with nothing; empty where the verdict says all."""
    verdict = judgement.verdict
    if verdict.kind in NOTHING_TO_SAY:
        return ""
    if verdict.kind in WITHOUT_BASELINE:
        verdicts = (metric.verdict for metric in judgement.metrics if metric.verdict is not None)
        return next((one.reason for one in verdicts if one.kind is verdict.kind), verdict.reason)
    return verdict.reason


def _alone(record: CaseRecord[Any], metric: Metric, verdict: Verdict) -> RunRow:
    """A row about one metric as if it were all of its case, without the case's name."""
    said = replace(record.judgement, verdict=verdict, measured_s=None, predicted_s=None, is_disturbed=False)
    return replace(_row(replace(record, judgement=said, resumed=False), "", metric), name="")


def _row(record: CaseRecord[Any], name: str, metric: Metric | None) -> RunRow:
    """The row of a case, whose verdict is about `metric`."""
    said, verdict = record.judgement, record.judgement.verdict
    if metric is None and said.measured_s is not None:
        metric = Metric(name="measured", unit="s", value=said.measured_s)
    is_difference = metric is not None and metric.gate == "difference"
    neutral = 0.0 if is_difference else 1.0
    return RunRow(
        name=name + record.on_device,
        record=record,
        figure=None if metric is None else metric.name,
        unit="" if metric is None else metric.unit,
        value=None if metric is None else _value(metric),
        is_fraction=is_difference and metric is not None and not metric.unit,
        is_difference=is_difference,
        change=None if verdict.ratio is None else verdict.ratio - neutral,
        interval=None if verdict.interval is None else (verdict.interval[0] - neutral, verdict.interval[1] - neutral),
        measured_s=said.measured_s,
        predicted_s=said.predicted_s,
        reason=shared_reason(said),
    )


def _value(metric: Metric) -> float:
    """Of times and rates the better quartile, which the gate judges; of a difference what was compared, if it was."""
    compared = metric.verdict is not None and metric.verdict.ratio is not None
    is_judged = bool(metric.processes) and all(metric.processes) and (metric.gate == "ratio" or compared)
    return judged_at(metric.processes, judged_level(metric)) if is_judged else metric.value


def _decided(metric: Metric, verdict: Verdict) -> bool:
    metric_verdict = metric.verdict
    return metric_verdict is not None and (metric_verdict.kind, metric_verdict.ratio, metric_verdict.interval) == (
        verdict.kind,
        verdict.ratio,
        verdict.interval,
    )


def _axes(record: CaseRecord[Any]) -> Sequence[str]:
    return [f"{name}{value}" if isinstance(value, int) else str(value) for name, value in record.axes.items()]
