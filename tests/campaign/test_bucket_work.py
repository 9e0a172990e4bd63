"""What the points of bucket cases did, counted by hand, and times that no device has."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from small_decoders import small_decoder

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.core.bounds import peaks_of
from pytest_npubench.core.figures import Figure, Peak
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import CacheState, CompileRecord, Move, Phase, Request, Run, Segment
from pytest_npubench.predictors.profile import BucketTiming, PointError
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.kinds.profile import KIND
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant, ran_in
from pytest_npubench.suites.buckets.work import impossible, impossible_timing, least_decode, least_prefill, work_of
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.verdict import VerdictKind

from .conftest import cases, measured

BATCH = BucketPoint(
    name="batch/short/0",
    requests=(Request(input_tokens=5, output_tokens=13), Request(input_tokens=12, output_tokens=4)),
)
"""Two prompts in bucket 16; steps with 13, 14, 15, 15 .. 15, 16 and 17 tokens of cache: 11 in bucket 16, one in 32."""
RAN = Run(
    e2e_s=0.05,
    segments=(
        Segment(phase=Phase.PREFILL, bucket=16, num_steps=2, duration_s=0.02),
        Segment(phase=Phase.DECODE, bucket=16, num_steps=11, duration_s=0.02),
        Segment(phase=Phase.DECODE, bucket=32, num_steps=1, duration_s=0.01),
    ),
    moves=(Move(from_bucket=16, to_bucket=32, duration_s=0.001),),
    num_tokens=17,
)
PARAMETERS = 128 * (2 * (128 + 64) + 3 * 256), 512 * 128  # a layer's matrices and the table, of the shape below


def rounds(runs: list[Run], points: tuple[BucketPoint, ...] = (BATCH,)) -> Measured:
    """A round for each of the runs that the engine makes, as a bench leaves it."""
    now = iter(runs)
    engine: Any = SimpleNamespace(name="stand-in", declared=(), run=lambda requests: next(now))
    bench = BucketBench(SimpleNamespace(), SimpleNamespace(), lambda *_: engine)  # type: ignore[arg-type]
    durations_s = {point.name: 9.0 for point in points}
    found = [measure_round(points, durations_s, bench.sample, seed, lambda: None) for seed in range(len(runs))]
    assert not any(failures for _, failures, _ in found)
    return Measured(rounds=[row for row, _, _ in found])


def record(name: str, flops: float | None, accessed_bytes: float | None = None) -> CompileRecord:
    found = CompileRecord(name=name, compile_s=1.0, cache=CacheState.COLD)
    return replace(found, flops=flops, accessed_bytes=accessed_bytes)


def on_device(plan: BucketPlan, flops_per_s: float) -> BucketPlan:
    figure = Figure(value=flops_per_s, unit="FLOP/s", source="the test's own")
    return replace(plan, spec=replace(plan.spec, peak=Peak(flops_per_s={"fp32": figure})))  # type: ignore[dict-item]


def test_a_visit_is_counted_as_it_ran() -> None:
    assert work_of([BATCH], rounds([RAN, RAN])) == {
        "prefills": 2,
        "decode steps": 12,
        "moves": 1,
        "tokens": 17,
        "decode-16": 11,
        "decode-32": 1,
        "move-16-32": 1,
        "prefill-16": 2,
    }


def test_equal_visits_are_on_record_once() -> None:
    first, second, third = rounds([RAN, RAN, replace(RAN, segments=RAN.segments[:2])]).rounds
    assert first["batch/short/0/ran/decode-16"] == (11,)
    assert list(second) == ["batch/short/0"]
    assert third["batch/short/0/ran/decode-32"] == (0,)
    assert ran_in([first, second, third], BATCH.name)["decode-32"] == 0


def test_an_engine_that_leaves_half_of_the_steps_out_shows_half() -> None:
    whole, half = (
        Run(e2e_s=0.1, segments=(Segment(phase=Phase.DECODE, bucket=16, num_steps=n, duration_s=0.1),), moves=())
        for n in (8, 4)
    )
    assert work_of([BATCH], rounds([half, half])) == {"decode steps": 4, "decode-16": 4}
    assert work_of([BATCH], rounds([whole, half, whole])) == {
        "decode steps": 4,
        "decode-16": 4,
    }  # in one visit of three


def test_a_disturbed_round_tells_too_what_ran() -> None:
    found = rounds([RAN, RAN])
    assert work_of([BATCH], replace(found, rounds=found.rounds[1:], disturbed_rounds=found.rounds[:1]))["tokens"] == 17


def test_flop_and_bytes_are_those_of_the_binaries_that_ran() -> None:
    found = rounds([RAN])
    found.compiles = (
        record("weights-m", 7.0, 7.0),
        record("prefill-m-b2-16", 1e6, 1e5),
        record("prefill-m-b2-32", 9e9, 9e9),
        record("decode-m-b2-16", 1e3, 10.0),
        record("decode-m-b2-32", 2e3),
        record("move-m-b2-32-16", 5.0, 5.0),
        record("move-m-b2-16-32", 0.0, 64.0),
    )
    work = work_of([BATCH], found)
    assert work["FLOP"] == 2 * 1e6 + 11 * 1e3 + 2e3
    assert "bytes" not in work  # of one binary nobody knows them


def test_points_are_added_up_and_each_engine_has_its_own_binaries() -> None:
    variant = Variant(batch_size=1, buckets=(16,))
    points = (BATCH, variant.of(BATCH))
    short = replace(RAN, segments=RAN.segments[1:2], moves=(), num_tokens=None)
    found = rounds([short, short], points[:1])
    found.rounds.append({name.replace(BATCH.name, points[1].name): own for name, own in found.rounds[0].items()})
    found.compiles = (record("decode-m-b2-16", 1e3), record("b1-16/decode-m-b1-16", 5e2))
    assert work_of([*points, BATCH], found) == {"decode steps": 22, "decode-16": 22, "FLOP": 11 * 1e3 + 11 * 5e2}


def test_no_counts_make_no_work() -> None:
    assert work_of([BATCH, object()], Measured(rounds=[{BATCH.name: (0.1,)}])) == {}


def test_the_least_work_of_a_batch_by_hand(plan: BucketPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOP, at a peak of 1 FLOP/s, of a decoder with 2 layers of 4 query heads of 32 and 2 of keys and values."""
    from pytest_npubench.engines import shapes

    shape = small_decoder("by-hand", vocab_size=512, hidden=128, head_dim=32, intermediate=256, tied_embeddings=False)
    monkeypatch.setattr(shapes, "dense_shape", lambda name: shape)
    peaks = peaks_of(on_device(plan, 1.0).spec, "fp32")
    layer, table = PARAMETERS
    prompts = least_prefill(plan, BATCH.requests, peaks).compute_s
    assert prompts == 2 * (2 * (2 * layer * 16 + table) + 2 * 16**2 * 4 * 32 * 2)  # both are padded to 16
    kv_tokens = sum(range(6, 18)) + sum(range(13, 16))  # 12 steps of the first row, 3 of the second
    steps = least_decode(plan, BATCH.requests, peaks).compute_s
    assert steps == 15 * 2 * (2 * layer + table) + 4 * 2 * 4 * 32 * kv_tokens


