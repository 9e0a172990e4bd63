"""Answers of a model in a comparison: a family of their own, across stacks, before every time of their campaign."""

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import numpy as np
import pytest

from pytest_npubench.campaign.answer_judgement import AnswersDetail
from pytest_npubench.comparison.observation import Observation, accepted_history, judge_observations
from pytest_npubench.comparison.paired_sides import compare_pairs
from pytest_npubench.comparison.side_sources import load_side
from pytest_npubench.comparison.upgrade import compare_sides
from pytest_npubench.core.case import campaign_of
from pytest_npubench.errors import JournalError
from pytest_npubench.plugin.regression import MeasuredCase, Regression
from pytest_npubench.reports.comparison import render_comparison
from pytest_npubench.store.baseline_merge import merge
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult
from pytest_npubench.store.history import history_series, upload_journal
from pytest_npubench.store.history.trend import series_of
from pytest_npubench.store.journal_reader import read_journal
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement, Metric

from .made_nights import metric, stack, write_session

ANSWERS = "buckets/answers/h200-tiny-b4"
PROFILE = "buckets/profile/h200-tiny-b4-bucket32"
ELSEWHERE = "buckets/profile/h200-small-b4-bucket32"
OLD, NEW = stack().key(), stack("580.12").key()
VECTOR = tuple(float((7 * number) % 16) for number in range(48))
OTHER = (*VECTOR[:-1], VECTOR[-1] + 1.0)
LIMIT = 1.6e-5


def day(number):
    return (datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=number)).isoformat()


def vector(samples, name="answer_change"):
    return MetricResult(name=name, unit="", better="lower", gate="answers", margin=LIMIT, processes=(tuple(samples),))


def times(value, unit="s", **about):
    return MetricResult(name="tbt_s", unit=unit, processes=((value,) * 5,), **({"better": "lower"} | about))


def accept(directory, number, *metrics, case=ANSWERS, key=OLD, **about):
    result = CaseResult(hardware="h200", case=case, digest="d1", metrics=metrics, **about)
    Baselines(directory=directory, files=()).accept([result], session=f"s{number}", key=key, accepted_at=day(number))


def observed(samples, **changes):
    about = {"case": ANSWERS, "metric": "answer_change", "unit": "", "gate": "answers", "margin": LIMIT}
    return Observation(**({"digest": "d1", "better": "lower", "processes": (tuple(samples),)} | about | changes))


def judged(directory, observation, key=OLD):
    history = accepted_history(Baselines.load(directory, missing_ok=True), observation, key)
    findings = judge_observations([observation], {observation.key: history})
    assert (findings.suspects, findings.suites) == ((), {})
    return findings.verdicts[observation.key]


@pytest.mark.parametrize(
    ("key", "campaign"),
    [
        (PROFILE, "buckets/h200-tiny-b4"),
        (ANSWERS, "buckets/h200-tiny-b4"),
        ("scheduling/policy/cpu-small-moe-b16-azure-b2", "scheduling/cpu-small-moe-b16"),
        ("own/callable/test_a.py::test_a", "own/callable/test_a.py::test_a"),
    ],
)
def test_cases_of_one_model_are_a_campaign(key, campaign):
    assert campaign_of(key) == campaign


def test_answers_are_held_against_the_newest_session_alone(tmp_path):
    for number, samples in enumerate((OTHER, OTHER, VECTOR)):
        accept(tmp_path, number, vector(samples))
    assert judged(tmp_path, observed(VECTOR)).kind is VerdictKind.UNCHANGED
    found = judged(tmp_path, observed(OTHER))
    assert (found.kind, found.ratio) == (VerdictKind.REGRESSED, None)


def test_another_stack_s_answers_stand_in_where_this_one_has_none(tmp_path):
    accept(tmp_path, 0, vector(VECTOR))
    found = judged(tmp_path, observed(OTHER), NEW)
    assert found.kind is VerdictKind.REGRESSED
    assert found.reason.endswith("accepted under another stack: driver 570.86 -> 580.12")
    assert judged(tmp_path, observed(VECTOR), NEW).kind is VerdictKind.UNCHANGED
    accept(tmp_path, 1, vector(OTHER), key=NEW)
    assert judged(tmp_path, observed(OTHER), NEW).kind is VerdictKind.UNCHANGED


def test_baselines_of_before_have_no_answers(tmp_path):
    accept(tmp_path, 0, times(1.0), case=PROFILE)
    found = judged(tmp_path, observed(VECTOR))
    assert found.kind is VerdictKind.NO_BASELINE
    assert found.reason == "answers were never accepted: recorded at the next acceptance"


