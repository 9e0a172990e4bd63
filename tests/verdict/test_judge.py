"""judge against closed forms, and what must not matter to it."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import VerdictKind, judge, judge_jointly
from pytest_npubench.verdict.evidence import excess_scatter
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.simulation.rules import table_of
from pytest_npubench.verdict.weighing import weigh

from .made_suite import kinds, slower, suite


def predictive(entries, tonight, margin):
    """Difference, standard error and p of one new observation, by Student's predictive distribution."""
    entries = np.asarray(entries)
    error = entries.std(ddof=1) * math.sqrt(1 + 1 / entries.size)
    difference = tonight - entries.mean()
    return difference, error, stats.t.sf((difference - margin) / error, entries.size - 1)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-0.03, 0.03), min_size=3, max_size=15).filter(lambda x: np.std(x) > 1e-4),
    st.floats(-0.1, 0.15),
)
def test_one_case_is_students_predictive_test(entries, tonight):
    verdict = judge({"a": [[[math.exp(entry)]] for entry in entries]}, {"a": [[math.exp(tonight)]]})["a"]
    difference, error, p = predictive(entries, tonight, math.log(1.01))
    half = stats.t.ppf(0.975, len(entries) - 1) * error
    assert verdict.ratio == pytest.approx(math.exp(difference))
    assert verdict.interval == pytest.approx((math.exp(difference - half), math.exp(difference + half)))
    beyond = difference - half > math.log(1.01)
    assert (verdict.kind is VerdictKind.REGRESSED) == (beyond and p <= 0.05)
    delta = math.log1p(verdict.mde) - math.log(1.01)
    critical = stats.t.ppf(0.975, len(entries) - 1)
    # one case: q is 0.05 and the interval asks for 0.025
    assert stats.nct.sf(critical, len(entries) - 1, delta / error) == pytest.approx(0.8, abs=1e-3)


def test_worked_example_by_hand():
    """Sessions at 0, 1, 2 %: mean 1 %, s = 1 %, error 1 % sqrt(4 / 3) = 1.155 %, t(2 degrees, 0.975) = 4.303."""
    baseline = {"a": [[[math.exp(0.01 * k)] * 3] for k in range(3)]}
    verdict = judge(baseline, {"a": [[math.exp(0.11)]]})["a"]
    assert verdict.kind is VerdictKind.REGRESSED
    low, high = (math.log(end) for end in verdict.interval)
    assert (low, high) == pytest.approx((0.1 - 4.303 * 0.011547, 0.1 + 4.303 * 0.011547), abs=1e-5)
    assert "11 % worse than 3 accepted sessions" in verdict.reason


def test_a_regression_has_its_interval_beyond_the_margin():
    """p = 0.031 is below q, but the 95 % interval begins below the margin: no regression, nor the other way round."""
    baseline = {"a": [[[math.exp(0.01 * k)]] for k in range(6)]}
    tonight = 0.025 + math.log(1.01) + 2.4 * 0.01 * math.sqrt(3.5 * 7 / 6)
    difference, _, p = predictive([0.01 * k for k in range(6)], tonight, math.log(1.01))
    assert 0.025 < p < 0.05
    assert judge(baseline, {"a": [[math.exp(tonight)]]})["a"].kind is VerdictKind.INCONCLUSIVE
    assert judge(baseline, {"a": [[math.exp(0.05 - tonight)]]})["a"].kind is VerdictKind.INCONCLUSIVE
    assert judge(baseline, {"a": [[math.exp(tonight + difference)]]})["a"].kind is VerdictKind.REGRESSED


def test_cases_that_may_share_their_nights_lend_each_other_no_certainty():
    """Four cases are too few to tell the night's shift: 7 degrees of freedom each, however well they agree."""
    rng = np.random.default_rng(9)
    few, many = (
        weigh(table_of(rng.normal(0, 0.01, (num_cases, 8)), np.zeros((num_cases, 1))), Rule()) for num_cases in (4, 40)
    )
    assert few.slower.freedom.tolist() == [7.0] * 4
    assert many.slower.freedom.min() > 14


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
def test_order_does_not_matter(seed, random):
    baseline, current = suite(seed)
    current["case-1"] = slower(current["case-1"], 0.08)
    one = judge(baseline, current)
    names, nights = list(current), list(range(10))
    random.shuffle(names)
    random.shuffle(nights)
    shuffled = {name: [baseline[name][night] for night in nights] for name in reversed(names)}
    other = judge(shuffled, {name: current[name] for name in names})
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


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 0.05), st.floats(0.001, 0.2), st.sampled_from([5, 9, 30]))
def test_a_slow_down_never_looks_less_likely(seed, before, more, num_cases):
    rng = np.random.default_rng(seed)
    accepted, tonight = rng.normal(0, 0.01, (num_cases, 8)), rng.normal(0, 0.01, (num_cases, 1))
    tonight[0] += before
    first = weigh(table_of(accepted, tonight.copy()), Rule()).slower.p[0]
    tonight[0] += more
    assert weigh(table_of(accepted, tonight), Rule()).slower.p[0] <= first * (1 + 1e-9)


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
    half = stats.t.ppf(0.975, 2) * 0.01 * math.sqrt(4 / 3)
    assert verdict.kind is VerdictKind.REGRESSED
    assert verdict.ratio == pytest.approx(0.09)
    assert verdict.interval == pytest.approx((0.09 - half, 0.09 + half))


