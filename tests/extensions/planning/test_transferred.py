"""Another device's profile as a rival: exact where two devices differ by what canaries or peaks say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from reports import journals

from pytest_npubench.core.measurement import Phase
from pytest_npubench.predictors.profile import BucketProfile, BucketTiming
from pytest_npubench.predictors.transfer import DeviceSpeed, ProfileTransfer
from pytest_npubench.suites.buckets.kinds.prediction import KIND
from pytest_npubench.suites.buckets.plan import chosen_plans
from pytest_npubench.suites.buckets.profile_samples import profile_samples
from pytest_npubench.suites.buckets.transfer import profile_transfer
from pytest_npubench.suites.hardware_files import known_folders, load_all
from pytest_npubench.suites.protocol import Choice

SPECS = load_all(known_folders())
EVEN = {"matmul": 1e-12, "copy": 1e-12, "dispatch": 1e-3}  # arithmetic and memory explain next to nothing of a step


def run_there(path, spec, canaries_s):
    """A journal of a device whose table is that of the module `journals`."""
    measurement = journals.measure(replace(journals.make_plan(), spec=spec))
    for row in measurement.measured.rounds:
        row.update({f"canary/{kernel}": (seconds,) for kernel, seconds in canaries_s.items()})
    journals.write_run(path, measurement)


def judged(path, spec, canaries_s, slower=(1.0, 1.0), monkeypatch=None):
    """The case on a device whose prefills and steps, and whose moves, take so many times what they take there."""
    plan = replace(journals.make_plan(), spec=spec, rivals=("transferred",), transfer=path and str(path))
    if monkeypatch:
        for table, factor in zip(("TTFT_S", "TBT_S", "MOVE_S"), (slower[0], *slower), strict=True):
            scaled = {bucket: factor * seconds for bucket, seconds in getattr(journals, table).items()}
            monkeypatch.setattr(journals, table, scaled)
    measurement = journals.measure(replace(plan, rivals=()))
    for row in measurement.measured.rounds:
        row.update({f"canary/{kernel}": (seconds,) for kernel, seconds in canaries_s.items()})
    case = plan.case("buckets", "prediction", (("workload", plan.size.workloads[0]),))
    names = {point.name for point in KIND.points(case, plan)}
    assert {f"canary/{kernel}" for kernel in EVEN} <= names
    return KIND.judge(case, plan, measurement.measured).detail


@pytest.mark.parametrize(
    ("there", "slow", "slower"),
    [
        ({"matmul": 1e3}, "matmul", (3.0, 1.0)),
        ({"copy": 1e3}, "copy", (3.0, 3.0)),
        ({}, "dispatch", (3.0, 1.0)),
        ({"matmul": 1e3}, "dispatch", (1.0, 1.0)),
    ],
    ids=["arithmetic binds", "memory binds", "launches bind", "launches that bind nothing"],
)
def test_what_binds_a_step_is_what_scales_it(there, slow, slower, tmp_path, monkeypatch):
    path, spec = tmp_path / "there.jsonl", SPECS["cpu"]
    there_s = {**EVEN, **there}
    run_there(path, spec, there_s)
    detail = judged(path, spec, {**there_s, slow: 3 * there_s[slow]}, slower, monkeypatch)
    rival = detail.predictors["transferred"]
    assert rival.predicted_s == pytest.approx(detail.measured_s, rel=1e-6)
    assert rival.predicted_s == pytest.approx(detail.predicted_s, rel=1e-6)
    assert (rival.cost.points, rival.cost.compile_s, rival.basis) == (0, 0.0, "from another device's profile")


def test_a_wrong_scale_is_the_rival_s_error_and_no_matter_of_the_case(tmp_path):
    path = tmp_path / "there.jsonl"
    run_there(path, SPECS["cpu"], EVEN)
    detail = judged(path, SPECS["cpu"], {**EVEN, "dispatch": 2 * EVEN["dispatch"]})
    assert detail.gate_error == pytest.approx(0, abs=1e-9)
    assert 0.9 < detail.predictors["transferred"].error < 1  # moves are copies, and copies are as fast as there


def test_without_canaries_on_both_the_peaks_of_both_files_tell(tmp_path, monkeypatch):
    """tiny-llama decodes from memory: 1.555 against 3.35 TB/s (NVIDIA's data sheets), prefill is 312 against 989.4
    TFLOP/s from some length on."""
    path, h100 = tmp_path / "there.jsonl", SPECS["nvidia-h100"]
    run_there(path, SPECS["nvidia-a100-40gb"], {})
    plan = replace(journals.make_plan(), spec=h100, rivals=("transferred",), transfer=str(path))
    samples = profile_samples(plan, journals.measure(replace(plan, rivals=())).measured, journals.BUCKETS)
    transfer, _ = profile_transfer(plan, samples)
    assert transfer.scaled_s(0.004, Phase.DECODE, 128) == pytest.approx(0.004 * 1.555 / 3.35)
    assert transfer.scaled_s(0.004, Phase.PREFILL, 512) == pytest.approx(0.004 * 312 / 989.4)


@pytest.mark.parametrize(
    ("there", "here", "reason"),
    [
        (None, {}, "no other device's profile is given; want its journal by --npubench-transfer"),
        ({}, EVEN, "neither canaries ran on both, cpu and cpu, nor do both files state peaks"),
    ],
)
def test_what_is_missing_is_the_reason(there, here, reason, tmp_path):
    path = None
    if there is not None:
        path = tmp_path / "there.jsonl"
        run_there(path, SPECS["cpu"], there)
    assert reason in judged(path, SPECS["cpu"], {**EVEN, **here}).predictors["transferred"].reason


def test_a_journal_of_another_model_names_its_campaigns(tmp_path):
    path = tmp_path / "there.jsonl"
    journals.write_run(path, journals.measure(journals.make_plan(batch_size=2)))
    reason = judged(path, SPECS["cpu"], EVEN).predictors["transferred"].reason
    assert "want rounds of one campaign that ends in -tiny-llama-b1; campaigns there: cpu-tiny-llama-b2" in reason


@pytest.mark.parametrize(
    ("options", "rivals"),
    [
        ({"transfer": "there.jsonl"}, ("transferred",)),
        ({"transfer": "there.jsonl", "predictors": ("transferred", "linear")}, ("transferred", "linear")),
        ({"predictors": ("linear",)}, ("linear",)),
    ],
)
def test_a_journal_that_is_given_is_used(options, rivals):
    plans = list(chosen_plans(SPECS["cpu"], Choice(profile="quick", options=options)))
    assert {(plan.rivals, plan.transfer) for plan in plans} == {(rivals, options.get("transfer"))}


def test_the_worked_number():
    transfer = ProfileTransfer(
        profile=BucketProfile(buckets={128: BucketTiming(ttft_s=0.01, tbt_s=0.004)}),
        there=DeviceSpeed(flop_s=1e-12, byte_s=1e-9, launch_s=1e-5),
        here=DeviceSpeed(flop_s=1e-12, byte_s=5e-10, launch_s=1e-5),
        work={(Phase.DECODE, 128): (1e6, 3e6)},
        source="by hand",
    )
    assert transfer.scaled_s(0.004, Phase.DECODE, 128) == pytest.approx(0.0025)