def test_the_file_keeps_the_newest_vector_whole_and_no_other(tmp_path):
    exact = MetricResult(name="inconsistent_pairs", unit="", better="lower", gate="identical", processes=((0.0,),))
    for number in range(4):
        accept(tmp_path, number, vector([value + number for value in VECTOR]), exact, work={"tokens": float(number)})
    (file,) = Baselines.load(tmp_path).files
    sessions = file.cases[ANSWERS].sessions
    assert [tuple(session.metrics) for session in sessions] == [
        *[("inconsistent_pairs",)] * 3,
        ("answer_change", "inconsistent_pairs"),
    ]
    assert sessions[-1].metrics["answer_change"].processes == (tuple(value + 3 for value in VECTOR),)
    assert [session.work for session in sessions] == [{}, {}, {}, {"tokens": 3.0}]
    path = tmp_path / file.relative_path
    before = path.read_bytes()
    accept(tmp_path, 1, vector([value + 1 for value in VECTOR]), exact)  # accepted before, its vector is gone
    assert path.read_bytes() == before


def test_a_session_of_nothing_but_answers_goes_when_the_next_comes(tmp_path):
    for number in range(3):
        accept(tmp_path, number, vector(VECTOR))
    (file,) = Baselines.load(tmp_path).files
    assert [session.session for session in file.cases[ANSWERS].sessions] == ["s2"]


def test_two_folders_that_hold_one_session_with_and_without_its_vector_are_merged(tmp_path):
    exact = MetricResult(name="inconsistent_pairs", unit="", better="lower", gate="identical", processes=((0.0,),))
    one, other = tmp_path / "one", tmp_path / "other"
    for number in range(3):
        accept(one, number, vector([value + number for value in VECTOR]), exact)
    accept(other, 0, vector(VECTOR), exact)
    merge(other, one)
    (file,) = Baselines.load(other).files
    assert ["answer_change" in session.metrics for session in file.cases[ANSWERS].sessions] == [False, False, True]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"unit": "ms"}, "unit s -> ms"),
        ({"better": "higher"}, "better lower -> higher"),
        ({"gate": "difference"}, "gate ratio -> difference"),
        ({"unit": "ms", "better": "higher"}, "unit s -> ms, better lower -> higher"),
    ],
)
def test_another_quantity_than_accepted_is_incomparable(tmp_path, now, words):
    """10 ms that are 0.01 s, and 0.01 us that bear the number of 0.01 s: neither is compared."""
    for number in range(4):
        accept(tmp_path, number, times(0.01), case=PROFILE)
    about = {"case": PROFILE, "metric": "tbt_s", "unit": "s", "gate": "ratio", "margin": None}
    found = judged(tmp_path, observed([0.01] * 5, **(about | now)))
    assert found.kind is VerdictKind.INCOMPARABLE
    assert words in found.reason


def measured(case, *metrics, detail=None):
    judgement = Judgement(verdict=Verdict(kind=VerdictKind.PASSED, reason="measured"), metrics=metrics, detail=detail)
    return MeasuredCase(case=case, digest="d1", judgement=judgement)


def a_run(directory, samples, tbt_s, detail=None):
    def again(cases, index):
        assert ANSWERS not in cases, "answers are never measured again"
        return {(case, "tbt_s"): (tbt_s,) * 5 for case in cases}

    run = Regression(baselines=Baselines.load(directory), margin=0.01, across=(), num_again=2)
    cases = [
        measured(
            ANSWERS,
            Metric(name="answer_change", unit="", value=0.0, samples=samples, gate="answers", margin=LIMIT),
            detail=detail,
        ),
        measured(PROFILE, Metric(name="tbt_s", unit="s", value=tbt_s, samples=(tbt_s,) * 5)),
        measured(ELSEWHERE, Metric(name="tbt_s", unit="s", value=tbt_s, samples=(tbt_s,) * 5)),
    ]
    return run.judge(cases, OLD, again).judgements


@pytest.fixture
def nights(tmp_path):
    for number in range(5):
        accept(tmp_path, number, vector(VECTOR))
        for case in (PROFILE, ELSEWHERE):
            accept(tmp_path, number, times(0.01 * (1 + number / 1e4)), case=case)
    return tmp_path