def test_attainment_falls_on_the_difference_scale():
    baseline = {"slo": [[[0.98]], [[0.99]], [[0.985]]]}
    judged = judge_jointly(baseline, {"slo": [[0.80]]}, rules=Rule(scale="difference", better="higher"))
    assert judged.verdicts["slo"].kind is VerdictKind.REGRESSED
    assert judged.verdicts["slo"].ratio == pytest.approx(-0.185)
    assert judged.suspects == ("slo",)


def test_suspects_are_more_than_what_alarms():
    """0, 1, 2 %, tonight 4.5 %: t = (3.5 - 0.995) / 1.155 = 2.17 with 2 degrees, p = 0.081: a suspect at 0.10."""
    baseline = {"a": [[[math.exp(0.01 * k)]] for k in range(3)]}
    judged = judge_jointly(baseline, {"a": [[math.exp(0.045)]]}, rules=Rule())
    assert judged.suspects == ("a",)
    assert not judged.verdicts["a"].failing
    less = {"a": [[math.exp(0.035)]]}  # p = 0.16
    assert judge_jointly(baseline, less, rules=Rule()).suspects == ()
    assert judge_jointly(baseline, less, rules=Rule(q=0.5)).suspects == ("a",)


def test_sessions_may_have_names_and_gaps():
    """Cases share a night by its name; a session that one case lacks is no other night."""
    baseline, current = suite(6, 10)
    named = {case: {f"night-{index}": one for index, one in enumerate(all_)} for case, all_ in baseline.items()}
    assert kinds(judge(named, current)) == kinds(judge(baseline, current))
    del named["case-4"]["night-3"], named["case-5"]["night-0"]
    found = judge(named, current)
    assert not any(verdict.failing for verdict in found.values())
    assert "9 accepted sessions" in found["case-4"].reason


def test_measured_again_it_is_told_more_sharply():
    rng = np.random.default_rng(7)
    accepted, tonight = rng.normal(0, 0.01, (40, 20)), rng.normal(0, 0.01, (40, 4))
    once = weigh(table_of(accepted, tonight[:, :1]), Rule())
    again = weigh(table_of(accepted, tonight), Rule())
    assert np.median(again.slower.error) < 0.7 * np.median(once.slower.error)


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


@pytest.mark.parametrize("num_processes", [2, 3, 5])
def test_the_scatter_of_a_night_is_held_against_the_deviation_of_sessions(num_processes):
    """Brute force with scipy's F distribution: the variance where it is beyond the 95 % point, else 0."""
    rng = np.random.default_rng(3)
    tonight = rng.normal(0, 1, (200, num_processes))
    found = excess_scatter(table_of(rng.normal(0, 1, (200, 9)), tonight), np.full(200, 0.8), np.full(200, 12.0))
    limit = 0.8 * stats.f.ppf(0.95, num_processes - 1, 12)
    expected = [variance if (variance := np.var(row, ddof=1)) > limit else 0.0 for row in tonight]
    assert found == pytest.approx(expected)
    assert 0 < np.count_nonzero(found) < 200


def test_an_error_in_the_statistics_is_inconclusive(monkeypatch):
    def fails(*_):
        raise FloatingPointError("made up")

    monkeypatch.setattr(sys.modules[weigh.__module__], "weigh", fails)
    baseline, current = suite(8, 3)
    current["case-1"] = [[math.nan]]
    judged = judge_jointly(baseline, current, rules=Rule())
    assert kinds(judged.verdicts) == {"case-0": "inconclusive", "case-1": "invalid", "case-2": "inconclusive"}
    assert list(judged.verdicts) == list(current)
    assert judged.verdicts["case-0"].reason == "the statistics failed: made up"
    assert (judged.suspects, judged.suite) == ((), None)


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
        ({"q": 0}, "q is 0"),
        ({"q": "0.05"}, "q is '0.05'"),
        ({"better": "faster"}, "better is 'faster'; want lower or higher"),
    ],
)
def test_a_rule_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        judge({}, {}, **wrong)
