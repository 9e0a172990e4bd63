"""Runs that are interrupted or killed, and what --npubench-resume makes of their journal."""

import shutil
import signal
import sys

import pytest

from pytest_npubench.suites.buckets.points import seconds_in

from .project import Project, interrupt_after_a_round, make_project, summary, wait_for

OWN_FIRST = """
import pytest


@pytest.mark.cpu
@pytest.mark.npubench(rounds=3)
def test_fake_and_quick(npubench):
    npubench(lambda: None)
"""
HANG = """
import os
import time


def test_fake_and_slow():
    while "HANG" in os.environ:
        time.sleep(0.1)
"""


def round_indices(project: Project, session: int = -1) -> list[int]:
    return [record["round"] for record in project.records("round", session)]


def test_an_interrupted_run_says_what_ran_and_is_resumed(project):
    project.fake("noise=0.01", min_rounds=6, max_rounds=6)
    project.write("test_a.py", OWN_FIRST)
    process = project.start("-k", "fake", "-W", "error", env={"FAKE_SLEEP_S": "0.004"})
    interrupt_after_a_round(project, process, signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    result = pytest.RunResult(process.returncode, output.splitlines(), [], 0.0)
    result.stdout.fnmatch_lines(["=* npubench =*", " case *", " callable/test_a.py::* no-baseline"])
    (end,) = project.records("end")
    assert (end["exit_status"], end["counts"]) == (2, {"no-baseline": 1})
    python = f"CPython {sys.version_info.major}.{sys.version_info.minor}"
    own, suite = (record["fingerprint"]["device"]["runtime"] for record in project.records("device"))
    assert own.startswith(f"{python}, ")  # the own case's processor, with what the process has imported
    assert not suite.startswith(python)
    done = round_indices(project)
    assert done == list(range(len(done)))
    assert 2 <= len(done) < 6

    earlier = [record["points"] for record in project.records("round")]
    assert project.run("-k", "fake", "--npubench-resume", "--npubench-lock-timeout", "0").ret == 0
    assert round_indices(project) == list(range(len(done), 6))
    later = [record["points"] for record in project.records("round")]
    cases = project.cases()
    assert len(cases) == 9
    assert not any(record["resumed"] for record in cases.values())
    taken_over = [value for points in earlier + later for value in points["step/32"]]
    assert cases["buckets/steps/fake-mini-llama-b2-bucket32"]["metrics"]["prefill_s"]["samples"] == taken_over


@pytest.mark.soak  # the fake's run is interrupted above and killed below; what tests/crash kills is resumed too
def test_a_killed_run_on_the_hosts_processors_is_resumed(project):
    project.hardware("mini", min_rounds=30, max_rounds=30)
    process = project.start("-k", "mini and profile and bucket16")
    interrupt_after_a_round(project, process, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    done = round_indices(project)
    assert project.records("end") == []
    assert 2 <= len(done) < 30
    result = project.run("-k", "mini and profile and bucket16", "--npubench-resume", "--npubench-lock-timeout", "0")
    assert result.ret == 0, result.stdout.str()
    assert done + round_indices(project) == list(range(30))
    (case,) = project.cases().values()
    assert len(case["metrics"]["tbt_s"]["samples"]) == 30
    assert case["detail"]["cost"]["binaries"] == 2


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run killed once its first two cases were judged, one of them failed, and all rounds were measured."""
    project = make_project(tmp_path_factory.mktemp("killed"))
    project.fake("noise=0.01", case_error=1e-9)
    project.write("test_prf.py", HANG)  # between the files of the suite
    process = project.start("-k", "fake", env={"HANG": "1"})
    path = project.journal_path
    wait_for(lambda: path.exists() and b'"case":"buckets/mean' in path.read_bytes(), process)
    process.kill()
    process.communicate()
    return project


@pytest.fixture(scope="module")
def resumed(killed):
    return killed.run("-k", "fake", "--npubench-resume", "-rA", "--npubench-accept")


def test_finished_cases_are_taken_over_as_they_were(killed, resumed):
    before, after = killed.cases(session=0), killed.cases(session=1)
    assert len(before) == 2
    assert len(after) == 8
    for key, record in before.items():
        changed = {name for name in record if record[name] != after[key][name]}
        assert changed == {"session", "resumed", "duration_s"}
    assert {key for key, record in after.items() if record["resumed"]} == before.keys()


def test_a_failed_case_stays_failed(killed, resumed):
    assert resumed.ret == 1
    assert list(summary(resumed, "FAILED")) == ["test_prediction.py::test_prediction[fake-mini-llama-b2-lengths.csv]"]
    assert len([line for line in resumed.outlines if "(resumed)" in line]) == 2
    assert killed.records("end", session=1)[0]["counts"] == {"failed": 1, "no-baseline": 7}


def test_rounds_that_were_enough_are_not_measured_again(killed, resumed):
    assert killed.records("round", session=1) == []
    assert killed.records("compile", session=1) == []
    rounds = killed.records("round", session=0)
    profiled = killed.cases(session=1)["buckets/profile/fake-mini-llama-b2-bucket32"]
    samples = [value / 2 for record in rounds for value in record["points"]["profile/32/1"]]
    assert profiled["metrics"]["ttft_s"]["samples"] == samples
    assert profiled["detail"]["cost"]["binaries"] == 2


def test_another_driver_takes_nothing_over(killed, resumed):
    text = (killed.root / "conftest.py").read_text()
    killed.write("conftest.py", text.replace("install(", "install(driver='fake driver 2', "))
    killed.run("-k", "fake and not slow", "--npubench-resume")
    killed.write("conftest.py", text)
    assert round_indices(killed) == [0, 1]
    assert not any(record["resumed"] for record in killed.records("case"))
    assert len({session.records[0]["digest"] for session in killed.journal().sessions}) == 2


def test_another_profile_takes_over_what_it_left_alone(killed, resumed):
    """The meaning of every case hangs on the settings of its plan."""
    path = killed.root / "hw/fake.toml"
    text = path.read_text()
    path.write_text(text.replace("profile_output_tokens = 9", "profile_output_tokens = 8"))
    killed.run("-k", "fake and profile", "--npubench-resume")
    path.write_text(text)
    assert round_indices(killed) == [0, 1]
    assert not any(record["resumed"] for record in killed.records("case"))
    names = [name for name in seconds_in(killed.records("round")[0]["points"]) if not name.startswith("move/")]
    assert names
    assert all(name.endswith(("/1", "/8")) for name in names)


def test_a_torn_line_is_dropped_and_said(project):
    project.fake("noise=0.01")
    select = ("-k", "fake and profile and bucket16")
    assert project.run(*select).ret == 0
    with project.journal_path.open("ab") as file:
        file.write(b'{"record":"round","sess')
    result = project.run(*select, "--npubench-resume")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*: 23 bytes without a line end; their writer was killed"])
    assert [record["num_bytes"] for record in project.records("torn")] == [23]
    assert len(project.journal().sessions) == 2


def test_where_the_commit_is_not_known_all_is_measured_anew(project):
    """Unknown then and unknown now may be two commits."""
    project.fake()
    shutil.rmtree(project.root / ".git")
    select = ("-k", "fake and profile and bucket16")
    assert project.run(*select).ret == 0
    result = project.run(*select, "--npubench-resume")
    assert result.ret == 0
    assert not any(record["resumed"] for record in project.records("case"))
    assert round_indices(project) == [0, 1]
    result.stdout.fnmatch_lines(["nothing is resumed, all is measured anew: the commit is not known (not a git*"])
