"""The core alone: a copy of the checkout without the extensions, and without their entry points, as a distribution of
its own would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_npubench import suites
from pytest_npubench.core import entry_points
from pytest_npubench.suites.protocol import KINDS

from .third_party import ROOT, copy_of_the_package, distribution, fake_project, npubench, with_path

BY_NAME = tuple(name for name in suites.names() if suites.suite(name).only_by_name)
"""Suites whose folder stays: without their extension they collect nothing and say so."""
OF_EXTENSIONS = (
    *(name for name in suites.names() if ".extensions." in type(suites.suite(name)).__module__ and name not in BY_NAME),
    *(
        path.name
        for path in (ROOT / "suites").rglob("test_*.py")
        for name in entry_points.extensions("kind", KINDS)
        if f'npubench_cases("{name.partition(".")[2]}")' in path.read_text(encoding="utf-8")
    ),
)
"""Folders and files of suites/ whose suites and kinds the core does without."""


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = copy_of_the_package(tmp_path_factory.mktemp("core"))
    shutil.rmtree(folder / "pytest_npubench" / "extensions")
    shutil.copytree(ROOT / "suites", folder / "suites", ignore=lambda *_: set(OF_EXTENSIONS))
    return distribution(folder, "pytest-npubench", {}, {"pytest11": {"npubench": "pytest_npubench.plugin"}})


def collected(root: Path) -> list[str]:
    """The ids of all cases, by the package that lies there."""
    code = "import sys, pytest, pytest_npubench; print(pytest_npubench.__file__); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "suites", "--collect-only", "-q", "--rootdir=.", "-p", "no:cacheprovider"]
    environment = {**os.environ, **with_path(root)}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    where, *lines = done.stdout.splitlines()
    assert Path(where).is_relative_to(root)
    return [line for line in lines if "::" in line]


def test_all_other_cases_are_collected(core: Path) -> None:
    assert OF_EXTENSIONS
    others = [node for node in collected(ROOT) if not {*node.partition("::")[0].split("/")} & {*OF_EXTENSIONS}]
    assert len(others) > 700
    assert collected(core) == others


def test_suites_that_run_by_name_say_what_is_missing(core: Path) -> None:
    command = [sys.executable, "-m", "pytest", *(f"suites/{name}" for name in BY_NAME), "-rs", "-p", "no:cacheprovider"]
    environment = {**os.environ, **with_path(core)}
    done = subprocess.run(command, cwd=core, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert BY_NAME
    for name in BY_NAME:
        assert f"the suite {name} comes with the extension compilers, which is not here" in done.stdout, done.stderr
    assert " passed" not in done.stdout


def test_a_case_runs_to_its_verdict(core: Path, tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    done = project.run("test_profile.py", "-k", "bucket16 and fake", env=with_path(core))
    done.assert_outcomes(passed=1)
    assert [record["verdict"]["kind"] for record in project.cases().values()] == ["no-baseline"]


def test_what_names_an_extension_is_no_error(core: Path, tmp_path: Path) -> None:
    """Its sections in hardware files are nobody's, and its engines and commands are unknown."""
    project = fake_project(tmp_path)
    checked = npubench(project, "hardware", "--check", str(core / "hardware" / "cpu.toml"), path=core)
    assert "no fault found" in checked.stdout, checked.stderr
    for command in ("partition", "simulate"):
        assert npubench(project, command, "--help", path=core).returncode == 2
    refused = project.run("--npubench-engine=maxtext", "--collect-only", env=with_path(core))
    assert "want reference" in "\n".join(refused.errlines)
    probed = npubench(project, "probe", "qualcomm", path=core)
    assert "devices of qualcomm are looked for by the extension compilers, which is not here" in probed.stdout
