"""Projects to run pytest in: one for each test, and shared ones whose single run several tests look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .project import Project, make_project


@dataclass(frozen=True)
class Finished:
    """A project and its first run."""

    project: Project
    result: pytest.RunResult

    def records(self, kind: str) -> list[Mapping[str, Any]]:
        return self.project.records(kind, session=0)

    def cases(self) -> dict[str, Mapping[str, Any]]:
        return self.project.cases(session=0)


@dataclass(frozen=True)
class Nights:
    """A project whose runs were accepted one after the other, each with noise of its own, and what they returned."""

    project: Project
    results: tuple[pytest.RunResult, ...]

    def after(self, root: Path, code: str = "", install: str = "") -> Project:
        """A copy of it on the day after: conftest.py with this code, the fake installed with these arguments."""
        project = self.project.copy(root)
        project.fake(f"{NIGHT_NOISE}, {install}")
        project.in_front(code)
        return project


NIGHT_NOISE = "noise=0.002, process_noise=0.003"
COMPARED = ("-k", "fake and (profile or steps)")  # six cases, nine times


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    """Four accepted nights on the fake accelerator."""
    project = make_project(tmp_path_factory.mktemp("nights"))
    project.fake(NIGHT_NOISE)
    results = tuple(project.run(*COMPARED, "-W", "error", "--npubench-accept") for _ in range(4))
    return Nights(project=project, results=results)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def green(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """All cases of the small device on the host's processors, really measured, as strictly as pytest can be told."""
    project = make_project(tmp_path_factory.mktemp("green")).with_shipped()
    arguments = ("-k", "mini", "-W", "error", "--junitxml=junit.xml", "--benchmark-json=benchmark.json")
    files = ("--npubench-markdown=run.md", "--npubench-csv=run.csv", "--npubench-openmetrics=run.prom", "--durations=3")
    summary = project.write("summary.md", "a step before\n")
    result = project.run(
        *arguments, *files, "--benchmark-autosave", "--npubench-accept", env={"GITHUB_STEP_SUMMARY": str(summary)}
    )
    return Finished(project=project, result=result)