@pytest.mark.parametrize(
    ("tbt_s", "kind", "words"),
    [
        (0.005, VerdictKind.IMPROVED, "faster, but other answers: "),
        (0.02, VerdictKind.REGRESSED, "slower, and other answers: "),
        (0.010002, VerdictKind.UNCHANGED, "other answers: "),
    ],
)
def test_other_answers_stand_before_every_time_of_their_campaign(nights, tbt_s, kind, words):
    found = a_run(nights, OTHER, tbt_s)
    answers = found[ANSWERS]
    assert answers.verdict.kind is VerdictKind.REGRESSED
    said = r"answer_change: answers changed: 0\.0\d+ \(limit 1\.6e-05\), beyond it at 1 of 3 positions"
    assert re.fullmatch(said, answers.verdict.reason)
    assert answers.metrics[0].value == pytest.approx(0.03, rel=0.2)
    assert answers.metrics[0].again == ()
    assert found[PROFILE].verdict.kind is kind
    assert found[PROFILE].metrics[0].verdict.reason.startswith(words)
    assert "other answers" not in found[ELSEWHERE].metrics[0].verdict.reason


@pytest.mark.parametrize(
    ("lengths", "middles", "where"),
    [
        ((120,), (), "at all prompts, from step 2; prefill agrees"),
        ((5, 120, 248), (), "only prompts of 248 tokens; steps agree"),
        ((120,), (40, 80), "at all prompts, only steps inside of them: at 80"),
    ],
)
def test_a_run_says_at_which_prompts_and_steps_answers_are_other_ones(nights, lengths, middles, where):
    detail = AnswersDetail(dtype="fp32", lengths=lengths, limit=LIMIT, middles=middles)
    reason = a_run(nights, OTHER, 0.01, detail)[ANSWERS].verdict.reason
    assert reason.endswith(f"beyond it at 1 of 3 positions: {where}")


def test_the_same_answers_are_no_matter_of_times(nights):
    found = a_run(nights, VECTOR, 0.005)
    assert found[ANSWERS].verdict.kind is VerdictKind.UNCHANGED
    assert found[ANSWERS].verdict.reason == (
        "measured; answer_change: answers unchanged: 0 of 1.6e-05 allowed (rounding)"
    )
    assert "answers" not in found[PROFILE].verdict.reason


# -- what a case did


def test_what_a_case_did_otherwise_is_told_beside_its_verdict(tmp_path):
    for number in range(4):
        accept(tmp_path, number, times(0.01 * (1 + number / 1e4)), case=PROFILE, work={"decode steps": 33.0})
    run = Regression(baselines=Baselines.load(tmp_path), margin=0.01, across=(), num_again=0)

    def reason(work, tbt_s):
        metric = Metric(name="tbt_s", unit="s", value=tbt_s, samples=(tbt_s,) * 5)
        judgement = replace(measured(PROFILE, metric).judgement, work=work)
        case = MeasuredCase(case=PROFILE, digest="d1", judgement=judgement)
        return run.judge([case], OLD, lambda cases, index: {}).judgements[PROFILE].verdict.reason

    assert reason({"decode steps": 17.0}, 0.005).endswith("; decode steps: 17 where 33 were accepted")
    assert "accepted" not in reason({"decode steps": 33.0}, 0.005).rpartition("sessions")[2]
    assert "where" not in reason({}, 0.005)


# -- compare and ab


def a_side(root, name, vectors, factor=1.0, fingerprint=None, **changes):
    """A journal of nights: a model's answers, its times and those of another model."""
    rng = np.random.default_rng(3)
    path = root / name
    for samples in vectors:
        answers = {"answer_change": metric(samples, unit="", value=0.0, gate="answers", margin=LIMIT)}
        tbt_s = {
            case: {"tbt_s": metric(0.01 * factor * np.exp(rng.normal(0, 0.002, 5)))} for case in (PROFILE, ELSEWHERE)
        }
        write_session(path, {ANSWERS: answers, **tbt_s}, fingerprint or stack(), **changes)
    return load_side(str(path))


@pytest.mark.parametrize(("factor", "words"), [(0.5, "faster, but other answers"), (2.0, "slower, and other answers")])
def test_compare_says_that_a_model_answers_otherwise_before_its_times(tmp_path, factor, words):
    old = a_side(tmp_path, "a", [VECTOR] * 4)
    found = compare_sides(old, a_side(tmp_path, "b", [VECTOR, VECTOR, OTHER], factor, stack("580.12")))
    (answers,) = found.answers
    assert (answers.kind, answers.before) == (VerdictKind.REGRESSED, None)
    assert answers.after == pytest.approx(0.03, rel=0.2)
    assert {row.definition.case: row.other_answers for row in found.rows} == {PROFILE: words, ELSEWHERE: ""}
    assert found.other_answers == ("buckets/h200-tiny-b4",)
    assert found.exit_status(1.0) == 1
    text = render_comparison(found, width=200, color=False)
    assert f"{words}: {PROFILE} tbt_s" in text
    assert f" {ELSEWHERE} tbt_s" in text
    assert "other answers, so not safe: buckets/h200-tiny-b4" in text
    assert "answer_change: regressed; answers changed: 0.0" in text


