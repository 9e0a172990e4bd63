"""The partition suite from the command line, on the real host pair and a tiny model."""

from __future__ import annotations

import pytest
from suite_folder import SuiteRun

from .split_project import SplitProject, need_two_cores

EXPERIMENTS = ("sync_cost", "npu_order", "overlap", "solver", "bucket_edges", "decoder_layer")

# test_partition_bad_input.py has a pair measured in a quick run; what still runs is found by the environment that a
# process began with, which a forked one does not show
pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> SplitProject:
    need_two_cores()
    project = SplitProject(tmp_path_factory.mktemp("split"))
    project.hardware("split", experiments=str(list(EXPERIMENTS)).replace("'", '"'), num_rounds=4)
    return project


@pytest.fixture(scope="module")
def finished(project: SplitProject) -> SuiteRun:
    """A whole run."""
    return project.run()


def test_every_case_is_measured(finished: SuiteRun) -> None:
    found = {key.split("/")[1] for key in finished.cases}
    assert found == set(EXPERIMENTS), finished.process.stdout
    for name in EXPERIMENTS:
        finished.assert_measured(f"/{name}/")


def test_each_visit_left_its_samples(finished: SuiteRun) -> None:
    (campaign,) = {record["campaign"] for record in finished.of_kind("round")}
    assert campaign == "split-tiny-split-partition"
    assert [record["round"] for record in finished.of_kind("round")] == [0, 1, 2, 3]
    assert finished.of_kind("round")[-1]["complete"]
    assert finished.of_kind("round")[-1]["failures"] == {}
    names = set(finished.of_kind("round")[0]["points"])
    assert all(set(record["points"]) == names for record in finished.of_kind("round"))
    assert {"round_trip/flag", "round_trip/pipe", "round_trip/event"} <= names
    assert all(min(values) >= 0 for record in finished.of_kind("round") for values in record["points"].values())


def test_what_the_cases_tell(finished: SuiteRun) -> None:
    """Relations that hold whatever the machine: no times."""
    (sync,) = (record for key, record in finished.cases.items() if "/sync_cost/" in key)
    assert [one["num_trips"] for one in sync["detail"]["mechanisms"]] == [400] * 3
    decided = [record for key, record in finished.cases.items() if "/solver/" in key]
    assert len(decided) == 4  # operators of different shape
    for record in decided:
        assert record["measured_s"] == record["detail"]["decided_s"] > 0
        assert record["error"] == pytest.approx(record["predicted_s"] / record["measured_s"] - 1)
        assert record["metrics"]["decided_s"]["value"] > 0
    layers = {record["detail"]["context"] for key, record in finished.cases.items() if "/decoder_layer/" in key}
    assert layers == {0, 64}
    (edges,) = (record for key, record in finished.cases.items() if "/bucket_edges/" in key)
    assert [row["tokens"] for row in edges["detail"]["lengths"]] == [16, 18, 25]


def test_a_strategy_of_one_s_own_is_measured_with_the_others(finished: SuiteRun) -> None:
    """A third of 192 rows is cut by nobody else; its output was checked before it was timed."""
    names = set(finished.of_kind("round")[0]["points"])
    assert "192x64x20/gpu0:64x0:20/20+npu64:128x0:20/64/total_s" in names


def test_nothing_runs_on(finished: SuiteRun, project: SplitProject) -> None:
    """Nor is shared memory left: it has no name, and goes with its last holder."""
    assert finished.process.returncode in (0, 1), finished.process.stderr
    assert project.processes() == []
