"""docs/architecture.md's table of additions: every row is done by a test that is there, every way in has a row."""

from __future__ import annotations

import ast
import re

import pytest
from plugin.project import Project

from pytest_npubench import engines, predictors, suites
from pytest_npubench.cli import command
from pytest_npubench.core import families
from pytest_npubench.extensions.pairs.partition import strategies
from pytest_npubench.plugin import newhooks
from pytest_npubench.serving import schedulers
from pytest_npubench.suites.protocol import KINDS

from .third_party import ROOT, fake_project

HEADING = "## Adding one thing is adding one file"
WAYS_IN = [name for name in vars(newhooks) if name.startswith("pytest_npubench_")]
REGISTRIES = (
    *(families.BACKENDS, engines.ENGINES, predictors.PREDICTORS, schedulers.SCHEDULERS, strategies.STRATEGIES),
    suites.SUITES,
)
GROUPS = [command.GROUP, KINDS, *(registry.group for registry in REGISTRIES)]


def rows() -> list[list[str]]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition(HEADING)[2]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0].strip())
def test_each_addition_is_done_by_a_test_that_is_there(row: list[str]) -> None:
    assert len(row) == 4
    path, _, name = row[-1].strip("` ").partition("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name.startswith("test_")
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_place_is_there() -> None:
    """Files and folders that the second column names, up to the part that is the addition's own name."""
    places = {place for row in rows() for place in re.findall(r"`([a-z_/]+/)[A-Z]+[./]", row[1])}
    of_pairs = "extensions/pairs/partition/strategies/"
    assert {"backends/", "predictors/", "serving/schedulers/", "suites/", of_pairs} <= places
    for place in places:
        assert (ROOT / "pytest_npubench" / place).is_dir() or (ROOT / place).is_dir()


@pytest.mark.parametrize("way", [*WAYS_IN, *GROUPS])
def test_each_hook_and_entry_point_has_a_row(way: str) -> None:
    assert any(f"`{way}`" in cell for row in rows() for cell in row)


MINE = """

def pytest_npubench_workloads():
    from pytest_npubench.workloads.trace import TraceWorkload

    return [
        TraceWorkload(
            name="mine", kind="trace", source="the test's own", note="", input_tokens=(5, 20, 9, 33),
            output_tokens=(4, 8, 6, 3), arrival_s=None, num_unusable=0,
        )
    ]
"""


def test_a_workload_and_a_shape_are_a_hook_each(tmp_path) -> None:
    """The project's own shape is that of all its cases (plugin/project.py); the workload is this test's."""
    project: Project = fake_project(tmp_path)
    project.fake(workloads=["mine"])
    conftest = project.root / "conftest.py"
    conftest.write_text(conftest.read_text(encoding="utf-8") + MINE, encoding="utf-8")
    done = project.run("test_prediction.py", "-k", "fake and mine")
    done.assert_outcomes(passed=1)
    assert set(project.cases()) == {"buckets/prediction/fake-mini-llama-b2-mine"}
