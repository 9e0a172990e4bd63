"""A case enters the baselines only when its test passed: every phase, every try, to the end of the run."""

import json
import re

import pytest

from pytest_npubench.cli.main import main
from pytest_npubench.comparison.journal_sessions import journal_sessions
from pytest_npubench.plugin.run_process import run_id
from pytest_npubench.store.journal_format import RUN
from pytest_npubench.store.journal_runs import case_records

SUITE = """
import pytest

pytestmark = [pytest.mark.openvino, pytest.mark.npubench(rounds=2)]


@pytest.fixture
def breaking():
    yield
    raise RuntimeError("the lamp is broken")


def test_wrong_answer(npubench):
    npubench(sum, [1, 2])
    assert sum([1, 2]) == 4


def test_broken_lamp(npubench, breaking):
    npubench(sum, [1, 2])


@pytest.mark.xfail(reason="as ever")
def test_expected(npubench):
    npubench(sum, [1, 2])
    raise ValueError


@pytest.mark.xfail
def test_unexpected(npubench):
    npubench(sum, [1, 2])


@pytest.mark.xfail(strict=True)
def test_strictly_unexpected(npubench):
    npubench(sum, [1, 2])


def test_skipped(npubench):
    npubench(sum, [1, 2])
    pytest.skip("too late")


def test_twice(npubench):
    npubench(sum, [1, 2])
    with pytest.raises(Exception, match="called twice"):
        npubench(sum, [1, 2])


def test_in_part(npubench, subtests):
    npubench(sum, [1, 2])
    with subtests.test("a part"):
        assert 1 == 2


def test_good(npubench):
    npubench(sum, [1, 2])
"""
DID = {
    "wrong_answer": "failed (assert 3 == 4)",
    "broken_lamp": "failed at tear-down (RuntimeError: the lamp is broken)",
    "expected": "failed as expected (xfail: as ever)",
    "unexpected": "passed and was to fail (xfail)",
    "strictly_unexpected": "failed ([XPASS(strict)])",
    "skipped": "was skipped (Skipped: too late)",
    "twice": "called npubench twice",
    "in_part": "failed (assert 1 == 2)",
}
RERUNS = """
import pytest
from _pytest.runner import runtestprotocol


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    # what pytest-rerunfailures does, once
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for is_last in (False, True):
        for report in runtestprotocol(item, nextitem=nextitem, log=False):
            again = report.failed and not is_last
            report.outcome = "rerun" if again else report.outcome
            item.ihook.pytest_runtest_logreport(report=report)
            if again:
                break
        else:
            break
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_report_teststatus(report):
    return ("rerun", "R", "RERUN") if report.outcome == "rerun" else None

"""
FLAKY = """
import time

import pytest

pytestmark = [pytest.mark.openvino, pytest.mark.npubench(rounds=2)]
tries = []


@pytest.mark.npubench(max_median_s=0.05)
def test_slow_at_first(npubench):
    tries.append("slow")
    npubench(time.sleep, 0.06 if tries.count("slow") == 1 else 0)


def test_wrong_at_first(npubench):
    tries.append("wrong")
    npubench(sum, [1, 2])
    assert tries.count("wrong") > 1


def test_good(npubench):
    npubench(sum, [1, 2])
"""
ENDED = """
import pytest

pytestmark = pytest.mark.openvino


def test_good(npubench):
    npubench(sum, [1, 2])


def test_that_ends_it_all(npubench):
    pytest.exit("enough for today", 0)
"""


SHARED = """
import pytest

pytestmark = [pytest.mark.openvino, pytest.mark.npubench(rounds=2)]


@pytest.fixture(scope="class")
def device():
    yield
    raise RuntimeError("three pages were retired")


class TestOnIt:
    def test_first(self, npubench, device):
        npubench(sum, [1, 2])

    def test_last(self, npubench, device):
        npubench(sum, [1, 2])


def test_apart(npubench):
    npubench(sum, [1, 2])
"""
BESIDE = """
import pytest

pytestmark = [pytest.mark.openvino, pytest.mark.npubench(rounds=2)]


def test_good(npubench):
    npubench(sum, [1, 2])


@pytest.mark.npubench(max_median_s=1e-9)
def test_red(npubench):
    npubench(sum, [1, 2])


@pytest.mark.parametrize("wanted", [4, 5])
def test_sum(wanted):
    assert sum([1, 2]) == wanted
"""


