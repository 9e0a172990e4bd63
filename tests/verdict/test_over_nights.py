"""The gate night after night, fed back what it said, on suites of benchmarks/gate.py; and what it is told beside."""

import re

import gate
import numpy as np
import pytest
import real_sessions

from pytest_npubench.verdict import VerdictKind, judge_jointly
from pytest_npubench.verdict.observations import Rule

from .made_suite import kinds, slower, suite

RED, BETTER = VerdictKind.REGRESSED, VerdictKind.IMPROVED


def played(course, *, noise="even", num_cases=12, num_accepted=8, seed=0):
    """The verdicts of case-0, whose nights are changed by `course`, night after night, the runner, and how many nights
    had an alarm of another case."""
    rng = np.random.default_rng(seed)
    entries = gate.suite(gate.NOISES[noise], num_cases, num_accepted + len(course), 0.0, rng)
    entries[0, num_accepted:] += np.log1p(course)[:, None]
    runner = gate.Runner(entries, num_accepted=num_accepted)
    nights = [runner.night(num_accepted + index) for index in range(len(course))]
    alarms = sum(any(v.kind is RED for case, v in verdicts.items() if case != "case-0") for verdicts in nights)
    return [verdicts["case-0"] for verdicts in nights], runner, alarms


def test_a_regression_is_red_until_it_is_gone_and_its_nights_never_are_a_reference():
    verdicts, runner, alarms = played([0.0] * 2 + [0.06] * 6 + [0.0] * 4)
    first = next(index for index, verdict in enumerate(verdicts) if verdict.kind is RED)
    assert 2 <= first <= 4
    assert all(verdict.kind is RED for verdict in verdicts[first:8])
    assert [verdict.since for verdict in verdicts[first + 1 : 8]] == ["10"] * (7 - first)
    assert verdicts[7].num_nights == 6
    assert "since 10, 6 sessions" in verdicts[7].reason
    gone = [index for index, verdict in enumerate(verdicts) if verdict.since and verdict.kind not in (RED, BETTER)]
    assert gone in ([8], [9])
    assert "the regression of 10 is gone after" in verdicts[gone[0]].reason
    assert set(runner.accepted["case-0"]).isdisjoint(range(10, 16))
    assert set(runner.gone["case-0"]) >= set(range(10, 16))
    assert alarms == 0


def test_an_improvement_is_green_and_followed_by_nobody():
    verdicts, runner, alarms = played([0.0] * 2 + [-0.06] * 5)
    found = [verdict for verdict in verdicts if verdict.kind is BETTER]
    assert len(found) >= 2
    assert not any(verdict.failing for verdict in verdicts)
    assert max(runner.accepted["case-0"]) < 10
    assert verdicts[-1].ratio == pytest.approx(0.94, abs=0.02)
    assert alarms == 0


def test_creep_is_a_step_between_then_and_now():
    verdicts, _, _ = played(0.004 * np.arange(14))
    assert verdicts[-1].kind is RED


@pytest.mark.parametrize("noise", ["mild", pytest.param("heavy", marks=pytest.mark.soak)])
def test_unchanged_suites_do_not_alarm(noise):
    """A small cell of the table in docs/statistics.md; 5 % a night would be 24 nights."""
    verdicts, _, alarms = played([0.0] * 16, noise=noise, num_cases=20, num_accepted=5, seed=3)
    assert alarms + sum(verdict.kind is RED for verdict in verdicts) <= 1


def test_real_sessions_do_not_alarm_in_any_order():
    """Measured on a machine that was quiet, then loaded; a kernel that is slowed by 20 % while it is quiet alarms."""
    sessions = real_sessions.Sessions.read(real_sessions.MEASURED, None)
    for order in (sessions, sessions.permuted(0)):
        assert real_sessions.replay(order)[1] == []
    (alarm, *_) = real_sessions.replay(sessions.slowed([0], 0.2))[1]
    assert "numpy_copy_1m" in alarm


