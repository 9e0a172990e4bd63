"""Histories out of real baseline files."""

from datetime import datetime, timedelta, timezone

import pytest

from pytest_npubench.comparison.observation import History, Observation, accepted_history, judge_observations
from pytest_npubench.errors import ConfigError
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult
from pytest_npubench.verdict import VerdictKind

from .made_nights import stack

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
