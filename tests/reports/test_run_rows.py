"""The rows of a run: every case has one, its name is its own, and no row contradicts itself, at any width."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import judged_record

from pytest_npubench.core.case import Case
from pytest_npubench.core.short_id import named, short_ids
from pytest_npubench.plugin.regression import overall
from pytest_npubench.reports.case_lines import case_csv, case_json
from pytest_npubench.reports.markdown import escaped, run_markdown
from pytest_npubench.reports.overview import case_rows
from pytest_npubench.reports.run_rows import metric_rows, run_rows
from pytest_npubench.reports.terminal import next_lines, render_run, render_table
from pytest_npubench.suites import shown
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Judgement, Metric

JOURNAL = Path("runs/journal.jsonl")
NO_BASELINE = "0 accepted sessions on this stack; want 3 or more"
FIGURE = r"(-?[\d,.]+(?:e[+-]?\d+)?)"
seconds = st.floats(-9, 3).map(lambda power: 10.0**power)  # as many of each unit
UNIT = r"(s|ms|µs|ns)"
PER_S = {"s": 1.0, "ms": 1e3, "µs": 1e6, "ns": 1e9}


def record_of(case: str, judgement: Judgement, **fields: Any) -> dict[str, Any]:
    """A case record as a journal keeps it, of the case SUITE/KIND/ID."""
    suite, kind, name = case.split("/", 2)
    of = Case(suite=suite, kind=kind, hardware="cpu", family="cpu", model="tiny", batch_size=1)
    record = judged_record(of, judgement, campaign="cpu-tiny-b1")
    return {**record, "case": case, "id": name, "node": name, **fields}


def timed(kind: VerdictKind, value_s: float = 0.5, **verdict: Any) -> Judgement:
    """A case with one time, whose verdict is the metric's own."""
    own = Verdict(kind=kind, reason=verdict.pop("reason", "why"), **verdict)
    metric = Metric(name="ttft_s", unit="s", value=value_s, verdict=own)
    other = Metric(name="tbt_s", unit="s", value=value_s / 7)
    return Judgement(verdict=own, metrics=(other, metric), measured_s=value_s)


def predicted(measured_s: float, predicted_s: float, error: float) -> Judgement:
    """A case that is held to another error than that of its sums, such as the mean over several batches."""
    return Judgement(
        verdict=Verdict(kind=VerdictKind.FAILED, reason="prediction error"),
        metrics=(
            Metric(name="e2e_s", unit="s", value=measured_s),
            Metric(name="prediction_error", unit="", value=error, gate="difference"),
        ),
        measured_s=measured_s,
        predicted_s=predicted_s,
        error=error,
    )


def read_figure(text: str) -> float:
    return float(text.replace(",", ""))


@given(seconds, st.floats(0.2, 5), st.floats(0, 1))
def test_measured_predicted_and_off_agree_and_the_judged_error_has_its_name(
    measured_s: float, ratio: float, error: float
) -> None:
    text = render_table([record_of("s/k/a", predicted(measured_s, measured_s * ratio, error))], width=120, color=False)
    row = text.splitlines()[2]
    found = re.search(rf"prediction_error +{FIGURE} % +{FIGURE} {UNIT} +{FIGURE} {UNIT} +([+-][\d.]+) %", row)
    assert found is not None, row
    judged, measured, foretold, off = (read_figure(found[place]) for place in (1, 2, 4, 6))
    assert found[3] == found[5]  # one unit for what is compared
    for shown_s, value_s in (
        (measured / PER_S[found[3]], measured_s),
        (foretold / PER_S[found[5]], measured_s * ratio),
    ):
        assert shown_s == pytest.approx(value_s, rel=5.1e-4)
    assert judged == pytest.approx(error * 100, abs=0.006)
    shown_digits = 5e-4 + (0.5 / measured if measured >= 1000 else 0) + (0.5 / foretold if foretold >= 1000 else 0)
    assert off / 100 == pytest.approx(foretold / measured - 1, abs=0.0001 + 2.5 * ratio * shown_digits)


@given(seconds, st.floats(0.2, 5))
def test_the_change_is_that_of_the_metric_that_is_shown(value_s: float, ratio: float) -> None:
    (row,) = run_rows(Cases.read([record_of("s/k/a", timed(VerdictKind.REGRESSED, value_s, ratio=ratio))]))
    assert (row.figure, row.value) == ("ttft_s", value_s)
    assert row.change == pytest.approx(ratio - 1)


cases = st.lists(
    st.tuples(
        st.sampled_from(("buckets", "serving")),
        st.sampled_from(("profile", "steps")),
        st.sampled_from(("tiny", "mini-llama", "x" * 60)),
        st.sampled_from(("b1", "b4")),
        st.sampled_from(("bucket16", "bucket128", "div32-u0.7")),
    ).map(lambda parts: (f"{parts[0]}/{parts[1]}/cpu-{parts[2]}-{parts[3]}-{parts[4]}", parts[4])),
    min_size=1,
    max_size=40,
    unique=True,
)


