"""A counter that is judged exactly is accepted exactly: the next night with the same values is unchanged."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pytest_npubench.comparison.observation import accepted_history, judge_observations, of_record
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import read_journal
from pytest_npubench.verdict import VerdictKind

from .made_nights import CASES, metric, stack, write_session

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
