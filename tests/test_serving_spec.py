"""The serving part of hardware files: the shipped ones, and every error with file, key and what is allowed."""

import re
from dataclasses import replace

import pytest

from pytest_npubench.core.hardware import PROFILES
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.shapes import SHAPES
from pytest_npubench.errors import HardwareFileError
from pytest_npubench.suites.hardware_files import load_all, load_hardware
from pytest_npubench.suites.scheduling.plan import serving_plans
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import ServingSpec

SHIPPED = {name: spec for name, spec in load_all([default_directory()]).items() if spec.section(ServingSpec)}
CPU = (default_directory() / "cpu.toml").read_text(encoding="utf-8")
SLO = '[[slo]]\nmodel = "*"\nworkload = "*"\n{}\ntbt_s = 0.1\nsource = "ours"\n[serving]'


def test_files_without_serving_plan_none():
    for name, spec in load_all([default_directory()]).items():
        assert bool(list(serving_plans(spec, "quick"))) is (name in SHIPPED)


@pytest.mark.parametrize("name", sorted(SHIPPED))
def test_what_is_shipped_names_shapes_and_workloads_that_exist(name):
    for profile in PROFILES:
        for plan in serving_plans(SHIPPED[name], profile):
            assert plan.model in SHAPES
            assert plan.loads, f"{plan.key} has no load"
            assert plan.serving.kv_capacity_tokens >= plan.serving.max_batch_size * plan.serving.block_size_tokens


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tokens_per_iteration = 64", "tokens_per_iteration = 0", "serving.tokens_per_iteration: want a whole number"),
        ("kv_capacity_tokens = 16384", "kv_capacity_tokens = 0", "serving.kv_capacity_tokens: want a whole number"),
        ("utilisation = 0.7", "rate_per_s = -1", "serving.load[0].rate_per_s: want a finite number above 0"),
        ("[serving]", SLO.format("ttft = 10"), "slo[0].ttft: unknown key, did you mean 'ttft_s'?"),
        ("[serving]", SLO.format('ttft_s = "10 s"'), "slo[0].ttft_s: want a finite number above 0"),
        ('dtype = "fp32"\nmax', 'dtype = "fp12"\nmax', "serving.dtype: want one of"),
        ("utilisation = 0.7", "utilisation = 0.7\nrate_per_s = 2", "serving.load[0].rate_per_s: want rate_per_s or"),
        ("utilisation = 0.7", "", "serving.load[0].rate_per_s: want rate_per_s or utilisation"),
        (
            "[serving.profile.quick]",
            '[serving.step_costs]\nsmall = "cost.json"\n\n[serving.profile.quick]',
            "serving.step_costs.small: unknown key",
        ),
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
        (
            "kv_capacity_tokens = 16384",
            "kv_capacity_tokens = { small-moe = 16384 }",
            "serving.kv_capacity_tokens.small-dense: missing",
        ),
        (
            "kv_capacity_tokens = 16384",
            "kv_capacity_tokens = { small-moe = 16384, small = 1 }",
            "serving.kv_capacity_tokens.small: unknown key",
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


LOADS = """
[[serving.load]]
model = "small-dense"
workload = "layered-arxiv-div8"
utilisation = 0.5
tokens_per_iteration = 256

[[serving.load]]
model = "small-dense"
workload = "layered-arxiv-div8"
utilisation = 0.9
{second}

[serving.profile.quick]"""


def with_loads(tmp_path, second):
    path = tmp_path / "cpu.toml"
    path.write_text(CPU.replace("[serving.profile.quick]", LOADS.format(second=second), 1), encoding="utf-8")
    return load_hardware(path)


def test_a_load_may_have_its_own_work_an_iteration(tmp_path):
    spec = with_loads(tmp_path, "tokens_per_iteration = 256")
    plan = next(plan for plan in serving_plans(spec, "nightly") if plan.model == "small-dense")
    load = next(load for load in plan.loads if load.workload == "layered-arxiv-div8")
    assert plan.tokens_per_iteration(load) == 256
    assert plan.tokens_per_iteration(replace(load, tokens_per_iteration=None)) == 64
    for policy, settings in (
        ("chunked", {"chunk_size_tokens": 256, "decode_counts": False}),
        ("layered", {"tokens_per_iteration": 256, "merge_cap_tokens": 4096}),
        ("hybrid", {"tokens_per_iteration": 256, "chunk_size_tokens": 4096}),
    ):
        assert dict(served(policy, plan, load).settings) == settings


@pytest.mark.parametrize("second", ["", "tokens_per_iteration = 128"])
def test_one_workload_has_one_work_an_iteration(tmp_path, second):
    with pytest.raises(HardwareFileError, match="tokens_per_iteration: want the same in all entries for small-dense"):
        with_loads(tmp_path, second)


def test_no_work_an_iteration_is_a_mistake(tmp_path):
    with pytest.raises(HardwareFileError, match=r"serving\.load\[\d\]\.tokens_per_iteration: want a whole number"):
        with_loads(tmp_path, "tokens_per_iteration = 0")


SECOND = 'model = "small-moe"\nworkload = "layered-arxiv-div32"'


def test_a_second_load_of_one_rate_is_a_mistake(tmp_path):
    path = tmp_path / "cpu.toml"
    twice = CPU.replace('model = "small-dense"\nworkload = "layered-arxiv-div8x16"', SECOND, 1)
    path.write_text(twice, encoding="utf-8")
    with pytest.raises(HardwareFileError, match=r"serving\.load\[1\]\.workload: a second entry for small-moe"):
        load_hardware(path)


def test_each_model_may_have_a_kv_cache_of_its_own(tmp_path):
    text = (default_directory() / "cpu.toml").read_text(encoding="utf-8")
    both = "kv_capacity_tokens = { small-dense = 2048, small-moe = 4096 }"
    path = tmp_path / "thing.toml"
    path.write_text(text.replace("kv_capacity_tokens = 16384", both), encoding="utf-8")
    plans = {plan.model: plan for plan in serving_plans(load_hardware(path), "nightly")}
    assert {model: plan.serving.kv_capacity_tokens for model, plan in plans.items()} == {
        "small-moe": 4096,
        "small-dense": 2048,
    }
    assert plans["small-moe"].settings["kv_capacity_tokens"] == 4096
