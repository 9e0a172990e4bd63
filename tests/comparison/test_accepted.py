"""Histories out of real baseline files; a counter that is judged exactly is accepted exactly."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_npubench.comparison.observation import History, Observation, accepted_history, judge_observations, of_record
from pytest_npubench.errors import ConfigError
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult
from pytest_npubench.store.journal import read_journal
from pytest_npubench.verdict import VerdictKind

from .made_nights import CASES, metric, stack, write_session

CASE = "buckets/profile/h200-tiny-b4-bucket1"
OLD, NEW = stack().key(), stack("580.12").key()


def observed(value=1.0, **changes):
    about = {"digest": "d1", "metric": "tbt_s", "unit": "s", "better": "lower", "gate": "ratio", "margin": None}
    return Observation(case=CASE, processes=((value,),), **(about | changes))


def accept(directory, numbers, key=OLD, *, digest="d1", metrics=("tbt_s",), **about):
    """Sessions by number, one a day; a session's only sample is its number."""
    for number in numbers:
        found = tuple(
            MetricResult(name=name, unit="s", better="lower", processes=((float(number),),)) for name in metrics
        )
        day = datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=number)
        Baselines(directory=directory, files=()).accept(
            [CaseResult(hardware="h200", case=CASE, digest=digest, metrics=found, **about)],
            session=f"session-{number}",
            key=key,
            accepted_at=day.isoformat(),
        )


def history(directory, observation=None, key=OLD, across=()):
    return accepted_history(Baselines.load(directory), observation or observed(), key, across)


def numbers(sessions):
    assert list(sessions) == [f"session-{int(session[0][0])}" for session in sessions.values()]
    return [int(session[0][0]) for session in sessions.values()]


@pytest.mark.parametrize("accepted", [1, 25, 32, 40])
def test_anchor_and_window_are_one_history(tmp_path, accepted):
    accept(tmp_path, range(1, accepted + 1))
    found = history(tmp_path)
    assert (numbers(found.sessions), found.pending, found.instead) == (
        [*range(1, min(accepted, 8) + 1), *range(max(9, accepted - 23), accepted + 1)],
        {},
        None,
    )


def test_a_metric_that_some_sessions_lack(tmp_path):
    accept(tmp_path, range(1, 4))
    accept(tmp_path, range(4, 6), metrics=("tbt_s", "ttft_s"))
    assert numbers(history(tmp_path, observed(metric="ttft_s")).sessions) == [4, 5]
    assert history(tmp_path, observed(metric="energy")) == History()


def test_nothing_accepted_is_no_baseline(tmp_path):
    accept(tmp_path, [1])
    found = history(tmp_path, Observation(**{**_fields(observed()), "case": "buckets/profile/other"}))
    assert found == History()
    assert judge_observations([observed()], {observed().key: found}).verdicts[observed().key].kind is (
        VerdictKind.NO_BASELINE
    )


def _fields(observation):
    return {name: getattr(observation, name) for name in observation.__slots__}


def test_another_driver_is_incomparable_and_says_so(tmp_path):
    accept(tmp_path, range(1, 5))
    found = history(tmp_path, key=NEW)
    assert not found.sessions
    assert found.instead.kind is VerdictKind.INCOMPARABLE
    assert found.instead.reason == "accepted under another key: driver 570.86 -> 580.12"


def test_another_definition_is_incomparable_and_says_so(tmp_path):
    accept(tmp_path, range(1, 5))
    found = history(tmp_path, observed(digest="d2"))
    assert found.instead.reason == "accepted under another key: case digest d1 -> d2"


def test_across_relaxes_that_part_and_no_other(tmp_path):
    accept(tmp_path, range(1, 5))
    assert numbers(history(tmp_path, key=NEW, across=("driver",)).sessions) == [1, 2, 3, 4]
    assert history(tmp_path, key=NEW, across=("runtime",)).instead.kind is VerdictKind.INCOMPARABLE
    changed = stack("580.12", runtime="jax 0.11.0").key()
    both = history(tmp_path, key=changed, across=("driver",))
    assert both.instead.reason == "accepted under another key: runtime jax 0.10.2 -> jax 0.11.0"


def test_across_the_newest_of_all_keys_are_the_window(tmp_path):
    accept(tmp_path, range(1, 31))
    accept(tmp_path, range(31, 35), NEW)
    assert numbers(history(tmp_path, key=NEW).sessions) == [31, 32, 33, 34]
    found = history(tmp_path, key=NEW, across=("driver",))
    assert numbers(found.sessions) == [*range(1, 35)]


def test_across_what_is_no_part_of_the_key(tmp_path):
    accept(tmp_path, [1])
    with pytest.raises(ConfigError, match="colour"):
        history(tmp_path, across=("colour",))


COUNTERS = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e90, max_value=1e90)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples=st.lists(COUNTERS, min_size=1, max_size=80), better=st.sampled_from(["lower", "higher"]))
@example(samples=[0.6865234375], better="higher")
@example(samples=[1.0] * 40 + [2.0], better="lower")  # more samples than are kept, of which one counts
def test_the_same_values_are_unchanged_the_next_night(tmp_path_factory, samples, better):
    folder = tmp_path_factory.mktemp("counter")
    path, name = folder / "journal.jsonl", "expert_coverage"
    counter = metric(samples, gate="exact", unit="", better=better)
    write_session(path, {CASES[0]: {name: counter}})
    journal = read_journal(path)
    accept_run(journal, journal.sessions, folder / "baselines")
    (record,) = (record for record in journal.records if record["record"] == "case")
    (again,) = of_record(record)
    history = accepted_history(Baselines.load(folder / "baselines"), again, stack().key())
    verdict = judge_observations([again], {again.key: history}).verdicts[again.key]
    assert verdict.kind is VerdictKind.UNCHANGED


@pytest.mark.parametrize(("better", "kind"), [("lower", VerdictKind.REGRESSED), ("higher", VerdictKind.IMPROVED)])
def test_the_least_change_is_one(tmp_path, better, kind):
    path, name = tmp_path / "journal.jsonl", "expert_coverage"
    for value in (0.6865234375, 0.6865234375000001):
        write_session(path, {CASES[0]: {name: metric([value], gate="exact", unit="", better=better)}})
    journal = read_journal(path)
    accept_run(journal, journal.sessions[:1], tmp_path / "baselines")
    (again,) = of_record(journal.sessions[1].records[-3])
    history = accepted_history(Baselines.load(tmp_path / "baselines"), again, stack().key())
    assert judge_observations([again], {again.key: history}).verdicts[again.key].kind is kind
