"""Metrics of a run, family by family."""

import math
from dataclasses import replace
from datetime import datetime, timezone

import numpy as np
import pytest

from pytest_npubench.comparison.observation import History, Night, Observation, judge_observations, of_record
from pytest_npubench.errors import ConfigError, JournalError
from pytest_npubench.verdict import Verdict, VerdictKind, judge
from pytest_npubench.verdict.result import Metric

from .made_nights import stack


def observation(case="buckets/profile/a", metric="tbt_s", *processes, **changes):
    about = {"digest": "d1", "unit": "s", "better": "lower", "gate": "ratio", "margin": None}
    return Observation(case=case, metric=metric, processes=processes or ((1.0,),), **(about | changes))


def history(*values):
    return History(sessions={f"night-{index}": [[value]] for index, value in enumerate(values)})


STEADY = history(1.0, 1.001, 0.999, 1.0)


def found(*observations, histories=None, **rule):
    histories = {one.key: STEADY for one in observations} | (histories or {})
    return judge_observations(observations, histories, **rule)


def test_a_family_is_judged_as_judge_does_it():
    rng = np.random.default_rng(1)
    entries = np.exp(rng.normal(0, 0.01, (10, 9)))
    entries[4, -1] *= 1.1
    tonight = [observation(f"case-{row}", "ttft_s", (entries[row, -1],)) for row in range(10)]
    histories = {one.key: history(*entries[row, :-1]) for row, one in enumerate(tonight)}
    findings = judge_observations(tonight, histories)
    expected = judge(
        {f"case-{row}": [[[value]] for value in entries[row, :-1]] for row in range(10)},
        {f"case-{row}": [[entries[row, -1]]] for row in range(10)},
    )
    assert findings.verdicts == {(case, "ttft_s"): verdict for case, verdict in expected.items()}
    assert "case-4" in findings.suspects
    assert findings.suites.keys() == {"s"}


def test_a_suspect_is_named_once():
    findings = found(observation("a", "ttft_s", (1.2,)), observation("a", "tbt_s", (1.3,)))
    assert {verdict.kind for verdict in findings.verdicts.values()} == {VerdictKind.REGRESSED}
    assert findings.suspects == ("a",)


def test_suites_of_one_unit_are_told_apart():
    """Two families in one unit: neither verdict hides the other."""
    rng = np.random.default_rng(2)
    values = np.exp(rng.normal(0, 0.003, (8, 6)))
    latency = [observation(f"c{row}", "tbt_s", (values[row, -1] * 1.2,)) for row in range(8)]
    loose = [observation(f"c{row}", "compile_s", (values[row, -1],), margin=0.1) for row in range(8)]
    histories = {one.key: history(*values[row, :-1]) for row in range(8) for one in (latency[row], loose[row])}
    suites = judge_observations([*latency, *loose], histories).suites
    assert {title: verdict.kind.value for title, verdict in suites.items()} == {
        "s": "regressed",
        "s, margin 0.1": "unchanged",
    }


def test_its_own_margin_goes_before_that_of_the_run():
    kinds = [
        found(observation("a", "x", (1.05,), margin=margin), margin=run).verdicts["a", "x"].kind
        for margin, run in ((None, 0.01), (0.2, 0.01), (None, 0.2), (0.01, 0.2))
    ]
    regressed = VerdictKind.REGRESSED
    assert [kind is regressed for kind in kinds] == [True, False, False, True]


def test_exact_difference_and_none():
    findings = found(
        observation("a", "expert_bytes", (8.0,), gate="exact", unit="B"),
        observation("a", "error", (0.3,), gate="difference", unit="%"),
        observation("a", "note", (9.0,), gate="none"),
        histories={
            ("a", "expert_bytes"): history(8.0, 8.0),
            ("a", "error"): history(0.0, 0.001, -0.001),
        },
    )
    assert findings.verdicts["a", "expert_bytes"].kind is VerdictKind.UNCHANGED
    assert findings.verdicts["a", "error"].ratio == pytest.approx(0.3)
    assert findings.verdicts["a", "error"].kind is VerdictKind.REGRESSED
    assert ("a", "note") not in findings.verdicts


def test_what_stands_instead_of_a_history_is_the_verdict():
    instead = Verdict(kind=VerdictKind.INCOMPARABLE, reason="driver 570.86 -> 580.12")
    findings = found(
        observation("a", "x", (1.0,)), observation("b", "x", (1.0,)), histories={("a", "x"): History(instead=instead)}
    )
    assert findings.verdicts["a", "x"] is instead
    assert findings.verdicts["b", "x"].kind is VerdictKind.UNCHANGED


