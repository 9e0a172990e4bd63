"""Median and tail beside the better quartile: what they find, and that nights without a change do not alarm."""

from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pytest
from comparison.made_nights import stack

from pytest_npubench.comparison.observation import History, Night, Observation, judge_observations
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.spread import spread_alarms

NUM_CASES = 100
NOISES = {"within": (0.01, 0.0, 0.0), "between": (0.01, 0.01, 0.0), "clocks": (0.01, 0.01, 0.5), "all": (0.03, 0.02, 0)}
"""Of a process's samples, between nights, cases and processes, and how many processes come up at a clock 6 % slower."""


def night_of(noise, rng, num_processes):
    """Times [case, process, call]: calls correlate by 0.5, and 2 % of them are 10 to 50 % slow."""
    within, between, slow = noise
    steps = rng.normal(size=(NUM_CASES, num_processes, 20))
    for index in range(1, 20):
        steps[..., index] = np.sqrt(0.75) * steps[..., index] + 0.5 * steps[..., index - 1]
    outliers = (rng.random(steps.shape) < 0.02) * rng.uniform(0.1, 0.5, steps.shape)
    shapes = ((), (NUM_CASES, 1, 1), (NUM_CASES, num_processes, 1))
    levels = sum(rng.normal(0, between / np.sqrt(3), shape) for shape in shapes)
    return np.exp(within * steps + outliers + levels + 0.06 * (rng.random(shapes[-1]) < slow))


def suite_of(noise, rng, num_accepted, num_processes=3):
    """Sessions of each case by name, oldest first, and a night of the same kind; times of 20 calls a process."""
    nights = [night_of(noise, rng, 1) for _ in range(num_accepted)]
    tonight = night_of(noise, rng, num_processes)
    return {str(case): [night[case] for night in nights] for case in range(NUM_CASES)}, tonight


def alarms(accepted, tonight, better="lower"):
    return spread_alarms(accepted, {str(case): rows for case, rows in enumerate(tonight)}, better)


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_nights_without_a_change_do_not_alarm(noise):
    rng = np.random.default_rng(1)
    assert [alarms(*suite_of(noise, rng, num_accepted)) for num_accepted in (3, 5, 20)] == [{}] * 3


@pytest.mark.parametrize(
    ("slow", "factor", "named"), [([True, True, False], 3.0, "median"), ([True] + [False] * 7, 5.0, "tail")]
)
@pytest.mark.parametrize("better", ["lower", "higher"])
def test_what_some_calls_suffer_is_found_in_those_cases_alone(slow, factor, named, better):
    """Two calls of three that take three times as long, and one of eight that takes five times as long."""
    accepted, tonight = suite_of(NOISES["all"], np.random.default_rng(2), 3)
    tonight[:10] *= np.where(np.resize(slow, 20), factor, 1.0)
    if better == "higher":
        accepted, tonight = {case: [1 / one for one in rows] for case, rows in accepted.items()}, 1 / tonight
    found = alarms(accepted, tonight, better)
    assert sorted(map(int, found)) == list(range(10))
    assert all(
        text.startswith(f"its {named}") and " worse than that of 3 accepted sessions" in text for text in found.values()
    )


def test_a_case_whose_sessions_differ_by_as_much_does_not_alarm():
    quiet = {str(case): [[[1.0] * 9]] * 3 for case in range(3)}
    restless = {**quiet, "0": [[[level] * 9] for level in (1.0, 2.0, 4.0)]}
    assert alarms(quiet, [[[4.0] * 9]] * 3).keys() == {"0", "1", "2"}
    assert alarms(restless, [[[4.0] * 9]] * 3).keys() == {"1", "2"}


@pytest.mark.parametrize("samples", [[1.0, 3.0], [-1.0] * 9], ids=["too few", "no ratio"])
def test_samples_that_tell_no_median_alarm_nobody(samples):
    assert alarms({"0": [[[1.0] * 9]] * 3}, [[samples]]) == {}
    assert alarms({"0": [[[1.0] * 9]] * 2}, [[[9.0] * 9]]) == {}


def test_an_alarm_is_a_suspect_and_regressed_where_the_quartile_is_unchanged():
    rng = np.random.default_rng(4)
    nights = [tuple(rng.normal(1, 0.003, 9)) for _ in range(6)]
    slow = tuple(value * (1 if index % 3 == 0 else 3) for index, value in enumerate(nights[-1]))
    for samples, kind, suspects in (
        (nights[-1], VerdictKind.UNCHANGED, ()),
        (slow, VerdictKind.REGRESSED, ("own/c/a",)),
    ):
        seen = Observation(
            case="own/c/a",
            digest="d",
            metric="call_s",
            unit="s",
            better="lower",
            gate="ratio",
            margin=None,
            processes=(samples,),
        )
        history = History(sessions={str(index): [night] for index, night in enumerate(nights[:5])})
        found = judge_observations([seen], {seen.key: history})
        assert found.verdicts[seen.key].kind is kind
        assert found.suspects == suspects
    assert found.verdicts[seen.key].reason.startswith("its median is 2")
    assert "; its better quartile: " in found.verdicts[seen.key].reason
    night = Night(
        seen=seen,
        session="5",
        began_at=datetime.now(timezone.utc),
        stack=stack(),
        kind=VerdictKind.REGRESSED,
        since="5",
    )
    still = judge_observations([seen], {seen.key: replace(history, pending={"5": [slow]}, changed=night)})
    assert still.verdicts[seen.key].kind is VerdictKind.REGRESSED
    assert " is gone " not in still.verdicts[seen.key].reason  # the quartile alone is as before
