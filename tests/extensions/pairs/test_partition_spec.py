"""[partition] and [offload] of a hardware file: what is read, and every error with its place and what is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_npubench.core.hardware import PROFILES, size_of
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.extensions.pairs.partition.model_shapes import OPERATOR_SHAPES
from pytest_npubench.extensions.pairs.partition.regret import MIN_ROUNDS
from pytest_npubench.extensions.pairs.partition.units import pair_names
from pytest_npubench.extensions.pairs.partition.units.openvino import device_names
from pytest_npubench.extensions.pairs.suites.offload.bench import PAIR as OFFLOAD_PAIR
from pytest_npubench.extensions.pairs.suites.offload.plan import offload_plans
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSpec
from pytest_npubench.extensions.pairs.suites.partition.plan import partition_plans
from pytest_npubench.extensions.pairs.suites.partition.spec import PartitionSpec
from pytest_npubench.suites import suite
from pytest_npubench.suites.hardware_files import load_all, load_hardware

SHIPPED = load_all([default_directory()])

CPU = (default_directory() / "cpu.toml").read_text(encoding="utf-8").partition("[serving]")[0]
PARTITION = """
[partition]
pair = "host"
models = ["llama-8b-div4", "llama-3b-div4"]
standard_sizes = [32, 128]
tile = 32
decode_shares = [0.25, 0.5]
prefill_shares = [0.2]

[partition.profile.quick]
models = ["llama-3b-div4"]
experiments = ["solver"]
lengths = [1, 40]
min_rounds = 2
max_rounds = 3
budget_s = 5
"""
OFFLOAD = """
[offload]
pair = "host"

[offload.profile.nightly]
min_rounds = 2
max_rounds = 3
budget_s = 5
"""


def _load(tmp_path: Path, text: str):
    path = tmp_path / "mine.toml"
    path.write_text(CPU + text, encoding="utf-8")
    return load_hardware(path)


def test_what_is_read(tmp_path: Path) -> None:
    spec = _load(tmp_path, PARTITION + OFFLOAD)
    assert spec.section(PartitionSpec) is not None
    assert (spec.section(PartitionSpec).standard_sizes, spec.section(PartitionSpec).decode_shares) == (
        (32, 128),
        (0.25, 0.5),
    )
    quick = size_of(spec.section(PartitionSpec).profiles, "quick")
    assert quick is not None
    assert (quick.models, quick.experiments, quick.lengths) == (("llama-3b-div4",), ("solver",), (1, 40))
    assert size_of(spec.section(PartitionSpec).profiles, "nightly") is None
    assert spec.section(OffloadSpec) is not None
    nightly = size_of(spec.section(OffloadSpec).profiles, "nightly")
    assert nightly is not None
    assert nightly.experiments == suite("offload").kinds


def test_a_file_without_them_has_none(tmp_path: Path) -> None:
    spec = _load(tmp_path, "")
    assert (spec.section(PartitionSpec), spec.section(OffloadSpec)) == (None, None)


@pytest.mark.parametrize(
    ("old", "new", "where", "what"),
    [
        ('pair = "host"', 'pear = "host"', "partition.pear", "did you mean 'pair'"),
        ("[0.25, 0.5]", "[0.0, 0.5]", "partition.decode_shares", "above 0 and below 1"),
        ("[0.25, 0.5]", "[0.5, 1.0]", "partition.decode_shares", "above 0 and below 1"),
        ("[0.25, 0.5]", "[0.5, 0.25]", "partition.decode_shares", "larger than the one before"),
        ("[0.25, 0.5]", '["1/2"]', "partition.decode_shares", "numbers"),
        ("[32, 128]", "[]", "partition.standard_sizes", "one or more whole numbers"),
        ("tile = 32", "tile = 0", "partition.tile", "at least 1"),
        ("tile = 32", 'dtype = "w4a16"', "partition.dtype", "fp32, bf16"),
        (
            '["solver"]',
            '["solve"]',
            "partition.profile.quick.experiments",
            "unknown solve; allowed: ablation, bandwidth",
        ),
        ('models = ["llama-3b-div4"]', 'models = ["other"]', "partition.profile.quick.models", "unknown other"),
        ("lengths = [1, 40]", "lengths = [40, 1]", "partition.profile.quick.lengths", "40 is followed by 1"),
        ("min_rounds = 2", "min_rounds = 1", "partition.profile.quick.min_rounds", "at least 2"),
        ("budget_s = 5", "budget_s = 0", "partition.profile.quick.budget_s", "above 0"),
    ],
)
def test_errors_say_where_and_what_is_allowed(tmp_path: Path, old: str, new: str, where: str, what: str) -> None:
    assert old in PARTITION
    with pytest.raises(HardwareFileError) as caught:
        _load(tmp_path, PARTITION.replace(old, new))
    assert "mine.toml" in str(caught.value)
    assert where in str(caught.value)
    assert what in str(caught.value)


def test_on_cuda_the_pairs_that_can_pay_are_measured_and_the_host_is_asked_for() -> None:
    """Two streams of one device, two devices (which are a group of two), the host's cores where a run names them."""
    cards = ["h100", "h100-pcie", "h100-nvl", "h200", "h200-nvl", "gh200", "a100", "a100-40gb", "b200", "b300", "gb200"]
    for name in (f"nvidia-{card}" for card in cards):
        plans = list(partition_plans(SHIPPED[name], "nightly"))
        assert [(plan.pair, plan.spec.tensor_parallel) for plan in plans] == [("cuda-streams", 1), ("cuda-devices", 2)]
        assert {"solver", "solver_regret", "precision"} <= set(plans[0].size.experiments)
        assert {plan.matmul(operator, 1).dtype for plan in plans for operator in plan.operator_names} == {"bf16"}
        (asked,) = partition_plans(SHIPPED[name], "nightly", "cuda-host")
        assert (asked.key, asked.settings["pair"]) == (f"{name}-llama-8b-partition-cuda-host", "cuda-host")
        cases = [plan.case("partition", "solver", (("operator", "ffn_down"),)) for plan in (*plans, asked)]
        assert [dict(case.axes).get("pair") for case in cases] == [None, "cuda-devices", "cuda-host"]
        assert len({case.id for case in cases} | {plan.key for plan in (*plans, asked)}) == 6
        assert not list(partition_plans(SHIPPED[name], "nightly", "host"))
    (option,) = suite("partition").options
    assert option.read("openvino:NPU,GPU") == "openvino:NPU,GPU"
    with pytest.raises(ValueError, match="want one of host, cuda-host, cuda-streams, cuda-devices"):
        option.read("cuda-hosts")


