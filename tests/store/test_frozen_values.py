"""What a case's first acceptance fixes: looked up by every later run, kept as it is, and told when it was altered."""

import json
import math
from dataclasses import replace

import pytest
from accepted_results import CASE, OTHER, accept, result

from pytest_npubench.errors import BaselineError, MeasurementError
from pytest_npubench.store.baseline_changes import rename
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import judgement_of
from pytest_npubench.verdict.result import Judgement

NEW = "buckets/profile/cpu-small-b4-bucket128"


def frozen(directory, key, *, case=CASE, digest="d1", across=()):
    return Baselines.load(directory).frozen(case, key, digest=digest, across=across)


def held_to(rate, **about):
    return replace(result((1.0,), **about), frozen={"rate_per_s": rate})


def test_the_first_acceptance_fixes_it_and_later_ones_keep_it(directory, key):
    accept(directory, key, held_to(0.1 + 0.2), result(case=OTHER), session="s1")
    accept(directory, key, held_to(2), session="s2", day=1)
    assert frozen(directory, key) == {"rate_per_s": 0.1 + 0.2}
    assert frozen(directory, key, case=OTHER) == {}
    assert frozen(directory, key, digest="d2") == {}
    accept(directory, key, held_to(2, digest="d2"), session="s3", day=2)
    assert frozen(directory, key, digest="d2") == {"rate_per_s": 2.0}


def test_a_case_accepted_before_it_had_any_takes_them_from_the_next_session(directory, key):
    accept(directory, key, result(), session="s1")
    accept(directory, key, held_to(3.0), session="s2", day=1)
    assert frozen(directory, key) == {"rate_per_s": 3.0}


def test_across_a_part_of_the_key_its_own_come_first_then_the_oldest(directory, key, other_driver):
    accept(directory, key, held_to(1.0), session="s1")
    assert frozen(directory, other_driver) == {}
    assert frozen(directory, other_driver, across=("driver",)) == {"rate_per_s": 1.0}
    third = replace(key, driver="590")
    accept(directory, other_driver, held_to(2.0), session="s2", day=1)
    assert frozen(directory, other_driver, across=("driver",)) == {"rate_per_s": 2.0}
    assert frozen(directory, third, across=("driver",)) == {"rate_per_s": 1.0}


def test_a_renamed_case_keeps_them(directory, key):
    accept(directory, key, held_to(1.0), session="s1")
    rename(directory, CASE, NEW)
    accept(directory, key, held_to(9.0, case=NEW, digest="d9"), session="s2", day=1)
    assert frozen(directory, key, case=NEW, digest="d9") == {"rate_per_s": 1.0}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda f: f["values"].update(rate_per_s=0.5), "is not the check sum of this entry"),
        (lambda f: f.update(session="s9"), "is not the check sum of this entry"),
        (lambda f: f.update(values={}), r"frozen\.values: empty; want at least one"),
        (lambda f: f["values"].update(rate_per_s="fast"), r"frozen\.values\.rate_per_s: want"),
        (lambda f: f.update(x=1), r"frozen\.x: unknown"),
    ],
)
def test_an_altered_value_is_an_error_with_its_place(directory, key, edit, message):
    (path,) = accept(directory, key, held_to(0.44), session="s1")
    content = json.loads(path.read_text())
    edit(content["cases"][CASE]["frozen"])
    path.write_text(json.dumps(content))
    with pytest.raises(BaselineError, match=rf"cases\.{CASE}\.frozen.*{message}|{message}"):
        Baselines.load(directory)


def test_only_finite_numbers_are_fixed(directory, key):
    with pytest.raises(BaselineError, match=f"{CASE}, frozen rate_per_s: inf is not a finite number"):
        accept(directory, key, held_to(math.inf), session="s1")
    with pytest.raises(MeasurementError, match="frozen rate_per_s is nan; want a finite number"):
        Judgement(verdict=Verdict(kind=VerdictKind.PASSED, reason=""), frozen={"rate_per_s": math.nan})


def test_a_record_without_them_is_read():
    verdict = {"kind": "passed", "reason": ""}
    assert judgement_of({"verdict": verdict, "metrics": {}}).frozen == {}
    found = judgement_of({"verdict": verdict, "metrics": {}, "frozen": {"rate_per_s": 0.44}})
    assert found.frozen == {"rate_per_s": 0.44}
