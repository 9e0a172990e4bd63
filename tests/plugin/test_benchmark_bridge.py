"""Living with pytest-benchmark and pytest-xdist, and without parts of pytest. test_run.py compares the figures."""

import json
from types import SimpleNamespace

import pytest

from pytest_npubench.plugin import benchmark_bridge

from .project import make_project

OTHERS = """
def test_fake_plain():
    pass


def test_fake_bench(benchmark):
    benchmark(lambda: None)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    project = make_project(tmp_path_factory.mktemp("shared"))
    project.fake("noise=0.01")
    return project


@pytest.mark.parametrize(
    "arguments",
    [
        ("-p", "no:benchmark", "-p", "no:cacheprovider", "-p", "no:xdist"),
        ("--benchmark-disable",),
        ("-p", "no:terminal", "-p", "no:junitxml"),
    ],
    ids=" ".join,
)
def test_it_works_without(shared, arguments):
    result = shared.run("-k", "fake", "-W", "error", *arguments)
    assert result.ret == 0, result.stdout.str() + result.stderr.str()
    assert len(shared.cases()) == 8
    assert shared.records("end")[0]["counts"] == {"no-baseline": 8}


@pytest.mark.parametrize("dist", ["load", "loadgroup"])
def test_under_xdist_the_table_has_every_case_once(shared, dist):
    shared.journal_path.unlink(missing_ok=True)
    result = shared.run("-k", "fake", "-n2", "--dist", dist, "-W", "error", "--junitxml=junit.xml")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=8)
    rows = [line for line in result.outlines if line.startswith(" ") and line.endswith(" no-baseline")]
    assert len(rows) == len(set(rows)) == 8
    judged = [record["case"] for record in shared.journal().records if record["record"] == "case"]
    assert len(judged) == len(set(judged)) == 8
    assert {session.header["worker"] for session in shared.journal().sessions} <= {"gw0", "gw1"}
    measured = [session for session in shared.journal().sessions if session.end["counts"]]
    assert len(measured) == 1  # the device's cases went to one worker
    assert 'name="npubench.verdict" value="no-baseline"' in (shared.root / "junit.xml").read_text()
    assert sum(sum(session.end["counts"].values()) for session in shared.journal().sessions) == 8


def test_our_cases_are_benchmarks_to_only_and_skip(shared):
    shared.write("test_others.py", OTHERS)
    result = shared.run("-k", "fake and (profile or others)", "--benchmark-only", "-rA")
    assert result.ret == 0
    result.assert_outcomes(passed=4, skipped=1, deselected=result.parseoutcomes()["deselected"])
    result = shared.run("-k", "fake and (profile or others)", "--benchmark-skip", "-rA")
    result.assert_outcomes(passed=1, skipped=4, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["PASSED test_others.py::test_fake_plain"])


@pytest.mark.parametrize(
    ("arguments", "is_shown"),
    [
        (("-k", "fake and profile"), False),
        (("-k", "fake and (profile or others)"), True),
        (("-k", "fake and profile", "--benchmark-sort=name"), True),
    ],
)
def test_its_table_is_shown_where_it_has_more_than_ours_or_is_asked_for(shared, arguments, is_shown):
    shared.write("test_others.py", OTHERS)
    result = shared.run(*arguments)
    assert result.ret == 0
    assert ("Name (time in" in result.stdout.str()) is is_shown


GROUPED = """
import time

import pytest

pytestmark = [pytest.mark.cpu, pytest.mark.npubench(rounds=3, warmup=1), pytest.mark.benchmark(group="all")]


def test_sleeps(npubench):
    npubench(time.sleep, 0.01)


@pytest.mark.benchmark(group="mine")
def test_sleeps_in_a_group(npubench):
    npubench(time.sleep, 0.01)
"""


def test_a_group_of_the_users_keeps_our_samples(project):
    project.write("test_grouped.py", GROUPED)
    result = project.run("test_grouped.py", "--npubench-other-load=1", "--benchmark-json=b.json")
    assert result.ret == 0
    found = json.loads((project.root / "b.json").read_text())["benchmarks"]
    assert [one["group"] for one in found] == ["all", "mine"]
    assert all(one["stats"]["min"] >= 0.01 for one in found)
    result = project.run("test_grouped.py", "--npubench-other-load=1")
    result.stdout.fnmatch_lines(["*benchmark 'all': 1 tests*", "*benchmark 'mine': 1 tests*"])


def test_a_failed_case_keeps_its_statistics(shared):
    options = ("--npubench-case-error", "1e-9", "--benchmark-json=failed.json", "-W", "error")
    result = shared.run("-k", "fake and lengths", *options)
    assert result.ret == 1
    assert result.parseoutcomes().get("errors", 0) == 0
    (item,) = json.loads((shared.root / "failed.json").read_text())["benchmarks"]
    assert item["extra_info"]["npubench"]["verdict"] == "failed"
    assert item["stats"]["data"] == next(iter(shared.cases().values()))["metrics"]["e2e_s"]["samples"]


def test_last_failed_runs_the_failed_case_alone(shared):
    assert shared.run("-k", "fake", "--npubench-case-error", "1e-9").ret == 1
    result = shared.run("--lf", "--npubench-case-error", "1e-9")
    assert result.ret == 1
    assert shared.cases().keys() == {"buckets/prediction/fake-mini-llama-b2-lengths.csv"}
    # the campaign is as narrow as the selection: no steps, no profile of a bucket that the batches leave out
    points = {name for record in shared.records("round") for name in record["points"]}
    assert not any(name.startswith("step/") for name in points)


def test_the_mirror_takes_no_metric_that_is_not_in_seconds():
    """pytest-benchmark shows whatever it is given as seconds: an attainment of 0.9 would be 900 ms."""
    clock, timed = benchmark_bridge.ReplayClock(), []
    benchmark = SimpleNamespace(
        extra_info={}, pedantic=lambda function, **shape: timed.append((clock(), clock(), shape))
    )
    request = SimpleNamespace(
        node=SimpleNamespace(stash={benchmark_bridge._CLOCK: clock}, fixturenames=["benchmark"]),
        getfixturevalue=lambda name: benchmark,
    )
    metrics = [
        SimpleNamespace(name=name, unit=unit, value=0.5, value_samples=samples)
        for name, unit, samples in (("slo_attainment", "", (0.9, 0.8)), ("ttft_mean_s", "s", (0.25, 0.5)))
    ]
    judgement = SimpleNamespace(metrics=metrics, detail=None, predicted_s=None, error=None)
    verdict = SimpleNamespace(kind=SimpleNamespace(value="passed"), reason="")
    judged = SimpleNamespace(judgement=judgement, verdict=verdict, case=SimpleNamespace(key="k"), device="d")
    benchmark_bridge.mirror(request, judged)
    assert timed == [(0.0, 0.25, {"rounds": 2, "iterations": 1})]
    judgement.metrics = metrics[:1]
    benchmark_bridge.mirror(request, judged)
    assert benchmark.disabled
