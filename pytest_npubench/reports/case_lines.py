"""The cases of a run as flat lines, one for each metric of each case, and as CSV (RFC 4180) and JSON of these lines, in
the units of the journal: seconds, bytes, fractions. OpenMetrics are made of them too."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_npubench.plain_text import plain
from pytest_npubench.reports.run_rows import judged_metric, run_rows
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.work import work_text


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLine:
    """A metric of a case in its own unit. `ratio` is measured / accepted, a difference where gate is "difference";
    low and high are its 95 % interval. `decided` tells the metric that the case's verdict is about; the metric's own
    verdict is empty where it was compared with nothing. `work` says what the case did."""

    case: str
    name: str
    device: str
    campaign: str
    verdict: str
    reason: str
    metric: str
    unit: str
    value: float | None
    better: str
    gate: str
    decided: bool
    metric_verdict: str
    ratio: float | None
    low: float | None
    high: float | None
    work: str


def case_lines(records: Sequence[Mapping[str, Any]]) -> Iterator[CaseLine]:
    """One line a metric, by case in the order of the table; a case without a metric has one line."""
    for row in run_rows(Cases.read(records)):
        record, said = row.record, row.record.judgement
        decided = judged_metric(said)
        for metric in said.metrics or (None,):
            verdict = None if metric is None else metric.verdict
            low, high = (None, None) if verdict is None or verdict.interval is None else verdict.interval
            yield CaseLine(
                case=record.key,
                name=row.name,
                device=record.device,
                campaign=record.campaign or "",
                verdict=record.outcome,
                reason=said.verdict.reason,
                metric="" if metric is None else metric.name,
                unit="" if metric is None else metric.unit,
                value=None if metric is None else metric.value,
                better="" if metric is None else metric.better,
                gate="" if metric is None else metric.gate,
                decided=metric is not None and metric is decided,
                metric_verdict="" if verdict is None else verdict.kind.value,
                ratio=None if verdict is None else verdict.ratio,
                low=low,
                high=high,
                work=work_text(said.work),
            )


def case_csv(records: Sequence[Mapping[str, Any]]) -> str:
    """A header, then the lines; a case without any metric has one line. A field that is not known is empty. Text is one
    plain line, and with an apostrophe in front where a spreadsheet would take it for a formula."""
    header = tuple(CaseLine.__dataclass_fields__)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for line in case_lines(records):
        writer.writerow(_cell(getattr(line, name)) for name in header)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    return f"'{plain(value)}" if value.lstrip().startswith(("=", "+", "-", "@")) else plain(value)


def case_json(records: Sequence[Mapping[str, Any]]) -> str:
    """A list of objects, one a metric."""
    return json.dumps([asdict(line) for line in case_lines(records)], indent=1) + "\n"
