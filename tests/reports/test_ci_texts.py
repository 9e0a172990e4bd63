"""What CI systems read: OpenMetrics, annotations of GitHub Actions."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.reports.case_lines import case_csv
from pytest_npubench.reports.ci_texts import MOST, openmetrics, workflow_commands
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement

from .test_run_rows import record_of, timed

SAMPLE = re.compile(r'(npubench_\w+)\{((?:\w+="(?:[^"\\\n]|\\[\\"n])*",?)+)\} (\S+)')
LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\[\\"n])*)"')


def labels_of(text: str) -> dict[str, str]:
    unescaped = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
    return {name: re.sub(r"\\.", lambda found: unescaped[found[0]], value) for name, value in LABEL.findall(text)}


def test_openmetrics_has_values_changes_and_verdicts() -> None:
    records = [
        record_of("s/k/a", timed(VerdictKind.REGRESSED, 0.25, ratio=1.5)),
        record_of("s/k/b", Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason="gone"))),
    ]
    *lines, last = openmetrics(records).splitlines()
    assert last == "# EOF"
    assert 'npubench_metric{case="s/k/a",device="cpu:0",metric="ttft_s",unit="s"} 0.25' in lines
    assert 'npubench_change{case="s/k/a",device="cpu:0",metric="ttft_s",unit="s"} 1.5' in lines
    assert [line for line in lines if line.startswith("npubench_verdict")] == [
        'npubench_verdict{case="s/k/a",device="cpu:0",verdict="regressed"} 1.0',
        'npubench_verdict{case="s/k/b",device="cpu:0",verdict="invalid"} 1.0',
    ]


@given(st.text(min_size=1, max_size=20))
def test_any_name_is_one_sample_and_reads_back(name: str) -> None:
    lines = openmetrics([record_of(f"s/k/{name}", timed(VerdictKind.PASSED))]).split("\n")
    samples = [line for line in lines if line and not line.startswith("# ")]
    assert len(samples) == 3
    for line in samples:
        found = SAMPLE.fullmatch(line)
        assert found is not None, line
        assert labels_of(found[2])["case"] == f"s/k/{name}"
    assert len(set(samples)) == len(samples)


@pytest.mark.parametrize(
    ("reason", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1 %", "'-1 %"),
        ("@SUM(1)", "'@SUM(1)"),
        ("\t=1", r"'\t=1"),
        (" \r\n=1", r"' \r\n=1"),
        ('a\nb, "c"', r'a\nb, "c"'),
        ("5 % slower", "5 % slower"),
    ],
)
def test_no_cell_is_a_formula_or_more_than_a_line(reason: str, cell: str) -> None:
    text = case_csv([record_of("s/k/a", timed(VerdictKind.REGRESSED, -0.5, reason=reason))])
    assert text.count("\n") == 3
    for row in csv.DictReader(io.StringIO(text)):
        assert row["reason"] == cell
        assert float(row["value"]) < 0


def test_failing_cases_are_annotated_worst_first_and_disturbed_ones_warned_of() -> None:
    disturbed = Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason="others: 81 %"), is_disturbed=True)
    records = [
        record_of("s/k/fine", timed(VerdictKind.UNCHANGED)),
        record_of("s/k/noisy", disturbed, node="suites/a,b.py::test_x[noisy]"),
        record_of(
            "s/k/slow", timed(VerdictKind.REGRESSED, reason="5 % worse\nthan"), node="suites/test_a.py::test_x[slow]"
        ),
    ]
    assert workflow_commands(records) == [
        r"::error file=suites/test_a.py,title=npubench k/slow::regressed: 5 %25 worse\nthan",
        "::warning file=suites/a%2Cb.py,title=npubench k/noisy::disturbed: others: 81 %25",
    ]
    many = [record_of(f"s/k/{index}", timed(VerdictKind.FAILED)) for index in range(30)]
    assert len(workflow_commands(many)) == MOST
