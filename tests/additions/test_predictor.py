"""A rival predictor: one file and its test in this package, or one module of another distribution."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from plugin.project import Project

from pytest_npubench import predictors
from pytest_npubench.errors import BrokenEntryError

from .conftest import OnPath
from .third_party import copy_of_the_package, distribution, fake_project, npubench, with_path

MIDPOINT = '''
"""Every batch takes as long as the mean profile point."""

from statistics import fmean

from pytest_npubench.predictors.protocol import Predictor


class Constant:
    def __init__(self, seconds):
        self.seconds = seconds

    def predict(self, batch):
        return self.seconds


class Midpoint(Predictor):
    name = "midpoint"
    about = "every batch takes as long as the mean profile point"

    def fit(self, samples):
        return Constant(fmean(map(fmean, samples.samples_s.values())))


PREDICTOR = Midpoint()
'''
TEST = """
import pytest

from pytest_npubench.predictors import names, predictor
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.two_point import plan_points


def test_midpoint():
    assert "midpoint" in names()
    first, second = plan_points((64,))
    samples = ProfileSamples(samples_s={first: (1.0, 2.0), second: (4.5,)}, batch_size=1)
    assert predictor("midpoint").fit(samples).predict(()) == pytest.approx(3.0)
"""
FILES = {"pytest_npubench/predictors/midpoint.py": MIDPOINT, "tests/predictors/test_midpoint.py": TEST}
PREDICTIONS = ("test_prediction.py", "-k", "fake and test_prediction")
POINTS = {"pytest_npubench.predictors": {"midpoint": "npubench_midpoint:PREDICTOR"}}


def predicted(project: Project) -> dict[str, object]:
    """The detail of the one prediction case of the latest run."""
    (record,) = (record for case, record in project.cases().items() if case.startswith("buckets/prediction"))
    return dict(record["detail"])


def test_a_rival_predictor_is_one_file_and_its_test(tmp_path: Path) -> None:
    assert len(FILES) == 2
    copy = copy_of_the_package(tmp_path / "copy")
    for name, text in FILES.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_text(text, encoding="utf-8")
    project = fake_project(tmp_path)
    environment = project.environment(with_path(copy))
    own = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(copy / "tests")]
    assert subprocess.run(own, cwd=copy, env={**environment, "PYTEST_ADDOPTS": ""}, check=False).returncode == 0
    done = project.run(
        *PREDICTIONS, "-v", "--npubench-predictors", "all", "--npubench-report=r.html", env=with_path(copy)
    )
    done.assert_outcomes(passed=2)
    rivals = predicted(project)["predictors"]
    assert {"compiler", "linear", "midpoint"} <= set(rivals)
    assert len(set(rivals["midpoint"]["predicted_s"])) == 1
    assert rivals["midpoint"]["cost"]["points"] == rivals["linear"]["cost"]["points"] > 0
    assert rivals["midpoint"]["cost"]["binaries"] > 0
    assert done.stdout.str().index("LENS prediction error") < done.stdout.str().index("midpoint prediction error")
    assert "midpoint" in (project.root / "r.html").read_text(encoding="utf-8")
    question = ("predict", "--journal", str(project.journal_path), "--campaign", "fake-mini-llama-b2")
    answer = npubench(
        project, *question, "--input-tokens", "9", "--output-tokens", "5", "--predictor", "midpoint", path=copy
    )
    assert "midpoint" in answer.stdout, answer.stderr


def test_a_rival_of_another_distribution_that_breaks_concerns_itself_alone(tmp_path: Path) -> None:
    project = fake_project(tmp_path)
    broken = {"npubench_midpoint.py": "import nowhere_at_all\n"}
    env = with_path(distribution(tmp_path / "outside", "npubench-midpoint", broken, POINTS))
    words = "predictor 'midpoint' of npubench-midpoint cannot be imported: ModuleNotFoundError: No module named"
    done = project.run(*PREDICTIONS, "--npubench-predictors", "all", env=env)
    done.assert_outcomes(passed=2)
    rivals = predicted(project)["predictors"]
    assert rivals["midpoint"]["reason"].startswith(words)
    assert "gate_error" in rivals["linear"]
    by_name = project.run(*PREDICTIONS, "--npubench-predictors", "midpoint", env=env)
    assert by_name.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--npubench-predictors = 'midpoint': {words}" in by_name.stderr.str()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MIDPOINT, ""),
        ("PREDICTOR = 3\n", "npubench_midpoint:PREDICTOR is no Predictor of that name"),
        (MIDPOINT.replace('name = "midpoint"', 'name = "other"'), "is no Predictor of that name"),
        ("raise SystemExit\n", "cannot be imported: SystemExit"),
    ],
    ids=["right", "no predictor", "another name", "exits"],
)
def test_a_rival_of_another_distribution(tmp_path: Path, on_path: OnPath, text: str, words: str) -> None:
    on_path(distribution(tmp_path / "outside", "npubench-midpoint", {"npubench_midpoint.py": text}, POINTS))
    assert (predictors.names()[0], predictors.names()[-1]) == ("lens", "midpoint")
    if not words:
        assert predictors.predictor("midpoint").about
        return
    with pytest.raises(BrokenEntryError, match=words):
        predictors.predictor("midpoint")


def test_two_of_one_name_and_one_of_a_name_of_ours(tmp_path: Path, on_path: OnPath) -> None:
    for distributor in ("npubench-one", "npubench-two"):
        on_path(distribution(tmp_path / distributor, distributor, {"npubench_midpoint.py": MIDPOINT}, POINTS))
    with pytest.raises(BrokenEntryError, match="two predictors are called 'midpoint': those of npubench-"):
        predictors.predictor("midpoint")
    points = {"pytest_npubench.predictors": {"lens": "npubench_midpoint:PREDICTOR"}}
    on_path(distribution(tmp_path / "three", "npubench-three", {}, points))
    assert predictors.predictor("lens").name == "lens"
    assert predictors.taken() == (
        "a second predictor is called 'lens': that of npubench-three, which is left out; rename it",
    )
