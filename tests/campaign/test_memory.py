"""What campaigns need of a device's memory: by hand, on every shipped hardware file, and which cases give way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign import memory
from pytest_npubench.campaign.memory import MemoryNeed, memory_room
from pytest_npubench.core.case import Case
from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware import PROFILES, HardwareSpec
from pytest_npubench.core.hardware_reader import default_directory, with_groups
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.buckets.memory import bucket_need, fitting_buckets
from pytest_npubench.suites.buckets.plan import BucketPlan, bucket_plans
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling import pair
from pytest_npubench.suites.scheduling.memory import campaign_need as serving_need
from pytest_npubench.suites.scheduling.plan import ServingPlan, serving_plans
from pytest_npubench.suites.scheduling.spec import ServingSpec

SPECS = with_groups(load_all([default_directory()]))
# bf16, by hand from the models' config.json: weights in bytes, and bytes of keys and values a token
MODELS = {
    "llama-3.2-1b": (2.47e9, 2 * 16 * 8 * 64 * 2),
    "mistral-7b-v0.3": (14.50e9, 2 * 32 * 8 * 128 * 2),
    "qwen3-14b": (29.54e9, 2 * 40 * 8 * 128 * 2),
    "qwen3-30b-a3b": (61.06e9, 2 * 48 * 4 * 128 * 2),
    "gpt-oss-20b": (41.82e9, 2 * 24 * 8 * 64 * 2),
    "qwen3-8b": (16.38e9, 2 * 36 * 8 * 128 * 2),
}
POSITIONS = 128 + 256 + 512 + 1024 + 2048 + 4096 + 8192


def why_not_fit(case: Case, kind: Any, plan: BucketPlan | ServingPlan, devices: Sequence[Device] = ()) -> str:
    return memory.why_not_fit(suite(case.suite).memory, case, kind, plan, devices)


def campaign_need(plan: BucketPlan | ServingPlan) -> MemoryNeed | None:
    name = "scheduling" if isinstance(plan, ServingPlan) else "buckets"
    return suite(name).memory.campaign_need(plan)


def plan_of(spec: HardwareSpec, model: str, batch_size: int, profile: str = "full") -> BucketPlan:
    return BucketPlan(
        spec=spec,
        size=spec.profile(profile),
        model=model,
        batch_size=batch_size,
        case_error=spec.case_error,
        mean_error=spec.mean_error,
    )


def plans(spec: HardwareSpec, profile: str) -> Iterator[BucketPlan | ServingPlan]:
    yield from bucket_plans(spec, profile)
    yield from serving_plans(spec, profile)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.peak.memory_bytes])
def test_every_shipped_profile_fits_its_own_device(name: str, profile: str) -> None:
    """Nine tenths of a device, weights and caches by hand: what the product adds for temporaries comes on top."""
    spec = SPECS[name]
    memory = spec.peak.memory_bytes
    assert memory is not None
    found = list(plans(spec, profile))
    assert found or spec.group_of or spec.not_run
    for plan in found:
        weights, per_token = MODELS[plan.model]
        if isinstance(plan, ServingPlan) and spec.family == "tpu":
            # the table and the head whole; four key-value heads, and 2048 hidden states of two bytes a slot
            tables, devices = 2 * 151_936 * 2048 * 2, spec.tensor_parallel
            slot = per_token / min(devices, 4) + 2048 * 2
            by_hand = (weights - tables) / devices + tables + slot * plan.serving.kv_capacity_tokens
            fraction = 0.9
        elif isinstance(plan, ServingPlan):
            by_hand, fraction = weights + per_token * plan.serving.kv_capacity_tokens, 0.95
        else:
            by_hand = (weights + per_token * plan.batch_size * sum(plan.buckets)) / spec.tensor_parallel
            fraction = 0.9
        room, need = memory_room(plan), campaign_need(plan)
        assert room is not None
        assert need is not None
        assert by_hand < fraction * memory.value / spec.devices_per_chip, plan.key
        assert need.total_bytes <= room.usable_bytes, f"{plan.key}: needs {need}, the device has {room}"
        assert need.weight_bytes + need.cache_bytes == pytest.approx(by_hand, rel=2e-3)
        assert room.usable_bytes == pytest.approx(fraction * memory.value / spec.devices_per_chip)


@pytest.mark.parametrize(
    "name", [name for name, spec in SPECS.items() if spec.section(ServingSpec) and spec.family == "cuda"]
)
def test_the_kv_caches_of_gpus_fill_what_the_weights_leave(name: str) -> None:
    for plan in serving_plans(SPECS[name], "full"):
        need, room = serving_need(plan), memory_room(plan)
        assert room is not None
        # under 3 % of the device is left over
        assert 0 <= room.usable_bytes - need.total_bytes < 0.03 * room.device_bytes, plan.key


def test_a_group_shares_out_weights_and_caches() -> None:
    spec = SPECS["tpu-v6e"]
    four = bucket_need(plan_of(spec, "qwen3-14b", 8), spec.buckets)
    one = bucket_need(plan_of(replace(spec, tensor_parallel=1), "qwen3-14b", 8), spec.buckets)
    assert four.weight_bytes == pytest.approx(29.54e9 / 4, rel=1e-3)
    assert four.cache_bytes == 2 * 40 * 2 * 128 * 2 * 8 * POSITIONS  # two of the eight heads a chip
    norms = 40 * (2 * 5120 + 2 * 128) + 5120  # whole on every chip
    assert four.weight_bytes == (one.weight_bytes - 2 * norms) / 4 + 2 * norms
    assert one.cache_bytes == 4 * four.cache_bytes
    assert one.working_bytes > four.working_bytes


def test_of_buckets_that_do_not_fit_together_the_largest_give_way() -> None:
    """7.4 GB of weights on each chip and 1.31 MB a position at batch 32: beside them 14.4 GB hold the 3,968 positions
    of the buckets up to 2048 (5.2 GB), and not the 8,064 up to 4096 (10.6 GB)."""
    plan = plan_of(SPECS["tpu-v5e"], "qwen3-14b", 32)
    room = memory_room(plan)
    assert room is not None
    assert fitting_buckets(plan, room) == (128, 256, 512, 1024, 2048)
    kind = case_kind("profile")
    reasons = {
        bucket: why_not_fit(plan.case("buckets", "profile", (("bucket", bucket),)), kind, plan)
        for bucket in plan.buckets
    }
    assert [bucket for bucket, reason in reasons.items() if not reason] == [128, 256, 512, 1024, 2048]
    assert reasons[8192] == (
        "buckets up to 8192 need 7.4 GB of weights, 21.3 GB of cache and 1.5 GB of temporaries and binaries; each of 4 "
        "devices has 14.4 GB (90% of 16.0 GB); buckets up to 2048 fit"
    )
    assert "buckets up to 4096 need 7.4 GB of weights, 10.6 GB of cache" in reasons[4096]


def test_a_model_that_does_not_fit_says_so_of_every_bucket() -> None:
    plan = plan_of(replace(SPECS["tpu-v5e"], tensor_parallel=1), "qwen3-14b", 1)
    case = plan.case("buckets", "profile", (("bucket", 128),))
    reason = why_not_fit(case, case_kind("profile"), plan)
    assert reason.startswith("buckets up to 128 need 29.5 GB of weights, 0.0 GB of cache and ")
    assert reason.endswith("; the device has 14.4 GB (90% of 16.0 GB); no bucket fits")


def test_steps_need_the_bucket_behind_their_boundary_and_predictions_all_they_touch() -> None:
    plan = plan_of(SPECS["tpu-v5e"], "qwen3-14b", 32)
    steps = case_kind("steps")
    assert not why_not_fit(plan.case("buckets", "steps", (("bucket", 1024),)), steps, plan)
    # 2049 tokens are prefilled in bucket 4096
    assert why_not_fit(plan.case("buckets", "steps", (("bucket", 2048),)), steps, plan)
    prediction, canary = case_kind("prediction"), case_kind("canary")
    long = plan.case("buckets", "prediction", (("workload", "lens-arxiv-8k"),))
    assert "buckets up to 8192 need" in why_not_fit(long, prediction, plan)
    for axes in canary.axes(plan):
        assert not why_not_fit(plan.case("buckets", "canary", axes), canary, plan)


def test_a_device_that_has_less_than_its_file_says_is_believed() -> None:
    plan = plan_of(SPECS["nvidia-h100"], "mistral-7b-v0.3", 16)
    case, kind = plan.case("buckets", "profile", (("bucket", 8192),)), case_kind("profile")

    def reason(*told: int | None) -> str:
        devices = [
            Device(family="cuda", ordinal=index, name="NVIDIA H100 80GB HBM3", memory_bytes=value)
            for index, value in enumerate(told)
        ]
        return why_not_fit(case, kind, plan, devices)

    assert reason(None) == reason(85_000_000_000) == ""
    assert "the device has 36.0 GB (90% of 40.0 GB); buckets up to 4096 fit" in reason(85_000_000_000, 40_000_000_000)


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_a_users_own_share_of_a_gpu_is_what_jax_may_take(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    plan = plan_of(SPECS["nvidia-h100"], "mistral-7b-v0.3", 16)
    case, kind = plan.case("buckets", "profile", (("bucket", 8192),)), case_kind("profile")
    gpu = (Device(family="cuda", ordinal=0, name="NVIDIA H100 80GB HBM3", memory_bytes=85_000_000_000),)
    for variable in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(variable, raising=False)
    assert why_not_fit(case, kind, plan, gpu) == ""
    monkeypatch.setenv(name, "0.45")
    assert "the device has 36.0 GB (45% of 80.0 GB); buckets up to 4096 fit" in why_not_fit(case, kind, plan, gpu)
    assert why_not_fit(case, kind, plan) == ""  # of the file alone, whoever asks
    monkeypatch.setenv(name, "half")
    assert why_not_fit(case, kind, plan, gpu) == ""


def test_a_processor_has_the_memory_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(SPECS["cpu"], "tiny-llama", 1)
    case, kind = plan.case("buckets", "profile", (("bucket", 128),)), case_kind("profile")
    host = (Device(family="cpu", ordinal=0, name="cpu"),)
    assert why_not_fit(case, kind, plan) == ""  # the file alone says nothing
    assert why_not_fit(case, kind, plan, host) == ""
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 1000}.__getitem__)
    assert "the device has 0.0 GB (90% of 0.0 GB); no bucket fits" in why_not_fit(case, kind, plan, host)


def test_a_kv_cache_that_does_not_fit_says_so_of_every_case() -> None:
    spec = SPECS["nvidia-h100"]
    (plan,) = [plan for plan in serving_plans(spec, "full") if plan.model == "qwen3-30b-a3b"]
    large = replace(plan, serving=replace(plan.serving, kv_capacity=200_000))
    kind = case_kind("policy")
    case = large.case("scheduling", "policy", next(iter(kind.axes(large))))
    assert why_not_fit(case, kind, plan) == ""
    # 200,016 tokens of 98,304 bytes
    assert why_not_fit(case, kind, large).startswith("needs 61.1 GB of weights, 19.7 GB of cache and ")
    assert why_not_fit(case, kind, large).endswith("; the device has 76.0 GB (95% of 80.0 GB)")


def test_a_figure_that_nobody_states_is_not_guessed() -> None:
    spec = SPECS["intel-core-ultra"]
    plan = plan_of(spec, "llama-3.2-1b", 1)
    assert memory_room(plan) is None
    small = Figure(value=1e9, unit="B", source="the test's own; https://example.org")
    told = plan_of(replace(spec, peak=replace(spec.peak, memory_bytes=small)), "llama-3.2-1b", 1)
    case, kind = plan.case("buckets", "profile", (("bucket", 128),)), case_kind("profile")
    assert why_not_fit(case, kind, plan) == ""
    assert "2.5 GB of weights" in why_not_fit(case, kind, told)
    assert why_not_fit(case, kind, replace(told, engine="vllm")) == ""  # vLLM sizes its own cache


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.section(ServingSpec)])
def test_no_shipped_file_plans_policies_that_its_family_refuses(name: str) -> None:
    spec = SPECS[name]
    for plan in (plan for profile in PROFILES for plan in serving_plans(spec, profile)):
        if plan.includes("disaggregated") or pair.POLICY in plan.size.policies:
            device = "cpu" if spec.family == "cpu" else f"{spec.family}:0"
            refused = ""
            try:
                pair.open_pair(plan, device)
            except DeviceUnavailableError as error:  # fewer than two processors is this machine's trouble
                refused = str(error)
            assert "want cpu" not in refused, f"{plan.key}: {refused}"