def accepted(project) -> set[str]:
    files = (project.root / "baselines").rglob("*.json")
    return {name.rpartition("::test_")[2] for path in files for name in json.loads(path.read_text())["cases"]}


def left_out(result: pytest.RunResult) -> dict[str, str]:
    return dict(re.findall(r"::test_(\w+) was measured by a test that (.*?)(?:; |\n|$)", result.stdout.str()))


def test_only_a_case_whose_test_passed_enters(project):
    project.fake()
    project.write("test_own.py", SUITE)
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark")
    assert result.ret == 1
    assert left_out(result) == DID
    assert accepted(project) == {"good"}
    outcomes = {record["case"].rpartition("::test_")[2]: record["outcome"] for record in project.records("outcome")}
    assert outcomes["good"] == "passed"
    assert [outcomes[name] for name in ("expected", "unexpected", "skipped")] == ["xfailed", "xpassed", "skipped"]
    journal = project.journal()
    shown = {case["id"].rpartition("::test_")[2]: case["verdict"] for case in case_records(journal.sessions)}
    assert {name for name, verdict in shown.items() if verdict["kind"] != "invalid"} == {"good"}
    assert shown["wrong_answer"]["reason"].startswith("was measured by a test that failed (")
    assert [line for line in result.outlines if "verdicts: " in line] == [
        f"verdicts: {len(shown) - 1} invalid, 1 no-baseline"
    ]
    (side,) = journal_sessions("b", journal).sessions
    assert {case.rpartition("::test_")[2] for case, _ in side.observations} == {"good"}


def test_of_several_tries_the_worst_counts_and_makes_one_row(project, capsys):
    project.fake()
    project.in_front(RERUNS)
    project.write("test_own.py", FLAKY)
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark", "--junitxml=junit.xml", "-vv")
    assert result.ret == 1  # although every test passed in the end
    result.assert_outcomes(passed=3)
    assert "test_slow_at_first is failed (median " in result.stdout.str()
    assert left_out(result)["wrong_at_first"].startswith("failed at a try (AssertionError: assert 1 > 1): the worst")
    assert accepted(project) == {"good"}
    (line,) = (line for line in result.outlines if line.startswith("verdicts: "))
    assert line == "verdicts: 1 failed, 1 invalid, 1 no-baseline"
    assert main(["show", str(project.journal_path), "-q"]) == 0
    assert line in capsys.readouterr().out  # each case once here too
    properties = (project.root / "junit.xml").read_text().count('"npubench.verdict"')
    assert properties == 3


def test_a_run_that_is_ended_half_way_is_not_accepted_whatever_status_it_asked_for(project):
    project.fake()
    project.write("test_own.py", ENDED)
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark")
    assert result.ret == 0
    assert "nothing accepted: the run ended with exit status 2 (interrupted)" in result.stdout.str()
    assert (accepted(project), project.records("end")[0]["exit_status"]) == (set(), 2)


def test_the_runs_of_one_process_are_one_session(pytester, monkeypatch):
    first, second = (run_id(pytester.parseconfig()) for _ in range(2))
    assert first == second
    monkeypatch.setenv(RUN, "a run with a name")
    assert run_id(pytester.parseconfig()) == "a run with a name"


def test_a_fixture_of_several_tests_that_fails_at_its_end_keeps_all_of_them_out(project):
    project.fake()
    project.write("test_own.py", SHARED)
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark")
    words = "shares the fixture device, which failed at tear-down (RuntimeError: three pages were retired)"
    assert f"test_first was measured by a test that {words}" in result.stdout.str()
    assert accepted(project) == {"apart"}


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_failed_test_that_measures_nothing_keeps_the_run_out_also_where_a_case_is_red(project, workers):
    project.fake()
    project.write("test_own.py", BESIDE)
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark", *workers)
    assert result.ret == 1
    assert "nothing accepted: test_own.py::test_sum[4] (and 1 more) failed; it measures no case" in result.stdout.str()
    assert accepted(project) == set()


def test_a_run_that_a_conftest_fails_at_its_end_is_not_accepted(project):
    project.fake()
    project.in_front("def pytest_sessionfinish(session):\n    session.exitstatus = 1\n\n")
    project.write("test_own.py", BESIDE.replace("max_median_s=1e-9", "rounds=2").partition("@pytest.mark.param")[0])
    result = project.run("test_own.py", "--npubench-accept", "-p", "no:benchmark")
    assert "nothing accepted: the run ended with exit status 1, and no case is red" in result.stdout.str()
