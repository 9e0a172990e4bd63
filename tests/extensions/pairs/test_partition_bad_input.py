"""What a partition or offload run cannot do is said by name: before the run where possible, else by its cases alone."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from suite_folder import SuiteRun

from pytest_npubench.plugin.outcome import ExitStatus

from .split_project import SplitProject, need_two_cores


@pytest.fixture
def project(tmp_path: Path) -> SplitProject:
    return SplitProject(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decode_shares": [0.0, 0.5]}, "partition.decode_shares: want a list of one or more numbers above 0 and"),
        ({"model": "llama-9t"}, "no weight shapes of 'llama-9t'; known: llama-8b, llama-8b-div4"),
        ({"offload": '["replay"]'}, "offload.profile.quick.experiments: unknown replay; allowed: chunk_sharing, "),
    ],
    ids=["share", "model", "offload experiment"],
)
def test_a_hardware_file_with_a_mistake_is_refused_before_anything_runs(project, changes, message):
    project.hardware("split", **changes)
    project.run("partition", "offload").assert_refused(message)


NO_SPLITS = """
STRATEGY = type("Empty", (), {"name": "thirds", "is_baseline": False})()
"""


def test_a_strategy_that_is_none_concerns_the_cases_that_ask_for_it(project):
    project.hardware("split", experiments='["gpu_linear", "solver"]')
    run = project.run(plugin=NO_SPLITS)
    run.assert_measured("gpu_linear/split-tiny-split-b1-attention_q")
    assert "strategy 'thirds' of own-parts: own_parts:STRATEGY is no strategy" in run.reason("/solver/split")


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> tuple[SplitProject, SuiteRun]:
    """One run over hardware files each of which wants something that cannot be had, and one that can."""
    need_two_cores()
    project = SplitProject(tmp_path_factory.mktemp("split"))
    sync = '["sync_cost"]'
    project.hardware("split-nobody", pair="nobody", experiments=sync)
    project.hardware("split-npu", pair="openvino:NPU,GPU", experiments=sync)
    project.hardware("split-cuda", pair="cuda-host", experiments=sync)
    experiments = '["gpu_linear", "sync_cost", "solver"]'
    project.hardware("split-huge", model="huge-split", experiments=experiments, num_rounds=4)
    project.hardware(
        "split-odd",
        model="one-split",
        tile=40,
        standard_sizes=[12, 44],
        experiments='["solver", "bucket_edges"]',
        num_rounds=4,
    )
    return project, project.run()


def test_an_unknown_pair_is_named_with_those_that_are_known(together):
    assert "no pair of units 'nobody'; there are host, cuda-host" in together[1].reason("/split-nobody")


def test_openvino_without_the_device_or_the_package(together):
    ((kind, reason),) = together[1].verdicts("/split-npu")
    if kind != "invalid":
        pytest.skip("this machine has an NPU and a GPU of OpenVINO's")
    is_there = importlib.util.find_spec("openvino") is not None
    assert (": OpenVINO found " if is_there else "openvino is not installed") in reason


def test_cuda_without_a_device(together):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    assert "torch sees no CUDA device" in together[1].reason("/split-cuda")


def test_an_operator_that_shared_memory_does_not_hold_fails_alone(together):
    """Without touching the memory: it is refused when it is asked for. The profile wants it too, and then each operator
    has its own, so that the solver decides the others."""
    run = together[1]
    for part in ("gpu_linear/split-huge-huge-split-b1-ffn_down", "solver/split-huge-huge-split-b1-ffn_down-tokens20"):
        reason = run.reason(part)
        assert "takes 3,814,697.3 MiB; " in reason
        assert "of memory are free" in reason
    run.assert_measured("gpu_linear/split-huge-huge-split-b1-attention_q")
    run.assert_measured("solver/split-huge-huge-split-b1-attention_q-tokens20")
    run.assert_measured("/sync_cost/split-huge")


def test_rows_and_sizes_that_the_tile_does_not_divide(together):
    """64 rows on a tile of 40: the static unit gets 40, the other one what is left; outputs are checked."""
    run = together[1]
    run.assert_measured("/solver/split-odd")
    run.assert_measured("/bucket_edges/split-odd")
    names = {
        name
        for record in run.of_kind("round")
        if record["campaign"].startswith("split-odd")
        for name in record["points"]
    }
    assert "64x64x20/gpu0:24x0:20/20+npu24:40x0:20/44/total_s" in names


@pytest.mark.soak  # its processes are known by the environment they began with, which a forked one does not show
def test_nothing_runs_on(together):
    project, run = together
    assert run.process.returncode == ExitStatus.INVALID, run.process.stdout
    assert project.processes() == []


@pytest.mark.soak
def test_one_core_alone_makes_its_cases_invalid(project):
    need_two_cores()
    project.hardware("split", experiments='["sync_cost", "solver"]', offload='["factorial"]')
    run = project.run("partition", "offload", cores={max(os.sched_getaffinity(0))})
    for part in ("/sync_cost/", "/solver/", "/factorial/"):
        ((kind, reason),) = {(kind, reason.partition(": ")[2]) for kind, reason in run.verdicts(part)}
        assert kind == "invalid"
        assert "a pair of units needs 2 cores; this process may use 1" in reason
    assert project.processes() == []