@given(cases)
def test_short_names_are_unique_and_lead_back_to_their_case(found: list[tuple[str, str]]) -> None:
    names = short_ids(dict(found))
    assert len(set(names.values())) == len(found)
    for key, tail in found:
        assert named(names[key], names) == [key]
        assert named(key, names) == [key]
        assert names[key].endswith(tail)


def test_a_short_name_is_no_longer_than_it_must_be() -> None:
    one = {"buckets/profile/cpu-tiny-b1-bucket16": "bucket16", "buckets/mean_error/cpu-tiny-b1": ""}
    assert list(short_ids(one).values()) == ["profile/bucket16", "mean_error"]
    two = {**one, "buckets/profile/cpu-tiny-b4-bucket16": "bucket16"}
    assert short_ids(two)["buckets/profile/cpu-tiny-b4-bucket16"] == "profile/b4-bucket16"
    assert named("profile/bucket16", two) == sorted(key for key in two if "profile" in key)


@given(cases, st.sampled_from([80, 100, 120, 200]), st.data())
def test_counts_in_are_counts_out_and_no_line_is_wider(
    found: list[tuple[str, str]], width: int, data: st.DataObject
) -> None:
    kinds = [data.draw(st.sampled_from(VerdictKind)) for _ in found]
    records = [
        record_of(key, timed(kind, reason=NO_BASELINE if kind is VerdictKind.NO_BASELINE else key))
        for (key, _), kind in zip(found, kinds, strict=True)
    ]
    text = render_run(records, shown, journal=JOURNAL, width=width, color=False)
    table, *_ = text.split("\n\n")
    rows = [line for line in table.splitlines()[1:] if line.startswith(" ")]
    assert len(rows) == len(records)
    assert max(map(len, table.splitlines())) <= width
    counted = dict(re.findall(r"(\d+) ([a-z-]+)", text.splitlines()[-1])[::-1])
    for kind in set(kinds):
        assert sum(line.endswith(f" {kind.value}") for line in rows) == kinds.count(kind)
        assert str(kinds.count(kind)) in {
            number for number, name in re.findall(r"(\d+) ([a-z-]+)", text) if name == kind.value
        }
    assert counted


def test_a_reason_that_many_share_stands_once_with_what_to_type() -> None:
    records = [
        record_of(f"buckets/profile/cpu-tiny-b1-bucket{size}", timed(VerdictKind.NO_BASELINE, reason=NO_BASELINE))
        for size in range(1, 57)
    ]
    text = render_run(records, shown, journal=JOURNAL, width=80, color=False)
    assert text.count(NO_BASELINE) == 1
    assert f"56 cases: no-baseline: {NO_BASELINE}" in text
    assert next_lines(records, JOURNAL, width=120)[2].startswith("  npubench baseline accept runs/journal.jsonl ")
    assert next_lines(records, JOURNAL, width=120, done=("accept",)) != next_lines(records, JOURNAL, width=120)
    elsewhere = next_lines(records, JOURNAL, width=120, baselines=Path("my nights"))
    assert elsewhere[2].startswith("  npubench baseline accept runs/journal.jsonl --baselines 'my nights' ")
    deep = Path("a folder/" * 5, "journal.jsonl")
    lines = next_lines(records, deep, width=80, baselines=Path("my nights"))
    commands = "\n".join(lines[1:]).replace("\\\n", "").splitlines()  # what a shell makes of them
    assert shlex.split(commands[1]) == ["npubench", "baseline", "accept", str(deep), "--baselines", "my nights"]
    assert [shlex.split(line)[2] for line in (commands[0], commands[2])] == [str(deep)] * 2
    assert max(map(len, lines)) <= 80


def test_quiet_and_verbose() -> None:
    records = [record_of("buckets/profile/cpu-tiny-b1-bucket16", timed(VerdictKind.INVALID, reason="too hot"))]
    quiet, usual, verbose = (
        render_run(records, shown, journal=JOURNAL, width=80, color=False, verbosity=level) for level in (-1, 0, 1)
    )
    assert quiet == "verdicts: 1 invalid\n"
    assert "buckets/profile/cpu-tiny-b1-bucket16" not in usual
    assert "tbt_s" not in usual
    assert all(text in verbose for text in ("buckets/profile/cpu-tiny-b1-bucket16", "tbt_s 71.43 ms", "too hot"))


