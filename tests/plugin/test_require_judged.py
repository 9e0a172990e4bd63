"""--npubench-require-judged: a run that nothing was held against is red, and is accepted all the same."""

from pytest_npubench.plugin.outcome import ExitStatus

from .conftest import COMPARED

ONE = ("-k", "fake and profile and bucket16")
REQUIRED = "--npubench-require-judged=0.9"


def test_a_first_run_is_red_and_accepted(project):
    project.fake()
    result = project.run(*ONE, REQUIRED, "--npubench-accept")
    assert result.ret == ExitStatus.NOT_JUDGED
    result.assert_outcomes(passed=1, deselected=result.parseoutcomes()["deselected"])
    result.stdout.fnmatch_lines(
        [
            "accepted 1 case into *",
            "error: --npubench-require-judged: 0 of 1 cases were compared with a baseline, want 90%; 1 of 1 no-b*",
        ]
    )
    (case,) = project.accepted().values()
    assert len(case["sessions"]) == 1


def test_nights_with_baselines_are_green_until_every_key_changes(nights, tmp_path):
    same = nights.after(tmp_path / "same")
    assert same.run(*COMPARED, REQUIRED, "--npubench-remeasure=0").ret == 0
    other = nights.after(tmp_path / "other", install="driver='fake driver 2'")
    result = other.run(*COMPARED, REQUIRED)
    assert result.ret == ExitStatus.NOT_JUDGED
    result.stdout.fnmatch_lines(["error: --npubench-require-judged: 0 of 6 *incomparable: *driver 1 -> fake driver 2"])


def test_a_device_that_is_absent_is_no_green_run(project):
    project.fake("absent='no fake accelerator today'")
    result = project.run(*ONE, REQUIRED)
    assert result.ret == ExitStatus.NOT_JUDGED
    result.stdout.fnmatch_lines(["error: --npubench-require-judged: no case could be compared with a baseline; *"])
