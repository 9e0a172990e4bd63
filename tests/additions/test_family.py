"""A device family from outside: one package with its backend, what it declares, and its hardware file."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugin.project import HARDWARE, PROFILE, SHAPES, Project

from pytest_npubench import backends
from pytest_npubench.core import families
from pytest_npubench.errors import BrokenEntryError

from .conftest import OnPath
from .third_party import distribution, fake_project, npubench, with_path

BACKEND = '''
"""Abacuses, which are fakes: their times are a table."""

from pathlib import Path

import fake_device

from pytest_npubench.core.families import Family

BACKEND = fake_device.install()
BACKEND.family = "abacus"
BACKEND.declares = Family(
    name="abacus",
    about="needs an abacus",
    classes=("npu",),
    one_process=True,
    hardware=Path(__file__).parent / "hardware",
)
'''
FILE = HARDWARE.format(
    title="Abacus of thirteen rods",
    family="abacus",
    classes=["npu"],
    match="^Fake accelerator$",
    num_devices=1,
    buckets=[16, 32, 64],
    case_error=0.1,
    mean_error=0.05,
) + "".join(
    PROFILE.format(name=name, workloads=["lengths.csv"], min_rounds=2, max_rounds=2)
    for name in ("quick", "nightly", "full")
)
FILES = {"npubench_abacus/__init__.py": BACKEND, "npubench_abacus/hardware/abacus-13.toml": FILE}
POINTS = {"pytest_npubench.backends": {"abacus": "npubench_abacus:BACKEND"}}
OWN = """
import pytest


@pytest.mark.abacus
def test_own(npubench):
    npubench(lambda: None)


@pytest.mark.npu
def test_of_any_npu(npubench):
    npubench(lambda: None)
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project that knows nothing of abacuses but a model's shape."""
    project = fake_project(tmp_path)
    project.write("conftest.py", SHAPES)
    project.write("test_own.py", OWN)
    return project


def test_a_device_family_is_one_package(project: Project, tmp_path: Path) -> None:
    outside = distribution(tmp_path / "outside", "npubench-abacus", FILES, POINTS)
    assert len({Path(name).parts[0] for name in FILES}) == 1
    env = with_path(outside)
    tests = ("test_profile.py", "test_prediction.py", "test_own.py")
    done = project.run(*tests, "-m", "abacus", "-k", "not any", "--npubench-require", "abacus,abacus-13", env=env)
    cases = project.cases()
    done.assert_outcomes(passed=len(cases))
    kinds = {case.partition("/")[0]: record["verdict"]["kind"] for case, record in cases.items()}
    assert set(kinds) == {"buckets", "own"}
    assert {record["verdict"]["kind"] for record in cases.values()} <= {"passed", "no-baseline"}
    assert {record["fingerprint"] for record in cases.values()} != {None}
    assert {record["device"] for record in cases.values()} == {"abacus:0"}
    assert "abacus: a device family of npubench-abacus" in project.run("--markers", env=env).stdout.str()
    listed = project.run("test_own.py", "-m", "npu", "--collect-only", "-q", env=env).stdout.str()
    assert "test_own.py::test_of_any_npu[abacus]" in listed
    probed = npubench(project, "probe", "abacus", path=outside)
    assert probed.returncode == 0, probed.stderr
    assert "abacus:0  Fake accelerator; hardware file abacus-13" in " ".join(probed.stdout.split(" "))
    assert "Abacus of thirteen rods" in npubench(project, "hardware", "abacus-13", path=outside).stdout


def test_a_family_that_breaks_skips_its_cases_and_says_so(project: Project, tmp_path: Path) -> None:
    broken = {**FILES, "npubench_abacus/__init__.py": "import nowhere_at_all\n"}
    outside = distribution(tmp_path / "outside", "npubench-abacus", broken, POINTS)
    project.fake()
    project.write("hw/abacus-13.toml", FILE)  # the user's own, as the package cannot say where its file is
    words = "device family 'abacus' of npubench-abacus cannot be imported: ModuleNotFoundError: No module named"
    done = project.run("test_profile.py", "-k", "bucket16 and (fake or abacus)", "-rs", env=with_path(outside))
    done.assert_outcomes(passed=1, skipped=1)
    assert f"error: {words}" in done.stdout.str()
    assert done.stdout.str().count(words) == 2
    required = project.run("test_profile.py", "--npubench-require", "abacus", env=with_path(outside))
    assert required.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-require abacus: {words}" in required.stderr.str()
    probed = npubench(project, "probe", "abacus", "cpu", path=outside)
    assert probed.returncode == 0
    assert words in probed.stdout
    assert "cpu:0" in probed.stdout


DECLARED = "from pytest_npubench.core.families import Family\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("BACKEND = 'abacus'\n", "is no backend that declares a Family of name 'abacus'"),
        ("class BACKEND:\n    family = 'abacus'\n", "is no backend that declares a Family of name 'abacus'"),
        (
            DECLARED + "class Of:\n    family = 'abacus'\n    declares = Family(name='tpu', about='')\n"
            "    probe = open = print\nBACKEND = Of()\n",
            "is no backend that declares a Family of name 'abacus'",
        ),
        ("import nowhere_at_all\n", "cannot be imported: ModuleNotFoundError"),
        ("x = 1\n", "cannot be imported: AttributeError"),
    ],
    ids=["no backend", "a class", "another name", "an import", "not there"],
)
def test_what_is_no_family(tmp_path: Path, on_path: OnPath, text: str, words: str) -> None:
    on_path(distribution(tmp_path / "outside", "npubench-abacus", {"npubench_abacus.py": text}, POINTS))
    with pytest.raises(BrokenEntryError, match=words):
        backends.backend("abacus")
    assert families.names()[-1] == "abacus"
    assert families.declared("abacus").classes == ()
    (fault,) = families.faults()
    assert words in fault
    assert backends.backend("cpu").family == "cpu"


def test_a_family_of_a_name_of_ours_is_left_out(tmp_path: Path, on_path: OnPath) -> None:
    points = {"pytest_npubench.backends": {"tpu": "npubench_abacus:BACKEND"}}
    on_path(distribution(tmp_path / "outside", "npubench-abacus", {}, points))
    assert families.names() == tuple(families.OWN)
    assert families.faults() == (
        "a second device family is called 'tpu': that of npubench-abacus, which is left out; rename it",
    )