def test_without_a_history_there_is_no_baseline():
    one, counter = observation("a", "x"), observation("a", "n", gate="exact")
    findings = judge_observations([one, counter], {})
    assert {verdict.kind for verdict in findings.verdicts.values()} == {VerdictKind.NO_BASELINE}


def test_names_that_would_read_alike_stay_apart():
    findings = found(observation("a b", "c", (1.0,)), observation("a", "b c", (1.3,)))
    assert findings.verdicts["a b", "c"].kind is VerdictKind.UNCHANGED
    assert findings.verdicts["a", "b c"].kind is VerdictKind.REGRESSED


def test_junk_of_one_case_harms_no_other():
    findings = found(observation("a", "x", (math.nan,)), observation("b", "x", (1.0,)))
    assert findings.verdicts["a", "x"].kind is VerdictKind.INVALID
    assert findings.verdicts["b", "x"].kind is VerdictKind.UNCHANGED


def test_a_margin_that_cannot_be():
    with pytest.raises(ConfigError, match="margin is 2"):
        found(observation(), margin=2)


RECORD = {
    "case": "a",
    "digest": "d1",
    "metrics": {
        "tbt_s": {"unit": "s", "value": 1.0, "better": "lower", "samples": [1.0, 2.0]},
        "bytes": {"unit": "B", "value": 8.0, "better": "lower", "samples": [], "gate": "exact"},
        "again_s": {
            "unit": "s",
            "value": 1.0,
            "better": "lower",
            "samples": [1.0],
            "processes": [[1.0], [2.0]],
            "gate": "ratio",
            "margin": 0.02,
        },
        "note": {"unit": "", "value": 1.0, "better": "lower", "samples": [], "gate": "none"},
    },
}


def test_observations_of_a_record():
    read = {one.metric: one for one in of_record(RECORD)}
    assert read.keys() == {"tbt_s", "bytes", "again_s"}
    assert (read["tbt_s"].processes, read["tbt_s"].gate) == (((1.0, 2.0),), "ratio")
    assert (read["bytes"].processes, read["bytes"].gate) == (((8.0,),), "exact")
    assert (read["again_s"].processes, read["again_s"].margin) == (((1.0,), (2.0,)), 0.02)
    assert read["tbt_s"].key == ("a", "tbt_s")


@pytest.mark.parametrize(
    "damage",
    [
        {"samples": 3},
        {"samples": None},
        {"gate": "exactly"},
        {"gate": ["ratio"]},
        {"better": "faster"},
        {"processes": [1.0]},
    ],
)
def test_a_record_that_cannot_be_read(damage):
    broken = {**RECORD, "metrics": {"tbt_s": {**RECORD["metrics"]["tbt_s"], **damage}}}
    with pytest.raises(JournalError, match="case record 'a': metrics that cannot be read"):
        list(of_record(broken))
    with pytest.raises(JournalError):
        list(of_record({"case": "a", "metrics": []}))


def test_of_a_metric():
    metric = Metric(name="tbt_s", unit="s", value=1.0, samples=(1.0, 2.0), again=((3.0,),), margin=0.02)
    made = Observation.of_metric("a", "d1", metric)
    assert (made.processes, made.margin, made.gate) == (((1.0, 2.0), (3.0,)), 0.02, "ratio")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(VerdictKind.REGRESSED, VerdictKind.REGRESSED), (VerdictKind.IMPROVED, VerdictKind.NO_BASELINE)],
)
def test_a_baseline_that_is_cut_under_a_red_case_does_not_make_it_green(kind, expected):
    """Two accepted sessions are left, and tonight is as slow as the night before."""
    tonight = observation("a", "tbt_s", (1.2,))
    began = datetime(2026, 11, 9, tzinfo=timezone.utc)
    before = Night(seen=tonight, session="night-9", began_at=began, stack=stack(), kind=kind, since="night-9")
    cut = replace(history(1.0, 1.001), pending={"night-9": tonight.processes}, changed=before)
    verdict = found(tonight, histories={tonight.key: cut}).verdicts[tonight.key]
    assert (verdict.kind, verdict.since) == (expected, "night-9" if expected is VerdictKind.REGRESSED else None)
    assert "2 accepted sessions on this stack; want 3 or more" in verdict.reason
