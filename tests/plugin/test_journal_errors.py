"""A journal that cannot be read or written ends the run with its reason, and is left as it was."""

import pytest

from pytest_npubench.store.journal_format import sealed

FUTURE = '{"record":"session","format":"npubench-journal","version":99,"session":"s"}\n'
FULL = """
import os
import resource
from pathlib import Path


def fill_up(engine, requests):
    journal = Path(".npubench/journal.jsonl").read_bytes()
    if b'"record":"round"' in journal:
        limits = (len(journal) + 200, resource.RLIM_INFINITY)
        guard = Path(f"/proc/{os.getppid()}/stat").read_text()
        run = int(guard.rpartition(")")[2].split()[1])
        resource.prlimit(run, resource.RLIMIT_FSIZE, limits)  # it writes the journal

"""


def assert_usage_error(result: pytest.RunResult, text: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert result.errlines[0] == f"ERROR: {text}"
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize("options", [(), ("--npubench-resume",)], ids=["new", "resumed"])
def test_a_journal_of_a_later_version_is_left_alone(project, options):
    project.fake()
    project.write(".npubench/journal.jsonl", FUTURE)
    result = project.run("-k", "fake", *options)
    assert_usage_error(result, f"journal {project.journal_path}: written by format 99; this version reads 2")
    assert project.journal_path.read_text() == FUTURE


def test_a_file_that_is_no_journal_is_left_alone(project):
    project.fake()
    project.write("notes.txt", "my notes\n")
    result = project.run("-k", "fake", "--npubench-journal", "notes.txt")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"{project.root / 'notes.txt'} is not a journal" in result.errlines[0]
    assert (project.root / "notes.txt").read_text() == "my notes\n"


def test_a_damaged_line_is_said_at_the_end_of_a_green_run_that_can_use_its_own_session(project):
    project.fake()
    session = b',"started_at":"2026-11-21T13:05:00+00:00","worker":null,"host":{},"settings":{}}'
    header = sealed(FUTURE.replace("99", "2")[:-2].encode() + session, 0).decode()
    project.write(".npubench/journal.jsonl", header + '{"record":"note",\n')
    result = project.run("-k", "fake and bucket16", "--npubench-accept", "-n2", "-p", "no:benchmark")
    assert result.ret == 0, result.stdout.str()
    said = f"journal {project.journal_path} is damaged, 1 session left out: line 2 column "
    assert any(line.startswith(said) for line in result.outlines)
    assert any(line.startswith("accepted ") for line in result.outlines)
    runs = {session.run for session in project.journal().sessions}
    assert len(runs) == 1  # all workers' sessions are of one run


def test_resuming_without_a_journal_says_so_and_begins(project):
    project.fake()
    result = project.run("-k", "fake", "--npubench-resume")
    assert result.ret == 0
    assert f"nothing to resume: no journal {project.journal_path}" in result.outlines


def test_a_full_disk_is_told_before_anything_is_measured(project):
    project.fake()
    result = project.run("-k", "fake", "--npubench-journal", "/dev/full")
    text = "journal /dev/full: No space left on device after 0 records; what was written before is whole"
    assert_usage_error(result, text)


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_there_is(project):
    project.fake("on_run=fill_up")
    project.write("conftest.py", FULL + (project.root / "conftest.py").read_text())
    result = project.run("-k", "fake", "-p", "no:cacheprovider", "-W", "error")
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    (line,) = (line for line in result.outlines if "_pytest.outcomes.Exit" in line)
    assert f"journal {project.journal_path}: File too large after " in line
    assert "the run ends here, since nothing more can be recorded" in line
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert {"device", "compile", "round"} <= {record["record"] for record in project.journal().records}
    assert project.journal().torn == ()


def test_a_disk_that_fills_up_under_xdist_fails_each_case_with_the_reason(project):
    project.fake("on_run=fill_up")
    project.write("conftest.py", FULL + (project.root / "conftest.py").read_text())
    result = project.run("-k", "fake and bucket16", "-p", "no:cacheprovider", "-n2", "-p", "no:benchmark")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failed = [line for line in result.outlines if line.startswith("FAILED")]
    assert len(failed) == 2
    assert all(": File too large after " in line for line in failed)
    assert "INTERNALERROR" not in result.stdout.str()
