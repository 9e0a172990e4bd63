"""What a run makes of its baselines: of another key, broken, misspelt, not there yet; and what may not enter them."""

import json
import shutil

import pytest

from pytest_npubench.plugin.outcome import ExitStatus

from .conftest import COMPARED


def assert_refused(project, result: pytest.RunResult, *texts: str) -> None:
    """A usage error that holds the texts, before anything was measured."""
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    (line, *_) = result.errlines
    assert line.startswith("ERROR: baseline")
    for text in texts:
        assert text in line
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert project.records("round") == []


@pytest.fixture
def broken(nights, tmp_path):
    """A copy of the nights, and the path of its one baseline file."""
    project = nights.after(tmp_path / "project")
    project.journal_path.unlink()
    return project, project.baseline_path


def test_another_driver_is_incomparable_unless_asked_for(nights, tmp_path):
    project = nights.after(tmp_path / "project", install="driver='fake driver 2'")
    result = project.run(*COMPARED)
    assert result.ret == 0, result.stdout.str()
    assert set(project.kinds().values()) == {"incomparable"}
    for record in project.cases().values():
        assert record["verdict"]["reason"].endswith(": driver fake driver 1 -> fake driver 2")
    result = project.run(*COMPARED, "--npubench-compare-across", "driver")
    assert result.ret == 0, result.stdout.str()
    assert set(project.kinds().values()) == {"unchanged"}
    for record in project.cases().values():
        assert all("4 accepted sessions" in metric["verdict"]["reason"] for metric in record["metrics"].values())


def test_another_driver_opens_a_file_of_its_own(nights, tmp_path):
    project = nights.after(tmp_path / "project", install="driver='fake driver 2'")
    before = project.baseline_path.read_text()
    assert project.run(*COMPARED, "--npubench-accept").ret == 0
    files = {path: json.loads(path.read_text()) for path in (project.root / "baselines" / "fake").glob("*.json")}
    assert sorted(content["key"]["driver"] for content in files.values()) == ["fake driver 1", "fake driver 2"]
    assert before in {path.read_text() for path in files}
    (new,) = (content for content in files.values() if content["key"]["driver"] == "fake driver 2")
    assert {len(case["sessions"]) for case in new["cases"].values()} == {1}


def test_only_the_named_part_may_differ(nights, tmp_path):
    project = nights.after(tmp_path / "project", install="driver='fake driver 2'")
    assert project.run(*COMPARED, "--npubench-compare-across", "runtime,compiler").ret == 0
    assert set(project.kinds().values()) == {"incomparable"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda text: text[: len(text) // 2], " line "),
        (lambda text: text.replace("0.0032", "NaN", 1).replace("0.0031", "NaN", 1), "NaN"),
        (
            lambda text: text.replace('"version": 3', '"version": 99'),
            "written by format 99; this version reads 3",
        ),
        (lambda text: text.replace("0.0016", "0.0017", 1), "check"),
    ],
    ids=["truncated", "NaN", "version", "edited"],
)
def test_a_broken_file_is_an_error_with_its_path(broken, change, text):
    project, path = broken
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    result = project.run(*COMPARED)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert_refused(project, result, str(path), text)
    assert path.read_text() == changed


def test_two_files_that_claim_one_key_are_an_error(broken):
    project, path = broken
    shutil.copy(path, path.with_name("buckets-00000000.json"))
    assert_refused(project, project.run(*COMPARED), str(path), "buckets-00000000.json")


def test_a_broken_file_is_named_under_xdist_too(broken):
    project, path = broken
    path.write_text("{")
    result = project.run(*COMPARED, "-n2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    (line,) = (line for line in result.errlines if line.startswith("ERROR: "))
    assert str(path) in line
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_misspelt_folder_is_an_error_unless_the_run_may_fill_it(project):
    project.fake()
    select = ("-k", "fake and profile and bucket16", "--npubench-baselines", "nights")
    assert_refused(project, project.run(*select), str(project.root / "nights"), "No such file or directory")
    result = project.run(*select, "--npubench-accept")
    assert result.ret == 0, result.stdout.str()
    (path,) = (project.root / "nights" / "fake").glob("buckets-*.json")
    assert f"accepted 1 case into {path}" in result.outlines
    assert not (project.root / "baselines").exists()


def test_a_file_in_the_folders_place_is_an_error(project):
    project.fake()
    project.write("nights", "no folder\n")
    result = project.run("-k", "fake and profile and bucket16", "--npubench-baselines", "nights", "--npubench-accept")
    assert_refused(project, result, str(project.root / "nights"))


def test_a_throttled_run_never_enters(nights, tmp_path):
    project = nights.after(tmp_path / "project", install="throttled=float('inf')")
    result = project.run(*COMPARED, "--npubench-accept")
    assert result.ret == ExitStatus.DISTURBED
    assert set(project.kinds().values()) == {"invalid"}
    for record in project.cases().values():
        assert record["verdict"]["reason"].endswith("rounds disturbed: throttled: hw_thermal_slowdown")
        assert record["metrics"]  # shown, not judged
        assert not any("verdict" in metric for metric in record["metrics"].values())
    (line,) = (number for number, line in enumerate(result.outlines) if line.startswith("nothing accepted:"))
    named = [text.split()[:3] for text in result.outlines[line + 1 : line + 1 + len(project.kinds())]]
    assert sorted(named) == sorted([case, "is", "invalid"] for case in project.kinds())
    assert "exit status 11: others used the machine while cases were measured" in result.stdout.str()
    assert project.accepted() == nights.project.accepted()
