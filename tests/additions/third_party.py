"""Additions as people make them: a distribution beside the installed ones, or a file in a copy of this package.

A distribution here is what pip leaves in a folder: its modules and the metadata with its entry points. The folder goes
on PYTHONPATH, so nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from plugin.project import Project, make_project

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from pytest_npubench.cli.main import main; sys.exit(main())"


def fake_project(folder: Path) -> Project:
    """A project on the fake accelerator, in a folder of its own beside what else the test makes."""
    (folder / "project").mkdir()
    project = make_project(folder / "project")
    project.fake()
    return project


def distribution(folder: Path, name: str, files: Mapping[str, str], points: Mapping[str, Mapping[str, str]]) -> Path:
    """Install `files` (path -> text) as the distribution `name`, with entry points by group; returns the folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    groups = (
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in own.items()) for group, own in points.items()
    )
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    return folder


def copy_of_the_package(folder: Path) -> Path:
    """This package and its hardware files, with byte code; put in front of the path it takes the
    installed one's place."""
    shutil.copytree(ROOT / "pytest_npubench", folder / "pytest_npubench")
    shutil.copytree(ROOT / "hardware", folder / "hardware")
    return folder


def with_path(*folders: Path) -> dict[str, str]:
    """The environment in which these folders come first."""
    # a forked process has the package imported, as it is without them
    return {"PYTHONPATH": os.pathsep.join(map(str, folders)), "NPUBENCH_TESTS_FRESH": "1"}


def npubench(project: Project, *arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    """The command, in the project's folder."""
    environment = project.environment({**with_path(path), "COLUMNS": "200"})
    command = [sys.executable, "-c", COMMAND, *arguments]
    return subprocess.run(
        command, cwd=project.root, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