@pytest.mark.parametrize(
    ("detail", "where"),
    [({"lengths": [5, 120, 248]}, ": only prompts of 248 tokens; steps agree"), ({"allowed": 0.1}, ""), (None, "")],
)
def test_compare_says_at_which_prompts_answers_are_other_ones(tmp_path, detail, where):
    """By the newer side's record: baselines, and records of before, hold no lengths."""
    for number in range(3):
        accept(tmp_path / "baselines", number, vector(VECTOR))
    side = a_side(tmp_path, "b", [OTHER], digest="d1", detail=detail)
    (row,) = compare_sides(load_side(str(tmp_path / "baselines")), side).answers
    assert row.kind is VerdictKind.REGRESSED
    assert row.verdict.reason.endswith(f"beyond it at 1 of 3 positions{where}")


def test_a_journal_whose_lengths_are_no_numbers_is_refused(tmp_path):
    with pytest.raises(JournalError, match=r"cannot be read: .*lengths"):
        a_side(tmp_path, "a", [VECTOR], detail={"lengths": ["five"]})


def test_compare_of_the_same_answers_is_safe_and_a_metric_alone_does_not_hide_them(tmp_path):
    old = a_side(tmp_path, "a", [VECTOR] * 4)
    same = compare_sides(old, a_side(tmp_path, "b", [VECTOR] * 3), metrics=["tbt_s"])
    assert [row.kind for row in same.answers] == [VerdictKind.UNCHANGED]
    assert (same.other_answers, same.exit_status(0.5)) == ((), 0)
    other = compare_sides(old, a_side(tmp_path, "c", [OTHER] * 3), metrics=["tbt_s"])
    assert (other.other_answers, other.exit_status(0.5)) == (("buckets/h200-tiny-b4",), 1)


def test_ab_holds_the_two_sides_answers_against_each_other(tmp_path):
    pairs = [
        (a_side(tmp_path, f"a{number}", [OTHER]), a_side(tmp_path, f"b{number}", [samples]))
        for number, samples in enumerate((OTHER, OTHER, VECTOR))
    ]
    assert compare_pairs(pairs[:2] * 2, labels=("A", "B")).other_answers == ()
    assert compare_pairs(pairs, labels=("A", "B")).other_answers == ("buckets/h200-tiny-b4",)


@pytest.mark.parametrize(
    ("now", "samples", "words"),
    [
        ({"unit": "ms"}, 10.0, "unit s -> ms"),  # the same time
        ({"unit": "us"}, 0.01, "unit s -> us"),  # the same number
        ({"better": "higher"}, 0.01, "better lower -> higher"),
        ({"gate": "exact"}, 0.01, "gate ratio -> exact"),
    ],
)
@pytest.mark.parametrize("source", ["journal", "history"])
def test_two_quantities_are_never_compared(tmp_path, now, samples, words, source):
    def side(name, value, **about):
        for number in range(4):
            night = {PROFILE: {"tbt_s": metric([value * (1 + number / 1e3)] * 3, **({"gate": "ratio"} | about))}}
            write_session(tmp_path / name, night, stack())
        if source == "journal":
            return load_side(str(tmp_path / name))
        upload_journal(f"sqlite:///{tmp_path / name}.db", read_journal(tmp_path / name))
        return load_side(f"history:sqlite:///{tmp_path / name}.db")

    (row,) = compare_sides(side("a", 0.01), side("b", samples, **now)).rows
    assert row.kind is VerdictKind.INCOMPARABLE
    assert words in row.verdict.reason


def test_a_trend_has_a_series_for_each_unit(tmp_path):
    for value, unit in ((0.01, "s"), (10.0, "ms")):
        write_session(tmp_path / "j", {PROFILE: {"tbt_s": metric([value], unit=unit)}}, stack())
    url = f"sqlite:///{tmp_path / 'h.db'}"
    upload_journal(url, read_journal(tmp_path / "j"))
    found = series_of(history_series(url))
    assert {series.unit: [point.median for point in series.points] for series in found} == {"s": [0.01], "ms": [10.0]}


def test_a_history_keeps_no_answers_and_says_so(tmp_path):
    a_side(tmp_path, "a", [VECTOR] * 2)
    url = f"sqlite:///{tmp_path / 'h.db'}"
    upload_journal(url, read_journal(tmp_path / "a"))
    side = load_side(f"history:{url}")
    assert {metric for session in side.sessions for _, metric in session.observations} == {"tbt_s"}
    assert side.notes == ("a history keeps no answers: compare journals, or baselines with a journal, for those",)
    (row, _) = history_series(url, case=ANSWERS)
    assert (row.value, row.median, row.samples) == (0.0, 0.0, ())