def test_what_fresh_processes_do_not_show_is_in_doubt():
    baseline, current = suite(2, 12)
    current["case-1"] = [*slower(current["case-1"], 0.5), *current["case-1"], *current["case-1"]]
    judged = judge_jointly(baseline, current, rules=Rule())
    assert judged.verdicts["case-1"].kind is VerdictKind.INCONCLUSIVE
    assert "case-1" in judged.suspects
    assert "that disagree by" in judged.verdicts["case-1"].reason


def test_pending_nights_are_no_reference_and_yet_prove_a_change():
    baseline, current = suite(3, 12)
    changed = slower(current["case-1"], 0.035)
    once, thrice = (
        judge_jointly(baseline, {**current, "case-1": changed}, rules=Rule(), pending={"case-1": pending})
        for pending in ({}, {"p1": changed, "p2": changed})
    )
    assert kinds(once.verdicts)["case-1"] != "regressed"
    verdict = thrice.verdicts["case-1"]
    assert (verdict.kind, verdict.since, verdict.num_nights) == (RED, "p1", 3)
    assert "evidence" in verdict.reason


def test_a_night_that_was_disturbed_is_no_evidence_and_changes_no_state():
    baseline, current = suite(3, 12)
    changed = slower(current["case-1"], 0.035)
    nights = {"p1": changed, "p2": changed}

    def told(tonight, since=None, disturbed=("case-1",)):
        tonight, since = {**current, "case-1": tonight}, since and {"case-1": since}
        pending = {"case-1": nights}
        return judge_jointly(
            baseline, tonight, rules=Rule(), pending=pending, since=since, disturbed=disturbed
        ).verdicts["case-1"]

    assert (told(changed, disturbed=()).kind, told(changed).kind) == (RED, VerdictKind.INCONCLUSIVE)
    assert "something else used the device" in told(changed).reason
    assert told(slower(current["case-1"], 0.5)).kind is RED  # by this night alone
    quick = slower(current["case-1"], -0.01)
    assert (told(quick, "p1", ()).kind is RED, told(quick, "p1").kind is RED) == (False, True)
    assert (told(quick, "p1").since, told(quick, "p1").num_nights) == ("p1", 2)


@pytest.mark.parametrize("num_before", [0, 2, 12])
def test_nights_that_nobody_accepted_before_a_change_are_no_part_of_it(num_before):
    """Accepted once, then measured night after night: it is no smaller for that, and not gone."""
    baseline, current = suite(13, 12, 6 + num_before)
    case = dict(enumerate(baseline["case-1"]))
    slow = slower(current["case-1"], 0.08)
    nights = {f"n{index:02}": session for index, session in case.items() if index >= 6} | {"p1": slow, "p2": slow}
    baseline = {name: sessions[:6] for name, sessions in baseline.items()}
    tonight = {**current, "case-1": slow}
    told = judge_jointly(baseline, tonight, rules=Rule(), pending={"case-1": nights}, since={"case-1": "p1"})
    verdict = told.verdicts["case-1"]
    assert (verdict.kind, verdict.since, verdict.num_nights) == (RED, "p1", 3)
    assert verdict.ratio == pytest.approx(1.08, abs=0.015)
    back = judge_jointly(baseline, current, rules=Rule(), pending={"case-1": nights}, since={"case-1": "p1"})
    assert "the regression of p1 is gone after 2 sessions" in back.verdicts["case-1"].reason


def test_sessions_since_the_change_are_no_reference_though_they_were_accepted():
    baseline, current = suite(4, 12)
    nights = {f"n{index}": session for index, session in enumerate(baseline["case-1"])}
    nights |= {f"n{index}": slower(current["case-1"], 0.08) for index in range(10, 14)}
    tonight = {**current, "case-1": slower(current["case-1"], 0.08)}
    told = judge_jointly({**baseline, "case-1": nights}, tonight, rules=Rule(), since={"case-1": "n10"})
    verdict = told.verdicts["case-1"]
    assert (verdict.kind, verdict.since, verdict.num_nights) == (RED, "n10", 5)
    assert verdict.ratio == pytest.approx(1.08, abs=0.01)
    back = judge_jointly({**baseline, "case-1": nights}, current, rules=Rule(), since={"case-1": "n10"})
    assert back.verdicts["case-1"].kind is not RED