def test_a_clock_that_is_off_by_a_thousand_is_invalid(plan: BucketPlan) -> None:
    """Of a device of 1 GFLOP/s; tiny-llama's batch takes about 0.05 s of it."""
    plan = on_device(plan, 1e9)
    peaks = peaks_of(plan.spec, "fp32")
    least_s = (least_prefill(plan, BATCH.requests, peaks) + least_decode(plan, BATCH.requests, peaks)).seconds
    honest = rounds([replace(RAN, e2e_s=1.5 * least_s)])
    assert impossible(plan, [BATCH], honest) == ""
    wrong = rounds([replace(RAN, e2e_s=1.5 * least_s), replace(RAN, e2e_s=1.5e-3 * least_s)])
    assert impossible(plan, [BATCH], wrong).startswith(
        "faster than the device can be (0.0015 of the time that its FLOP take at 1 GFLOP/s)"
    )
    assert impossible(plan, [BATCH], wrong).endswith("(batch/short/0)")


def test_without_peaks_no_time_is_impossible(plan: BucketPlan) -> None:
    plan = replace(plan, spec=replace(plan.spec, family="openvino"))
    assert impossible(plan, [BATCH], rounds([replace(RAN, e2e_s=1e-9)])) == ""


@pytest.mark.parametrize("unknown", ["model", "dtype"])
def test_work_that_cannot_be_counted_has_no_bound(plan: BucketPlan, unknown: str) -> None:
    """Other engines have models without a shape of ours, and types that the decoder does not compute in."""
    plan = on_device(plan, 1.0)
    plan = replace(plan, model="theirs") if unknown == "model" else replace(plan, spec=replace(plan.spec, dtype="int8"))
    assert impossible(plan, [BATCH], rounds([RAN])) == ""
    assert impossible_timing(plan, BATCH.requests, BucketTiming(ttft_s=1e-9, tbt_s=1e-9)) == ""