def test_rows_of_the_page_stand_suite_by_suite_behind_failing_ones() -> None:
    passed, new, failed = VerdictKind.PASSED, VerdictKind.NO_BASELINE, VerdictKind.FAILED
    kinds = {"a/k/0": passed, "b/k/1": new, "a/k/2": new, "b/k/3": failed, "b/k/4": passed}
    records = [record_of(case, timed(kind)) for case, kind in kinds.items()]
    rows = case_rows(Cases.read(records), defaultdict(str))
    assert [row.id for row in rows] == ["b/k/3", "a/k/2", "a/k/0", "b/k/1", "b/k/4"]


def test_a_case_in_full_shows_the_figure_of_its_row() -> None:
    """The better quartile of the samples, before anything is compared too; a median stands nowhere unnamed."""
    new = Verdict(kind=VerdictKind.NO_BASELINE, reason=NO_BASELINE)
    metric = Metric(name="call_s", unit="s", value=3.0, samples=(1.0, 2.0, 3.0, 4.0, 5.0), verdict=new)
    said = Judgement(verdict=new, metrics=(metric,), measured_s=3.0)
    full = render_run([record_of("s/k/a", said)], shown, journal=JOURNAL, width=100, color=False, verbosity=1)
    assert "call_s 2 s (no-baseline)" in full
    assert "3 s" not in full


def test_csv_and_json_have_a_line_a_metric_in_the_journals_units() -> None:
    reason = 'a, "b"\nc'
    records = [
        record_of("s/k/a", timed(VerdictKind.REGRESSED, 0.25, ratio=1.5, interval=(1.25, 1.75), reason=reason)),
        record_of("s/k/b", Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason="gone"))),
    ]
    lines = list(csv.DictReader(io.StringIO(case_csv(records))))
    assert [(line["case"], line["metric"], line["decided"]) for line in lines] == [
        ("s/k/a", "tbt_s", "False"),
        ("s/k/a", "ttft_s", "True"),
        ("s/k/b", "", "False"),
    ]
    assert (lines[1]["value"], lines[1]["ratio"], lines[1]["low"], lines[1]["high"]) == ("0.25", "1.5", "1.25", "1.75")
    assert lines[1]["reason"] == 'a, "b"\\nc'  # one plain line
    plain = [
        {name: str(value).replace("\n", "\\n") if value is not None else "" for name, value in one.items()}
        for one in json.loads(case_json(records))
    ]
    assert plain == lines


def test_markdown_shows_what_needs_a_person_first_and_obeys_no_name() -> None:
    records = [
        record_of("s/k/fine", timed(VerdictKind.UNCHANGED, ratio=1.0)),
        record_of("s/k/a|<b>`_x_", timed(VerdictKind.REGRESSED, ratio=1.5, interval=(1.25, 1.75), reason="<script>")),
    ]
    text = run_markdown(records, shown, journal=JOURNAL)
    assert text.startswith("## npubench: 1 regressed, 1 unchanged\n")
    before, after = text.split("<details>")
    assert "| +50.00 % | +25.00 % to +75.00 % | regressed |" in before
    assert "unchanged |" in after
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)  # code stands as it is
    assert "<b>" not in re.sub(r"\\.", "", text)
    assert "<script>" not in re.sub(r"\\.", "", text)
    assert escaped("a|b") == r"a\|b"


@pytest.mark.parametrize("width", [80, 120])
def test_a_run_of_sixty_cases_leaves_room_on_a_screen_of_a_hundred_lines(width: int) -> None:
    """Eight campaigns, twelve failing cases with reasons of their own, and the same for all others."""
    records = []
    for index in range(60):
        fails = index % 5 == 0
        reason = f"mean prediction error {index}.25 % > 5.00 % (95 % interval ±13.9%, repeat error 5.9%)"
        kind = VerdictKind.FAILED if fails else VerdictKind.NO_BASELINE
        judgement = timed(kind, reason=reason if fails else NO_BASELINE)
        case = f"buckets/profile/cpu-tiny-b{index % 8}-bucket{index}"
        records.append(record_of(case, judgement, campaign=f"cpu-tiny-b{index % 8}"))
    text = render_run(records, shown, journal=JOURNAL, width=width, color=False)
    assert len(text.splitlines()) <= 85
    assert "8 more: npubench show runs/journal.jsonl -v" in text


def test_a_row_shows_what_is_judged_whether_or_not_it_was_compared() -> None:
    """Of each process the better quartile, and the median of the processes."""
    own = Verdict(kind=VerdictKind.REGRESSED, reason="slower", ratio=1.5)
    none = Verdict(kind=VerdictKind.NO_BASELINE, reason=NO_BASELINE)
    samples, again = (1.0, 2.0, 3.0, 4.0, 5.0), ((11.0, 12.0, 13.0, 14.0, 15.0), (6.0, 7.0, 8.0, 9.0, 10.0))
    metric = Metric(name="call_s", unit="s", value=3.0, samples=samples, again=again, verdict=own)
    compared, alone = (
        run_rows(Cases.read([record_of("own/callable/a", Judgement(verdict=one.verdict or none, metrics=(one,)))]))[0]
        for one in (metric, Metric(name="call_s", unit="s", value=3.0, samples=samples))
    )
    assert (compared.value, alone.value) == (7.0, 2.0)