def test_more_cases_in_the_run_ask_for_more_evidence():
    baseline, current = suite(5, 12)
    current["case-1"] = slower(current["case-1"], 0.048)
    few, many = (judge_jointly(baseline, current, rules=Rule(), num_judged=number) for number in (None, 10**9))
    assert few.verdicts["case-1"].kind is RED
    assert many.verdicts["case-1"].kind is VerdictKind.INCONCLUSIVE
    assert many.verdicts["case-1"].mde > few.verdicts["case-1"].mde


@pytest.mark.parametrize(("by", "nights"), [(0.035, ("p1", "p2")), (0.06, ())])
def test_a_verdict_says_among_how_many_metrics_it_would_still_alarm(by, nights):
    baseline, current = suite(3, 12)
    changed = slower(current["case-1"], by)
    pending = {"case-1": dict.fromkeys(nights, changed)}

    def told(num_judged):
        tonight = {**current, "case-1": changed}
        judged = judge_jointly(baseline, tonight, rules=Rule(), pending=pending, num_judged=num_judged)
        return judged.verdicts["case-1"]

    most = told(None).alarms_among
    assert 12 <= most < 10**9
    assert (told(most).kind, told(most + 1).kind) == (RED, VerdictKind.INCONCLUSIVE)


def test_a_case_that_is_not_measured_tonight_lends_its_nights():
    baseline, current = suite(6, 30)
    part = {case: current[case] for case in list(current)[:2]}
    lent = judge_jointly(baseline, part, rules=Rule()).verdicts
    alone = judge_jointly({case: baseline[case] for case in part}, part, rules=Rule()).verdicts
    assert lent.keys() == part.keys()
    assert all(lent[case].mde != alone[case].mde for case in part)


def test_groups_and_scales_are_judged_at_once():
    """Each group has its own shift of the night, each scale its own noise law; one budget is over all of them."""
    times, tonight = suite(7, 12)
    rates, rate = suite(8, 12)
    errors = {f"error-{index}": [[[0.01 * value]] for value in (1, 2, 3, 2)] for index in range(3)}
    baseline = {**times, **{f"rate-{case}": sessions for case, sessions in rates.items()}, **errors}
    current = {**tonight, **{f"rate-{case}": slower(session, -0.3) for case, session in rate.items()}}
    current |= {case: [[0.02]] for case in errors} | {"error-1": [[0.5]]}
    rules = {case: Rule(group="s") for case in times}
    rules |= {f"rate-{case}": Rule(better="higher", group="tokens/s") for case in rates}
    rules |= {case: Rule(scale="difference", group="%") for case in errors}
    judged = judge_jointly(baseline, current, rules=rules)
    found = kinds(judged.verdicts)
    assert {case for case, kind in found.items() if kind == "regressed"} == {
        *(c for c in rules if "rate" in c),
        "error-1",
    }
    assert {group: verdict.kind.value for group, verdict in judged.suites.items()} == {
        "s": "unchanged",
        "tokens/s": "regressed",
    }
    assert judged.verdicts["error-1"].ratio == pytest.approx(0.48, abs=0.01)


def test_above_a_factor_of_two_it_is_a_factor():
    baseline, current = suite(9, 12)
    current["case-1"] = slower(current["case-1"], 2.0)
    current["case-2"] = slower(current["case-2"], -0.75)
    verdicts = judge_jointly(baseline, current, rules=Rule()).verdicts
    assert verdicts["case-1"].reason.startswith("3 times worse than 10 accepted sessions (95 % interval 2.9")
    assert verdicts["case-2"].reason.startswith("3.98 times better than 10 accepted")
    current["case-2"] = slower(current["case-2"], 8423.0)
    reason = judge_jointly(baseline, current, rules=Rule()).verdicts["case-2"].reason
    assert re.match(
        r"2,\d\d\d times worse than 10 accepted sessions \(95 % interval 2,\d\d\d to 2,\d\d\d times", reason
    )
    wild = {"a": [[[level]] for level in (1.0, 8.0, 0.5, 3.0)]}
    reason = judge_jointly(wild, {"a": [[6.0]]}, rules=Rule()).verdicts["a"].reason
    assert " worse than 4 accepted sessions, or not: its 95 % interval is more than 100 % wide" in reason
    assert re.search(r"could have seen nothing below x2 in this session or within three", reason)


