"""Projects to run pytest in: one for each test, and shared ones whose single run several tests look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_npubench.plugin.settings import Settings

from .project import Finished, Project, make_project, run_until


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
    arguments = ("-k", "mini", "-W", "error", "--junitxml=junit.xml", "--benchmark-json=benchmark.json")
    files = ("--npubench-markdown=run.md", "--npubench-csv=run.csv", "--npubench-openmetrics=run.prom", "--durations=3")

    def fresh(_number: int) -> Project:
        project = make_project(tmp_path_factory.mktemp("green")).with_shipped()
        project.write("summary.md", "a step before\n")
        return project

    return run_until(
        lambda result: result.ret == 0,
        fresh,
        *(*arguments, *files, "--benchmark-autosave", "--npubench-accept"),
        env={"GITHUB_STEP_SUMMARY": "summary.md"},
    )


@pytest.fixture
def settings(pytester: pytest.Pytester) -> Callable[..., Settings]:
    """settings(*arguments, ini="", table=""): what a run with these would take."""

    def read(*arguments: str, ini: str = "", table: str = "") -> Settings:
        pytester.makefile(".toml", pyproject=table)
        pytester.makeini(f"[pytest]\n{ini}")
        return Settings.from_pytest_config(pytester.parseconfig(*arguments))

    return read