@pytest.mark.parametrize(
    ("kernel", "least_s"),
    [("matmul", 2 * 8192**3 / 989.4e12), ("copy", (2 * 2**30 - 2**28) / 3.35e12), ("dispatch", 0.0)],
)
def test_a_canary_kernel_is_no_faster_than_one_chip(plan: BucketPlan, kernel: str, least_s: float) -> None:
    """It runs whole on each of two, so it finds a wrong figure of the file in any run."""
    h100 = load_all([default_directory()])["nvidia-h100"]
    plan = replace(plan, spec=replace(h100, tensor_parallel=2))
    point = BucketPoint(name=f"canary/{kernel}", kernel=kernel)
    assert impossible(plan, [point], Measured(rounds=[{point.name: (1.05 * least_s + 1e-9,)}])) == ""
    reason = impossible(plan, [point], Measured(rounds=[{point.name: (0.8 * least_s + 1e-12,)}]))
    assert reason.startswith("faster than the device can be (0.8 of the time") is (kernel != "dispatch")


def test_tokens_that_never_came_are_invalid_without_any_peak(plan: BucketPlan) -> None:
    assert impossible(plan, [BATCH], rounds([RAN, replace(RAN, num_tokens=9)])) == (
        "9 tokens came back where 17 were asked for: work was left out (batch/short/0)"
    )


def test_ttft_and_tbt_have_bounds_of_their_own(plan: BucketPlan) -> None:
    """A step that is too short hides in an end-to-end time that is mostly prefill."""
    case = cases(plan, "profile")[0]
    points = KIND.points(case, plan)
    found = measured(points, plan)
    plan = on_device(plan, 2e9)
    assert KIND.judge(case, plan, found).verdict.kind is VerdictKind.PASSED
    for row in found.rounds:
        row.update({point.name: (0.04 + 1e-6 * point.requests[0].output_tokens,) for point in points})
    judgement = KIND.judge(case, plan, found)
    assert impossible(plan, points, found) == ""
    assert judgement.verdict.kind is VerdictKind.INVALID
    assert judgement.verdict.reason.startswith("faster than the device can be (")
    assert judgement.verdict.reason.endswith("(TBT)")


def test_a_time_that_may_be_long_enough_is_not_invalid(plan: BucketPlan) -> None:
    plan = on_device(plan, 1e9)
    requests = [Request(input_tokens=7, output_tokens=9)] * 2
    step_s = least_decode(plan, [Request(input_tokens=7, output_tokens=2)] * 2, peaks_of(plan.spec, "fp32")).seconds

    def timing(error_s: float) -> BucketTiming:
        error = PointError(variance_s2=error_s**2, num_samples=8, ttft_weight=0.0, tbt_weight=1.0)
        return BucketTiming(ttft_s=1.0, tbt_s=step_s / 2, errors=(error,))

    assert impossible_timing(plan, requests, timing(step_s / 100)).endswith("(TBT)")
    assert impossible_timing(plan, requests, timing(step_s / 2)) == ""