def test_offload_takes_no_lengths(tmp_path: Path) -> None:
    with pytest.raises(HardwareFileError, match=r"offload\.profile\.nightly\.lengths: unknown key"):
        _load(tmp_path, OFFLOAD + "lengths = [1]\n")


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_what_is_shipped_names_pairs_models_and_experiments_that_exist(name: str) -> None:
    for profile in PROFILES:
        for plan in partition_plans(SHIPPED[name], profile):
            assert_pair_exists(plan.pair)
            assert plan.operator_names, plan.key
            assert set(plan.size.experiments) <= set(suite("partition").kinds)
            assert set(plan.size.models) <= set(OPERATOR_SHAPES)
            assert plan.options.standard_sizes == plan.partition.standard_sizes
            if {"solver", "solver_regret"} & set(plan.size.experiments):
                assert plan.size.max_rounds >= MIN_ROUNDS, f"{plan.key}, {profile}: no two halves of rounds"
            if "bucket_edges" in plan.size.experiments:
                assert len(plan.partition.standard_sizes) > 1, f"{plan.key}: no edge between sizes"
        for offloaded in offload_plans(SHIPPED[name], profile):
            assert offloaded.offload.pair == OFFLOAD_PAIR
            assert set(offloaded.size.experiments) <= set(suite("offload").kinds)


def test_files_without_the_tables_plan_nothing() -> None:
    for spec in SHIPPED.values():
        for profile in PROFILES:
            assert bool(list(partition_plans(spec, profile))) is bool(
                spec.section(PartitionSpec) and size_of(spec.section(PartitionSpec).profiles, profile)
            )
            assert bool(list(offload_plans(spec, profile))) is bool(
                spec.section(OffloadSpec) and size_of(spec.section(OffloadSpec).profiles, profile)
            )


def assert_pair_exists(pair: str) -> None:
    if pair not in pair_names():
        device_names(pair)  # raises where the name is none of OpenVINO's either
