"""A case that becomes slower and stays so, night after night: red, then gone or accepted by a person."""

import shutil
import time

import pytest

from pytest_npubench.cli.main import main

from .project import Project

CASE = "buckets/profile/fake-mini-llama-b2-bucket32"
SLOWER = """

def changed(requests, run):
    slow = os.path.exists("slow") and len(requests) == 2 and run.segments[0].bucket == 32
    return dataclasses.replace(run, e2e_s=1.5 * run.e2e_s) if slow else run

"""
NIGHT = ("-k", "fake and profile", "--npubench-accept", "--npubench-remeasure=1")


def measure(project: Project, *options: str) -> pytest.RunResult:
    """A night in a second of its own: their names tell nights apart by when they began."""
    time.sleep(1 - time.time() % 1)
    return project.run(*NIGHT, *options)


def verdict(project: Project, metric: str = "ttft_s") -> dict:
    return project.cases()[CASE]["metrics"][metric]["verdict"]


def accepted(project: Project) -> list[str]:
    return [session["session"] for session in project.accepted()[CASE]["sessions"]]


@pytest.fixture(scope="module")
def red(nights, tmp_path_factory):
    """Three nights of the slower case behind four accepted ones, and the session of the first of them."""
    project = nights.after(tmp_path_factory.mktemp("red") / "project", SLOWER, "alter=changed")
    project.write("slow", "")
    before = accepted(project)
    for _ in range(3):
        assert measure(project).ret == 1
        assert verdict(project)["kind"] == "regressed"
    assert accepted(project) == before
    return project, project.journal().sessions[-3].id


def test_it_is_red_since_its_first_night_whoever_looks(red, tmp_path):
    project, first = red
    assert verdict(project)["since"] == first
    runners = [project.copy(tmp_path / name) for name in ("one", "other", "alone")]
    history = f"--npubench-history={tmp_path / 'history.db'}"
    assert main(["history", "upload", str(project.journal_path), "--history", str(tmp_path / "history.db")]) == 0
    for runner in runners[1:]:
        shutil.rmtree(runner.root / ".npubench")
    for runner, options in zip(runners, ((), (history,), ()), strict=True):
        assert measure(runner, *options).ret == 1
    alone = runners[2].journal().sessions[-1].id  # whose every night speaks for itself
    assert [verdict(runner)["since"] for runner in runners] == [first, first, alone]


def test_gone_is_said_once_and_its_nights_never_enter(red, tmp_path):
    project = red[0].copy(tmp_path / "project")
    (project.root / "slow").unlink()
    before, red_nights = accepted(project), [session.id for session in project.journal().sessions[-3:]]
    said = []
    for _ in range(2):
        result = measure(project)
        assert result.ret == 0, result.stdout.str()
        assert "since" not in verdict(project)
        said.append(" is gone after 3 sessions" in verdict(project)["reason"])
        assert any(f"{CASE} ttft_s: the regression of " in line for line in result.outlines) is said[-1]
    assert said == [True, False]
    assert accepted(project) == [*before, *(session.id for session in project.journal().sessions[-2:])]
    assert not set(red_nights) & set(accepted(project))


def test_a_person_accepts_it_by_name_and_its_nights_are_the_reference_at_once(red, tmp_path, monkeypatch):
    project = red[0].copy(tmp_path / "project")
    nights = [session.id for session in project.journal().sessions[-3:]]
    monkeypatch.chdir(project.root)
    named = ["--regressed", CASE, "--reason", "exact attention, issue 12"]
    assert main(["baseline", "accept", ".npubench/journal.jsonl", *named]) == 0
    assert accepted(project) == nights
    assert measure(project).ret == 0
    assert verdict(project)["kind"] in ("unchanged", "inconclusive")
    assert verdict(project)["ratio"] == pytest.approx(1, abs=0.03)
    assert accepted(project) == [*nights, project.journal().sessions[-1].id]
