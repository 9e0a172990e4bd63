"""The serving part of hardware files: the shipped ones, and every error with file, key and what is allowed."""

import re

import pytest

from pytest_npubench.campaign.serving.plan import serving_plans
from pytest_npubench.engines.moe_shapes import MOE_SHAPES
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.hardware import PROFILES, default_directory, load_all, load_hardware

SHIPPED = {name: spec for name, spec in load_all([default_directory()]).items() if spec.serving}
CPU = (default_directory() / "cpu.toml").read_text(encoding="utf-8")


def test_files_without_serving_plan_none():
    for name, spec in load_all([default_directory()]).items():
        assert bool(list(serving_plans(spec, "quick"))) is (name in SHIPPED)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_what_is_shipped_names_shapes_and_workloads_that_exist(name):
    for profile in PROFILES:
        for plan in serving_plans(SHIPPED[name], profile):
            assert plan.model in MOE_SHAPES
            assert plan.loads, f"{plan.key} has no load"
            assert plan.serving.kv_capacity_tokens >= plan.serving.max_batch_size * plan.serving.block_size_tokens


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tokens_per_iteration = 64", "tokens_per_iteration = 0", "serving.tokens_per_iteration: want a whole number"),
        ('dtype = "fp32"\nmax', 'dtype = "fp12"\nmax', "serving.dtype: want one of"),
        ("utilisation = 0.7", "utilisation = 0.7\nrate_per_s = 2", "serving.load[0].rate_per_s: want rate_per_s or"),
        ("utilisation = 0.7", "", "serving.load[0].rate_per_s: want rate_per_s or utilisation"),
        ('model = "small-moe"', 'model = "huge-moe"', "serving.load[0].model: want one of small-moe, small-dense"),
        ('"chunk_sweep", ', '"chunk_swep", ', "serving.profile.quick.experiments: unknown chunk_swep; allowed: "),
        (
            "num_requests = 8",
            "num_requests = 1",
            "serving.profile.quick.num_requests: want a whole number of at least 2",
        ),
        (
            "kv_capacity_tokens = 16384",
            "kv_capacity = 1",
            "serving.kv_capacity: unknown key, did you mean 'kv_capacity_",
        ),
    ],
)
def test_mistakes_are_named(tmp_path, old, new, words):
    path = tmp_path / "cpu.toml"
    assert old in CPU
    path.write_text(CPU.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(HardwareFileError, match=re.escape(words)) as raised:
        load_hardware(path)
    assert str(path) in str(raised.value)


def test_a_second_load_of_one_rate_is_a_mistake(tmp_path):
    path = tmp_path / "cpu.toml"
    path.write_text(
        CPU.replace('model = "small-dense"\nworkload', 'model = "small-moe"\nworkload', 1), encoding="utf-8"
    )
    with pytest.raises(HardwareFileError, match=r"serving\.load\[1\]\.workload: a second entry for small-moe"):
        load_hardware(path)
