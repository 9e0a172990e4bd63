"""What every kind of case must do: a file put beside the others is tested by standing there."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from made_records import judged_record

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError, RegistryError
from pytest_npubench.suites import case_kind, protocol, suite
from pytest_npubench.suites.buckets.plan import ONLINE, SEARCHES
from pytest_npubench.suites.buckets.points import ANSWERS
from pytest_npubench.verdict import VerdictKind

from .conftest import cases, measured

OWN_TESTS = {ONLINE, *SEARCHES, ANSWERS}  # test_online_kind.py, test_search_kinds.py, test_answers_kind.py
every_kind = pytest.mark.parametrize("name", [name for name in suite("buckets").kinds if name not in OWN_TESTS])


def test_the_five_kinds_are_there():
    assert {"canary", "mean_error", "prediction", "profile", "steps"} <= set(suite("buckets").kinds)


@every_kind
def test_axes_are_plain_and_tell_cases_apart(plan, name):
    kind = case_kind(name)
    assert (kind.name, kind.suite) == (name, "buckets")
    axes = list(kind.axes(plan))
    assert axes == list(kind.axes(plan)) == list(map(tuple, axes))
    json.dumps(axes)
    found = cases(plan, name)
    assert len({case.id for case in found}) == len({case.digest(plan.settings) for case in found}) == len(axes) >= 1


@every_kind
def test_points_are_the_same_each_time_and_named_once(plan, name):
    kind = case_kind(name)
    for case in cases(plan, name):
        points = kind.points(case, plan)
        assert points == kind.points(case, plan)
        assert points
        assert len({point.name for point in points}) == len(points)
        assert all(sum(map(bool, (point.requests, point.move, point.kernel))) == 1 for point in points)
        json.dumps([point.definition for point in points])


def test_kinds_share_points_of_one_name(plan):
    """A campaign measures a name once, so it must mean one thing."""
    meant = {}
    for name in set(suite("buckets").kinds) - OWN_TESTS:
        for case in cases(plan, name):
            for point in case_kind(name).points(case, plan):
                known = meant.setdefault(point.name, point)
                assert getattr(point, "beside", None) is None or replace(known, beside=point.beside) == point


@every_kind
def test_a_device_that_keeps_to_its_buckets_passes(plan, name):
    kind = case_kind(name)
    for case in cases(plan, name):
        own = measured(kind.points(case, plan), plan)
        judgement = kind.judge(case, plan, own)
        assert judgement.verdict.kind is VerdictKind.PASSED, judgement.verdict
        assert judgement.what
        assert judgement.metrics
        assert judgement.measured_s > 0
        assert kind.settled(case, plan, own) is True
        assert judged_record(case, judgement)["metrics"]


@every_kind
def test_a_point_that_failed_is_the_cases_reason(plan, name):
    kind = case_kind(name)
    for case in cases(plan, name):
        for point in kind.points(case, plan):
            own = measured(kind.points(case, plan), plan)
            own.failures[point.name] = f"{point.name}: the reason"
            with pytest.raises(MeasurementError, match=f"^{point.name}: the reason$"):
                kind.judge(case, plan, own)


@every_kind
def test_nothing_measured_is_an_error(plan, name):
    for case in cases(plan, name):
        with pytest.raises(MeasurementError, match="no samples"):
            case_kind(name).judge(case, plan, Measured())


def test_an_unknown_kind_lists_the_known_ones():
    searches = "batch_search, bucket_choice, bucket_search"
    known = f"answers, band_coverage, {searches}, canary, fusion, mean_error, online, prediction, profile, steps"
    with pytest.raises(RegistryError, match=f"no case kind 'profil'; known: {known}"):
        case_kind("profil")


@pytest.mark.parametrize("content", [{}, {"KIND": SimpleNamespace(name="other")}], ids=["none", "misnamed"])
def test_a_file_without_its_kind_is_named(monkeypatch, content):
    monkeypatch.setattr(protocol, "import_module", lambda path: SimpleNamespace(**content))
    with pytest.raises(RegistryError, match=r"suites\.buckets\.kinds\.steps does not define KIND of name 'steps'"):
        case_kind("steps")
