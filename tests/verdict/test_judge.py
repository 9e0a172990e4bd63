"""judge against closed forms, and what must not matter to it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import VerdictKind, judge, judge_jointly
from pytest_npubench.verdict.observations import Rule

from .made_suite import kinds, slower, suite


def test_the_better_quartile_of_a_process_counts():
    """Half of the samples may be as slow as a neighbour likes: lower quartiles of times, upper ones of rates."""
    nights = ([1.0, 1.0, 1.0, 9.0, 8.0], [1.0, 1.01, 1.0, 7.0, 1.02], [0.99, 0.99, 1.0, 5.0, 6.0])
    times = judge({"a": [[night] for night in nights]}, {"a": [[1.0, 1.0, 30.0, 50.0, 1.01]]})
    assert times["a"].ratio == pytest.approx(1.0, abs=0.01)
    rates = judge(
        {"a": [[[1 / sample for sample in night]] for night in nights]},
        {"a": [[1.0, 1.0, 1 / 30, 1 / 50, 1 / 1.01]]},
        better="higher",
    )
    assert rates["a"].ratio == pytest.approx(1 / times["a"].ratio)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(1e-6, 1e6), st.sampled_from([3, 12]))
def test_the_unit_does_not_matter(seed, factor, num_cases):
    baseline, current = suite(seed, num_cases)
    current["case-1"] = slower(current["case-1"], 0.08)
    one = judge(baseline, current)
    other = judge(
        {case: slower(sessions, factor - 1) for case, sessions in baseline.items()},
        {case: slower(session, factor - 1) for case, session in current.items()},
    )
    assert kinds(one) == kinds(other)
    for case, verdict in one.items():
        assert (verdict.ratio, verdict.mde) == pytest.approx((other[case].ratio, other[case].mde), rel=1e-6)
        assert verdict.interval == pytest.approx(other[case].interval, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.randoms(use_true_random=False))
def test_the_order_of_cases_does_not_matter(seed, random):
    baseline, current = suite(seed)
    current["case-1"] = slower(current["case-1"], 0.08)
    one = judge(baseline, current)
    names = list(current)
    random.shuffle(names)
    other = judge({name: baseline[name] for name in reversed(names)}, {name: current[name] for name in names})
    assert list(other) == names
    assert kinds(one) == kinds(other)
    assert all(one[name].mde == pytest.approx(other[name].mde, rel=1e-6) for name in names)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.floats(-0.1, 0.1))
def test_higher_is_better_mirrors_lower(seed, change):
    """Throughput 1 / t of latency t: with no margin, the same test."""
    baseline, current = suite(seed, case=0.01)
    current["case-1"] = slower(current["case-1"], change)
    rates = {case: [[[1 / t for t in p] for p in s] for s in sessions] for case, sessions in baseline.items()}
    rate = {case: [[1 / t for t in process] for process in session] for case, session in current.items()}
    one, other = judge(baseline, current, margin=0), judge(rates, rate, margin=0, better="higher")
    for case in current:
        failing = {one[case].kind, other[case].kind} & {VerdictKind.REGRESSED, VerdictKind.IMPROVED}
        assert not failing or one[case].kind is other[case].kind
        assert one[case].ratio == pytest.approx(1 / other[case].ratio)
        assert one[case].interval == pytest.approx([1 / end for end in reversed(other[case].interval)])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("num_cases", [4, 40])
def test_a_planted_slow_down_is_found_and_does_not_shift_the_others(seed, num_cases):
    baseline, current = suite(seed, num_cases)
    before = judge(baseline, current)
    current["case-2"] = slower(current["case-2"], 0.10)
    after = judge(baseline, current)
    assert after["case-2"].kind is VerdictKind.REGRESSED
    assert after["case-2"].ratio == pytest.approx(before["case-2"].ratio * 1.10, rel=0.002)
    for case in current.keys() - {"case-2"}:
        assert not after[case].failing
        assert after[case].ratio == pytest.approx(before[case].ratio, rel=0.002)


def test_better_by_ten_percent_is_improved():
    baseline, current = suite(1)
    current["case-3"] = slower(current["case-3"], -0.10)
    assert kinds(judge(baseline, current))["case-3"] == "improved"


@pytest.mark.parametrize("num_sessions", [0, 1, 2])
def test_too_few_sessions_are_no_baseline(num_sessions):
    baseline, current = suite(2, 1, max(num_sessions, 1))
    verdict = judge({"case-0": baseline["case-0"][:num_sessions]}, current)["case-0"]
    assert verdict.kind is VerdictKind.NO_BASELINE
    assert verdict.reason.startswith(f"{num_sessions} accepted session")


def test_three_sessions_are_a_baseline_and_an_unknown_case_is_none():
    baseline, current = suite(3, 2, 3)
    del baseline["case-1"]
    verdicts = judge(baseline, current)
    assert verdicts["case-0"].kind is not VerdictKind.NO_BASELINE
    assert verdicts["case-1"].kind is VerdictKind.NO_BASELINE


@pytest.mark.parametrize("num_cases", [1, 5, 10])
def test_a_baseline_that_never_varied(num_cases):
    names = [f"case-{index}" for index in range(num_cases)]
    baseline = {name: [[[2.0, 2.0]]] * 5 for name in names}
    assert set(kinds(judge(baseline, {name: [[2.0]] for name in names})).values()) == {"unchanged"}
    worse = judge(baseline, {name: [[2.0 if name != "case-0" else 2.2]] for name in names})
    assert worse["case-0"].kind is VerdictKind.REGRESSED
    assert worse["case-0"].ratio == pytest.approx(1.1)
    assert judge(baseline, {"case-0": [[2.01]]})["case-0"].kind is VerdictKind.UNCHANGED


def test_one_case_that_never_varied_among_others():
    baseline, current = suite(4, 10)
    baseline["case-0"], current["case-0"] = [[[1.0]]] * 10, [[1.2]]
    verdicts = judge(baseline, current)
    assert [case for case, verdict in verdicts.items() if verdict.failing] == ["case-0"]


def test_the_difference_scale():
    """Prediction errors of -1, 0, 1 %, tonight 9 %: difference 0.09, s = 0.01."""
    baseline = {"error": [[[-0.01]], [[0.0]], [[0.01]]]}
    verdict = judge_jointly(baseline, {"error": [[0.09]]}, rules=Rule(scale="difference")).verdicts["error"]
    assert verdict.kind is VerdictKind.REGRESSED
    assert verdict.ratio == pytest.approx(0.09)
    assert verdict.interval[0] < 0.09 < verdict.interval[1]


def test_attainment_falls_on_the_difference_scale():
    baseline = {"slo": [[[0.98]], [[0.99]], [[0.985]]]}
    judged = judge_jointly(baseline, {"slo": [[0.80]]}, rules=Rule(scale="difference", better="higher"))
    assert judged.verdicts["slo"].kind is VerdictKind.REGRESSED
    assert judged.verdicts["slo"].ratio == pytest.approx(-0.185)
    assert judged.suspects == ("slo",)


def test_sessions_may_have_names_and_gaps():
    """Cases share a night by its name; a session that one case lacks is no other night."""
    baseline, current = suite(6, 10)
    named = {case: {f"night-{index}": one for index, one in enumerate(all_)} for case, all_ in baseline.items()}
    assert kinds(judge(named, current)) == kinds(judge(baseline, current))
    del named["case-4"]["night-3"], named["case-5"]["night-0"]
    found = judge(named, current)
    assert not any(verdict.failing for verdict in found.values())
    assert "9 accepted sessions" in found["case-4"].reason


@pytest.mark.parametrize(
    ("tonight", "expected"),
    [((0.10, 0.12, 0.11), "regressed"), ((0.02, 0.17, 0.14), "inconclusive")],
    ids=["every process slow alike", "slower the later"],
)
def test_processes_of_a_night_that_disagree_are_no_regression(tonight, expected):
    """Both are 11 % worse in the mean of three processes; a case that works more does so in each of them."""
    baseline, current = suite(20, 6)
    level = float(np.median([np.median(session[0]) for session in baseline["case-0"]]))
    current["case-0"] = [[level * math.exp(shift)] * 20 for shift in tonight]
    found = judge(baseline, current)["case-0"]
    assert found.kind.value == expected
    assert found.ratio == pytest.approx(math.exp(0.11), rel=0.02)


def test_an_error_in_the_statistics_is_inconclusive(monkeypatch):
    def fails(*_):
        raise FloatingPointError("made up")

    monkeypatch.setattr("pytest_npubench.verdict.judging.make_table", fails)
    baseline, current = suite(8, 3)
    current["case-1"] = [[math.nan]]
    judged = judge_jointly(baseline, current, rules=Rule())
    assert kinds(judged.verdicts) == {"case-0": "inconclusive", "case-1": "invalid", "case-2": "inconclusive"}
    assert list(judged.verdicts) == list(current)
    assert judged.verdicts["case-0"].reason == "the statistics failed: made up"
    assert (judged.suspects, judged.suites) == ((), {})


@pytest.mark.parametrize("worse_by", [0.01, 0.2, -0.3])
def test_entries_and_fractions_are_inverse(worse_by):
    """A latency 1 % up, a rate 1 % down, an error 1 point up."""
    lower, higher, points = Rule(), Rule(better="higher"), Rule(scale="difference")
    assert lower.entry(worse_by) == pytest.approx(math.log(1 + worse_by))
    assert higher.entry(worse_by) == pytest.approx(-math.log(1 - worse_by))
    assert points.entry(worse_by) == worse_by
    assert lower.ratio(lower.entry(worse_by)) == pytest.approx(1 + worse_by)
    assert higher.ratio(higher.entry(worse_by)) == pytest.approx(1 - worse_by)
    for rule in (lower, higher, points):
        assert rule.fraction(rule.entry(worse_by)) == pytest.approx(worse_by)


def test_nothing_to_judge():
    assert judge({}, {}) == {}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"margin": -0.1}, "margin is -0.1"),
        ({"margin": math.nan}, "margin is nan"),
        ({"margin": "1%"}, "margin is '1%'"),
        ({"better": "faster"}, "better is 'faster'; want lower or higher"),
    ],
)
def test_a_rule_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        judge({}, {}, **wrong)


@pytest.mark.parametrize("num_pending", range(1, 9))
def test_a_change_is_found_where_half_of_all_nights_are_changed(num_pending):
    """Four accepted nights and ever more changed ones, of which the spread of all nights is the change."""
    accepted = {f"night-{index}": [[value]] for index, value in enumerate((1.0, 1.002, 0.999, 1.001))}
    later = {f"red-{index}": [[1.5 + 0.001 * (index % 3)]] for index in range(num_pending)}
    judged = judge_jointly({"a": accepted}, {"a": [[1.501]]}, rules=Rule(), pending={"a": later})
    verdict = judged.verdicts["a"]
    assert (verdict.kind, verdict.since, verdict.num_nights) == (VerdictKind.REGRESSED, "red-0", num_pending + 1)