def test_no_change_is_none_in_words():
    reason = judge_jointly({"a": [[[0.1, 0.3]]] * 5}, {"a": [[0.1, 0.3]]}, rules=Rule()).verdicts["a"].reason
    assert reason.startswith("0 % worse than 5 accepted sessions (95 % interval +0.0 to +0.0 %)")


def test_nights_that_came_and_went_tell_how_heavy_the_tail_is():
    """Three cases were disturbed for a night each: a fourth that is so is in doubt, where it was an alarm."""
    baseline, current = suite(11, 12, 20)
    gone = {f"case-{index}": {"n": slower(current[f"case-{index}"], 0.3)} for index in (2, 3, 4)}
    current["case-1"] = slower(current["case-1"], 0.05)
    before, after = (judge_jointly(baseline, current, rules=Rule(), gone=nights).verdicts for nights in ({}, gone))
    assert (before["case-1"].kind, after["case-1"].kind) == (RED, VerdictKind.INCONCLUSIVE)
    assert after["case-5"].mde > before["case-5"].mde


def test_a_second_speed_that_was_seen_before_is_no_alarm():
    """Two cases are 7 % slower tonight, one of which was so twice and came back."""
    baseline, current = suite(12, 12, 20)
    slow = {case: slower(current[case], 0.07) for case in ("case-1", "case-2")}
    gone = {"case-1": {"n1": slow["case-1"], "n2": slow["case-1"]}}
    found = kinds(judge_jointly(baseline, {**current, **slow}, rules=Rule(), gone=gone).verdicts)
    assert (found["case-1"], found["case-2"]) == ("inconclusive", "regressed")


def test_two_accepted_nights_before_a_change_are_no_reference():
    baseline, current = suite(10, 3, 6)
    names = {case: {f"n{index}": one for index, one in enumerate(sessions)} for case, sessions in baseline.items()}
    verdict = judge_jointly(names, current, rules=Rule(), since={"case-1": "n2"}).verdicts["case-1"]
    assert verdict.kind is VerdictKind.NO_BASELINE
    assert verdict.reason == "2 accepted sessions on this stack; want 3 or more before n2, when it changed"


def test_what_could_have_been_seen_is_found_in_four_of_five():
    """Planted in six cases of six suites, each by what its verdict promised: tonight, and in three nights."""
    tonight = soon = 0
    for seed in range(6):
        times = np.exp(gate.suite(gate.NOISES["mild"], 30, 18, 0.0, np.random.default_rng([seed, 9])))
        names = {f"case-{row}": row for row in range(30)}
        baseline = {case: {str(night): [[times[row, night, 0]]] for night in range(15)} for case, row in names.items()}
        before = judge_jointly(baseline, {case: [[times[row, 15, 0]]] for case, row in names.items()}, rules=Rule())
        cases = list(names)[::5]

        def planted(night, sizes, times=times, names=names):
            """One process of a case, three of one that is slower."""
            processes = {case: times[row, night, : 3 if case in sizes else 1] for case, row in names.items()}
            return {case: [[one * (1 + sizes.get(case, 0))] for one in some] for case, some in processes.items()}

        sizes = {case: before.verdicts[case].mde for case in cases}
        found = judge_jointly(baseline, planted(15, sizes), rules=Rule()).verdicts
        tonight += sum(found[case].kind is RED for case in cases)
        reasons = {case: before.verdicts[case].reason for case in cases}
        sizes = {
            case: float(re.search(r"([\d.]+) % within three", reason)[1]) / 100 for case, reason in reasons.items()
        }
        pending = {case: {str(night): planted(night, sizes)[case] for night in (15, 16)} for case in cases}
        found = judge_jointly(baseline, planted(17, sizes), rules=Rule(), pending=pending).verdicts
        soon += sum(found[case].kind is RED for case in cases)
    assert 22 <= tonight <= 35
    assert 22 <= soon <= 35
