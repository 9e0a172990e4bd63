"""What is shipped: the wheel that comes out of the source distribution, in an environment of its own and a folder that
holds nothing of this checkout. The README's commands run there, on the fake accelerator.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plugin.conftest import COMPARED, NIGHT_NOISE
from plugin.project import FAKE, LENGTHS, Project

ROOT = Path(__file__).parent.parent
SUITES = sorted(path.relative_to(ROOT / "suites") for path in (ROOT / "suites").rglob("*.py"))
SLOW = """

def slow(requests, run):
    if len(requests) == 2 and run.segments[0].bucket == 32:
        return dataclasses.replace(run, e2e_s=1.1 * run.e2e_s)
    return run

"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as pip builds it from a source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    _build(ROOT, "sdist", folder)
    (source,) = folder.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(folder / "source", filter="data")
    (unpacked,) = (folder / "source").iterdir()
    _build(unpacked, "wheel", folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _build(root: Path, target: str, folder: Path) -> None:
    _done([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)], cwd=root)


def _done(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass(frozen=True)
class Installed:
    """The wheel in a virtual environment that finds every other package where this interpreter does."""

    environment: Path
    project: Project

    def npubench(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("npubench", *arguments)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self._run("python", "-m", "pytest", *arguments)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.environment / "bin" / program), *arguments]
        environment = self.project.environment()
        return subprocess.run(
            command, cwd=self.project.root, env=environment, capture_output=True, text=True, check=False
        )

    def cases(self) -> dict[str, Mapping[str, Any]]:
        return self.project.cases()


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    environment = folder / "venv"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    _done(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index", str(wheel)],
        ROOT,
    )
    (site,) = environment.glob("lib/python*/site-packages")
    others = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "others.pth").write_text("\n".join(others) + "\n")
    project = Project(folder / "project", has_shipped=True)
    project.write("lengths.csv", LENGTHS)
    project.write("fake_device.py", FAKE.read_text(encoding="utf-8"))
    project.fake(NIGHT_NOISE)
    return Installed(environment=environment, project=project)


def test_the_wheel_holds_the_suites_and_the_data(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert sorted(Path(name) for name in names if name.startswith("npubench_suites/")) == [
        "npubench_suites" / path for path in SUITES
    ]
    assert {f"pytest_npubench/hardware_files/{path.name}" for path in (ROOT / "hardware").glob("*.toml")} <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


@pytest.fixture(scope="session")
def nights(installed: Installed) -> list[subprocess.CompletedProcess[str]]:
    """Three accepted nights, one of them by pytest itself, and an unchanged one that is held against them."""
    compared = ("-m", "npu", *COMPARED)
    return [
        installed.npubench("run", *compared, "--npubench-accept"),
        installed.pytest("--pyargs", "npubench_suites", *compared, "--npubench-accept"),
        installed.npubench("run", "buckets", *compared, "--npubench-accept"),
        installed.npubench("run", "buckets", *compared),
    ]


@pytest.mark.soak
def test_nights_become_a_baseline_in_the_current_folder(nights, installed: Installed) -> None:
    assert [night.returncode for night in nights] == [0, 0, 0, 0], nights[-1].stdout
    assert (installed.project.root / "baselines" / "fake").is_dir()
    sessions = installed.project.journal().sessions
    assert len(sessions) == 4
    kinds = [
        {record["verdict"]["kind"] for record in session.records if record["record"] == "case"} for session in sessions
    ]
    assert kinds == [{"no-baseline"}, {"no-baseline"}, {"no-baseline"}, {"unchanged"}]


@pytest.mark.soak
def test_the_same_cases_under_the_same_names_as_in_the_checkout(nights, installed: Installed) -> None:
    from pytest_npubench.core.case import Case

    found = installed.cases()
    case = Case(
        suite="buckets",
        kind="profile",
        hardware="fake",
        family="openvino",
        model="mini-llama",
        batch_size=2,
        axes=(("bucket", 32),),
    )
    assert found[case.key]["node"] == f"npubench_suites.buckets.test_profile::test_profile[{case.id}]"
    assert {name.split("/")[1] for name in found} == {"profile", "steps"}


@pytest.mark.soak
def test_a_slower_case_is_measured_again_from_the_wheel_and_found(nights, installed: Installed, tmp_path: Path) -> None:
    after = Installed(environment=installed.environment, project=installed.project.copy(tmp_path / "after"))
    after.project.fake(f"{NIGHT_NOISE}, alter=slow")
    after.project.in_front(SLOW)
    after.project.write("engines.txt", "")
    done = after.npubench("run", "buckets", "-m", "npu", *COMPARED, "-p", "no:cacheprovider")
    assert done.returncode == 1, done.stdout + done.stderr
    verdict = after.cases()["buckets/profile/fake-mini-llama-b2-bucket32"]["verdict"]
    assert verdict["kind"] == "regressed", verdict
    assert after.project.engines().count("again") == 2
    node = after.cases()["buckets/profile/fake-mini-llama-b2-bucket32"]["node"]
    done = after.pytest("--pyargs", node, "--npubench-remeasure=0")  # as the journal has it
    assert "regressed" in done.stdout
    assert len(after.cases()) == 1


def _readme_commands(heading: str) -> list[str]:
    """The commands of the code block below a heading of the README that run the suites."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    block = section.split("```")[1]
    return [line for line in block.strip().splitlines() if line.startswith(("npubench run", "pytest"))]


@pytest.mark.parametrize("command", _readme_commands("Use it on an accelerator"))
def test_the_readmes_first_lines_on_an_accelerator_collect_there(command: str, installed: Installed) -> None:
    program, *arguments = shlex.split(command, comments=True)
    run = {"npubench": installed.npubench, "pytest": installed.pytest}[program]
    done = run(*arguments, "--collect-only", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "::test_profile[" in done.stdout


def test_a_required_device_that_is_not_there_is_pytests_own_exit_status(installed: Installed) -> None:
    done = installed.npubench("run", "server", "-m", "server", "--npubench-require", "server")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "--npubench-require server: no server: set NPUBENCH_SERVER_URL" in done.stdout + done.stderr
