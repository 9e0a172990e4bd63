"""What a CI system reads of a run: failing cases as annotations of GitHub Actions, commands on stdout that GitHub shows
beside the code; metrics as an OpenMetrics text file, for node_exporter's textfile collector and the like.

The file has the format of OpenMetrics 1.0 (https://prometheus.io/docs/specs/om/open_metrics_spec/): a family's TYPE
and HELP, its samples, and "# EOF" at the end. Worked example of a line:

    npubench_metric{case="s/k/a",device="cpu:0",metric="ttft_s",unit="s"} 0.25
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pytest_npubench.plain_text import plain, workflow_command
from pytest_npubench.reports.case_lines import CaseLine, case_lines
from pytest_npubench.reports.run_rows import run_rows, worst_first
from pytest_npubench.verdict.case_record import Cases

FAMILIES = (
    ("npubench_metric", "The value of a metric of a case, in the metric's unit."),
    ("npubench_change", "Measured by accepted; measured minus accepted where a metric is compared by differences."),
    ("npubench_verdict", "1 with the verdict of a case as a label."),
)
MOST = 10  # GitHub shows no more errors of a step


def workflow_commands(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """One command for each failing case, worst first; a disturbed one is a warning."""
    nodes = {record["case"]: str(record.get("node") or "") for record in records}
    rows = [row for row in run_rows(Cases.read(records)) if row.verdict.failing]
    rows.sort(key=lambda row: worst_first(row.verdict.kind))
    lines = []
    for row in rows[:MOST]:
        level = "warning" if row.record.judgement.is_disturbed else "error"
        file = nodes[row.record.key].partition("::")[0]
        text = plain(f"{row.record.outcome}: {row.verdict.reason}")
        lines.append(workflow_command(level, text, file=plain(file), title=plain(f"npubench {row.name}")))
    return lines


def openmetrics(records: Sequence[Mapping[str, Any]]) -> str:
    """The whole file."""
    lines = list(case_lines(records))
    parts = []
    for name, about in FAMILIES:
        parts += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
        parts += dict.fromkeys(f"{name}{labels} {value!r}" for labels, value in _samples(name, lines))
    return "\n".join([*parts, "# EOF", ""])


def _samples(name: str, lines: Sequence[CaseLine]) -> Iterator[tuple[str, float]]:
    for line in lines:
        of_metric = {"metric": line.metric, "unit": line.unit}
        if name == "npubench_verdict":
            yield _labels(line, {"verdict": line.verdict}), 1.0
        elif name == "npubench_metric" and line.value is not None:
            yield _labels(line, of_metric), float(line.value)
        elif name == "npubench_change" and line.ratio is not None:
            yield _labels(line, of_metric), float(line.ratio)


def _labels(line: CaseLine, further: Mapping[str, str]) -> str:
    labels = {"case": line.case, "device": line.device, **further}
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items() if text) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
