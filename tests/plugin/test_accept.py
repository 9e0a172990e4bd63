"""--npubench-accept: a green run enters the baselines, nothing else does, and nothing does twice."""

import pytest

SELECT = ("-k", "fake and profile and bucket16", "--npubench-accept")


def notes(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith(("accepted ", "nothing accepted"))]


def test_each_run_is_one_session_and_a_resumed_one_is_none(project):
    project.fake("noise=0.01")
    paths = []
    for _ in range(2):
        result = project.run(*SELECT)
        assert result.ret == 0
        paths.append(project.baseline_path)
        assert notes(result) == [f"accepted 1 case into {paths[-1]}"]
    path, again = paths
    assert path == again
    (case,) = project.accepted().values()
    names = [session["session"] for session in case["sessions"]]
    assert names == [session.id for session in project.journal().sessions]
    text = path.read_text()
    result = project.run(*SELECT, "--npubench-resume")
    assert result.ret == 0
    assert notes(result) == ["nothing accepted: no case was measured: 1 were taken over from an earlier run"]
    assert path.read_text() == text


def test_another_test_that_fails_keeps_everything_out(project):
    project.fake()
    project.write("test_other.py", "def test_fake_and_profile_and_bucket16():\n    assert False\n")
    result = project.run(*SELECT)
    assert result.ret == 1
    assert notes(result) == [
        "nothing accepted: test_other.py::test_fake_and_profile_and_bucket16 failed; it measures no case, so it may be "
        "about every case"
    ]
    assert not (project.root / "baselines").exists()


def test_baselines_that_cannot_be_written_fail_the_run(project):
    project.fake()
    project.write("baselines/fake", "a file where the folder of this hardware should be")
    result = project.run(*SELECT)
    assert result.ret == 1
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(["error: *baselines*fake*"])


def test_a_run_without_a_case_accepts_nothing_and_stays_green(project):
    project.fake("absent='no fake accelerator today'")
    result = project.run(*SELECT, "--npubench-history", "history.db")
    assert result.ret == 0, result.stdout.str()
    assert notes(result) == ["nothing accepted: no case ran"]
    assert not (project.root / "baselines").exists()
    assert not (project.root / "history.db").exists()


def test_a_run_is_repeated_until_its_cases_have_the_sessions_that_are_wanted(project):
    project.fake("noise=0.01")
    for wanted, runs, sessions in ((2, 2, 2), (3, 1, 3), (3, 1, 4)):
        result = project.run("-k", "fake and profile and bucket16", f"--npubench-accept={wanted}")
        assert result.ret == 0, result.stdout.str()
        assert len(notes(result)) == runs
        assert f"\n{wanted} of {wanted} sessions are accepted\n" in result.stdout.str()
        (case,) = project.accepted().values()
        assert len({session["session"] for session in case["sessions"]}) == sessions
    assert len({session.run for session in project.journal().sessions}) == 4


UNSTEADY = """
from pathlib import Path

import pytest

NUMBER = Path(__file__).with_name("number")
pytestmark = [pytest.mark.cpu, pytest.mark.npubench(rounds=2, warmup=1)]


def test_steady(npubench):
    npubench(sum, range(3000))


def test_unsteady(npubench):
    number = int(NUMBER.read_text()) + 1 if NUMBER.exists() else 1
    NUMBER.write_text(str(number))
    npubench(sum if number != 3 else iter, range(3000))
"""


def test_a_case_that_one_run_did_not_accept_gets_its_sessions_by_another(project):
    project.write("test_unsteady.py", UNSTEADY)
    result = project.run("test_unsteady.py", "--npubench-other-load=1", "--npubench-remeasure=0", "--npubench-accept=3")
    said = [line.partition(" of ")[0] for line in result.outlines if "sessions are accepted" in line]
    assert said == ["1", "2", "2", "3"]
    assert sorted(len(case["sessions"]) for case in project.accepted().values()) == [3, 4]


def test_a_run_that_accepts_nothing_is_not_repeated_and_its_status_stays(project):
    project.fake("noise=0.01", case_error=1e-9)
    result = project.run("-k", "fake and lengths", "--npubench-accept=3")
    assert result.ret == 1
    assert len(project.journal().sessions) == 1
    assert project.run("--npubench-accept=3", "--collect-only", "-q").stdout.str().count("tests collected") == 1


@pytest.mark.parametrize("count", ["0", "21", "x", ""])
def test_only_so_many_sessions_are_asked_for(project, count):
    project.fake()
    assert project.run(f"--npubench-accept={count}").ret == pytest.ExitCode.USAGE_ERROR


def test_a_path_behind_the_option_is_a_path(project):
    project.fake("noise=0.01")
    result = project.run("-k", "fake and profile and bucket16", "--npubench-accept", "test_profile.py")
    assert result.ret == 0, result.stdout.str()
    assert len(notes(result)) == 1