def with_verdicts(*found: tuple[str, VerdictKind, float]) -> Judgement:
    """A case with these metrics, whose verdict is what the run made of theirs."""
    metrics = tuple(
        Metric(name=name, unit="s", value=0.5, verdict=Verdict(kind=kind, reason=f"{name} why", ratio=ratio))
        for name, kind, ratio in found
    )
    judged = Judgement(verdict=Verdict(kind=VerdictKind.PASSED, reason="measured"), metrics=metrics)
    return replace(judged, verdict=overall(judged))


HALVED = (
    ("ttft_s", VerdictKind.UNCHANGED, 1.001),
    ("tbt_s", VerdictKind.IMPROVED, 0.5),
    ("compile_s", VerdictKind.INCONCLUSIVE, 1.52),
)


def test_a_mean_that_was_summed_in_another_order_is_its_metric() -> None:
    new = Verdict(kind=VerdictKind.NO_BASELINE, reason=NO_BASELINE)
    metric = Metric(name="ttft_mean_s", unit="s", value=0.1 + 0.2, samples=(0.1, 0.2, 0.3), verdict=new)
    said = Judgement(verdict=new, metrics=(metric,), measured_s=0.3)
    (row,) = run_rows(Cases.read([record_of("s/k/a", said)]))
    assert (row.figure, row.value_text) == ("ttft_mean_s", "150 ms")


def test_a_compile_time_in_doubt_does_not_hide_what_improved() -> None:
    judged = with_verdicts(*HALVED)
    assert judged.verdict.kind is VerdictKind.IMPROVED
    assert judged.verdict.reason == "measured; tbt_s: tbt_s why; compile_s inconclusive (+52 %)"
    worse = with_verdicts(("ttft_s", VerdictKind.INCONCLUSIVE, 1.02), *HALVED[1:])
    assert worse.verdict.kind is VerdictKind.INCONCLUSIVE
    assert "; tbt_s improved (-50 %); compile_s" not in worse.verdict.reason
    assert worse.verdict.reason == "measured; ttft_s: ttft_s why; tbt_s improved (-50 %)"


def test_a_compile_time_that_regressed_fails_its_case() -> None:
    judged = with_verdicts(*HALVED[:2], ("compile_s", VerdictKind.REGRESSED, 1.52))
    assert judged.verdict.kind is VerdictKind.REGRESSED
    assert judged.verdict.reason == "compile_s: compile_s why; tbt_s improved (-50 %)"


def test_each_metric_has_its_own_verdict_where_they_differ() -> None:
    """In the table, in Markdown, in a case in full and in JSON; a case whose metrics agree has one row."""
    alike = with_verdicts(*((name, VerdictKind.UNCHANGED, 1.0) for name, _, _ in HALVED))
    records = [record_of("s/k/a", with_verdicts(*HALVED)), record_of("s/k/b", alike)]
    table = render_table(records, width=100, color=False).splitlines()
    assert [line.split() for line in table[2:]] == [
        ["k/a", "tbt_s", "500", "ms", "-50.00", "%", "improved"],
        ["ttft_s", "500", "ms", "+0.10", "%", "unchanged"],
        ["compile_s", "500", "ms", "+52.00", "%", "inconclusive"],
        ["k/b", "ttft_s", "500", "ms", "+0.00", "%", "unchanged"],
    ]
    assert escaped("|  | compile_s | 500 ms |  | +52.00 % |  | inconclusive |").replace("\\|", "|") in run_markdown(
        records, shown, journal=JOURNAL
    )
    full = render_run(records[:1], shown, journal=JOURNAL, width=100, color=False, verbosity=1)
    assert "tbt_s 500 ms -50.00 %: improved: tbt_s why" in full
    assert "compile_s 500 ms +52.00 %: inconclusive: compile_s why" in full
    found = [(line["metric"], line["metric_verdict"]) for line in json.loads(case_json(records[:1]))]
    assert found == [(name, kind.value) for name, kind, _ in HALVED]


def test_of_many_metrics_those_that_changed_come_first() -> None:
    many = [(f"m{index}_s", VerdictKind.UNCHANGED, 1.0) for index in range(9)]
    judged = with_verdicts(*many, ("tail_s", VerdictKind.REGRESSED, 2.0), ("mean_s", VerdictKind.IMPROVED, 0.5))
    rows = metric_rows(Cases.read([record_of("s/k/a", judged)]).records[0])
    assert [row.figure for row in rows] == ["mean_s", "m0_s", "m1_s", "m2_s"]
