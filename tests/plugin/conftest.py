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


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


@pytest.fixture(scope="session")
def green(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """All cases of the small device on the host's processors, really measured, as strictly as pytest can be told."""
    project = make_project(tmp_path_factory.mktemp("green"))
    arguments = ("-k", "mini", "-W", "error", "--junitxml=junit.xml", "--benchmark-json=benchmark.json")
    return Finished(project=project, result=project.run(*arguments, "--benchmark-autosave", "--npubench-accept"))
