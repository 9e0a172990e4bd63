"""The bucket suite on vLLM: LENS against closed forms on a slope and on a stair, and what is declared against what is
seen. The server is the tests' own (stand_in.py)."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from types import SimpleNamespace
from typing import ClassVar

import pytest
from campaign.conftest import cases, with_size
from made_records import judged_record

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import campaign_digest
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.vllm import bucket_service
from pytest_npubench.extensions.vllm.bucket_service import BucketServer, engine_settings, start_bucket_engine
from pytest_npubench.extensions.vllm.buckets import DeclaredBuckets
from pytest_npubench.extensions.vllm.settings import EngineSettings
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.suites import case_kind, shown
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, BucketVisit
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.result import Judgement

from .stand_in import StandInServer, make_bench, measure, points_of, slope, stair

FIRST_S, TOKEN_S, STEP_S, KV_TOKEN_S = 0.010, 0.0005, 0.002, 0.00002


@pytest.fixture
def on_vllm(plan: BucketPlan) -> BucketPlan:
    return replace(plan, engine="vllm")


def judge(plan: BucketPlan, kind: str, measured: Measured, axis: object = None) -> Judgement:
    case = next(case for case in cases(plan, kind) if not case.axes or axis in (None, case.axes[0][1]))
    return case_kind(kind).judge(case, plan, measured)


def kv_lengths(batch: BucketPoint) -> list[list[int]]:
    """Of the rows that are still decoding, at each step."""
    longest = max(item.output_tokens for item in batch.requests)
    return [
        [item.input_tokens + step for item in batch.requests if item.output_tokens > step] for step in range(1, longest)
    ]


def on_the_slope_s(batch: BucketPoint) -> float:
    """In closed form."""
    prefill_s = FIRST_S + TOKEN_S * sum(item.input_tokens for item in batch.requests)
    return prefill_s + sum(STEP_S + KV_TOKEN_S * sum(lengths) for lengths in kv_lengths(batch))


@pytest.mark.parametrize("workload", ["short", "long"])
def test_a_slope_is_predicted_exactly(on_vllm: BucketPlan, workload: str) -> None:
    measured = measure(on_vllm, slope(FIRST_S, TOKEN_S, STEP_S, KV_TOKEN_S))
    judgement = judge(on_vllm, "prediction", measured, workload)
    taken_s = [on_the_slope_s(batch) for batch in on_vllm.draws(workload)]
    assert judgement.detail.measured_s == pytest.approx(taken_s)
    assert judgement.detail.predicted_s == pytest.approx(taken_s)
    assert judgement.detail.continuous is True


def test_the_printed_equations_are_off_there(on_vllm: BucketPlan) -> None:
    """A slope is no stair."""
    plan = replace(on_vllm, rivals=("lens_without_moves",))
    measured = measure(plan, slope(FIRST_S, TOKEN_S, STEP_S, KV_TOKEN_S))
    rival = judge(plan, "prediction", measured, "long").detail.predictors["lens_without_moves"]
    assert rival.gate_error > 0.01


def test_an_engine_that_is_neither_is_over_the_same_limit(on_vllm: BucketPlan) -> None:
    """All rows as long as the longest: the limit is that of any device; the reason says what the buckets are."""
    padded = StandInServer(
        lambda prompts: 0.001 * len(prompts) * max(prompts), lambda lengths: 0.001 * len(lengths) * max(lengths)
    )
    measured = measure(on_vllm, padded)
    judgement = judge(on_vllm, "prediction", measured, "long")
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert (
        "> 10%" in judgement.verdict.reason
        or "> 10.00%" in judgement.verdict.reason
        or "> 10" in (judgement.verdict.reason)
    )
    assert judgement.verdict.reason.endswith(
        "vLLM has no buckets here: latency is continuous, so LENS takes what it measured for a slope)"
    )
    mean = judge(on_vllm, "mean_error", measured).verdict
    assert mean.kind is VerdictKind.FAILED
    assert mean.reason.endswith(
        "(vLLM has no buckets here: latency is continuous, so LENS takes what it measured for a slope)"
    )


def test_a_stair_that_is_declared_is_predicted_exactly(on_vllm: BucketPlan) -> None:
    measured = measure(on_vllm, stair(), declared=(16, 32, 64))
    for workload in ("short", "long"):
        judgement = judge(on_vllm, "prediction", measured, workload)
        assert judgement.detail.gate_error == pytest.approx(0.0, abs=1e-12)
        assert judgement.verdict.kind is VerdictKind.PASSED
        assert judgement.detail.continuous is False


def test_rows_that_ended_leave_the_batch(on_vllm: BucketPlan) -> None:
    """On the same stair the reference decoder's rule, frozen rows, would hold the bucket of a row that is gone."""
    measured = measure(on_vllm, stair(), declared=(16, 32, 64))
    kept = [
        max(item.input_tokens + min(step, item.output_tokens - 1) for item in batch.requests)
        != max(item.input_tokens + step for item in batch.requests if item.output_tokens > step)
        for batch in on_vllm.draws("long")
        for step in range(1, max(item.output_tokens for item in batch.requests))
    ]
    assert any(kept)  # the lengths of the tests do tell the two apart
    assert judge(on_vllm, "prediction", measured, "long").detail.gate_error == pytest.approx(0.0, abs=1e-12)


def test_a_profile_on_a_slope_is_told_to_be_nominal(on_vllm: BucketPlan) -> None:
    measured = measure(on_vllm, slope(FIRST_S, TOKEN_S, STEP_S, KV_TOKEN_S))
    judgement = judge(on_vllm, "profile", measured, 32)
    assert judgement.detail.ttft_s == pytest.approx((FIRST_S + TOKEN_S * 2 * 23) / 2)
    assert judgement.detail.tbt_s == pytest.approx(STEP_S + KV_TOKEN_S * 2 * 27.5)
    assert (judgement.detail.continuous, judgement.detail.declared) == (True, ())
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.verdict.reason.endswith("vLLM has no buckets here: latency is continuous, bucket 32 is nominal")
    assert [metric.name for metric in judgement.metrics] == ["ttft_s", "tbt_s"]  # nothing was compiled for a bucket


def test_nothing_is_padded_where_there_are_no_buckets(on_vllm: BucketPlan) -> None:
    continuous = judge(on_vllm, "prediction", measure(on_vllm, slope(0.01, 0.0, 0.001, 0.0)), "short")
    assert continuous.detail.prefill_padding_fraction is None
    padded = judge(on_vllm, "prediction", measure(on_vllm, stair(), declared=(16, 32, 64)), "short")
    assert padded.detail.prefill_padding_fraction > 0
    assert padded.detail.decode_padding_fraction is None


def test_no_stair_on_a_slope(on_vllm: BucketPlan) -> None:
    """From 8 to 15 tokens it is 25 % up, which is a slope; one token at a time it is 3 %."""
    measured = measure(on_vllm, slope(0.010, 0.0005, 0.002, 0.0))
    judgement = judge(on_vllm, "steps", measured, 16)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.verdict.reason == (
        "no stair found at 16; vLLM has no buckets here: latency is continuous, slope 8 to 15: x1.25"
    )
    found = judgement.detail
    assert (found.declared, found.observed, found.extra, found.missing, found.continuous) == ((), (), (), (), True)


def test_a_stair_that_nobody_declared_fails(on_vllm: BucketPlan) -> None:
    judgement = judge(on_vllm, "steps", measure(on_vllm, stair()), 16)
    assert judgement.verdict.kind is VerdictKind.FAILED
    assert judgement.verdict.reason == "a stair at 16 that vLLM does not declare: 16 to 17: x1.80"
    assert judgement.detail.extra == (16,)


def test_steps_stand_where_vllm_declares_them(on_vllm: BucketPlan) -> None:
    measured = measure(on_vllm, stair(), declared=(16, 32, 64))
    for bucket, observed in ((16, (16,)), (32, (32,)), (64, ())):
        judgement = judge(on_vllm, "steps", measured, bucket)
        assert judgement.verdict.kind is VerdictKind.PASSED
        assert (judgement.detail.observed, judgement.detail.extra) == (observed, ())
        assert bucket in judgement.detail.declared


def test_a_declared_step_that_is_not_there_is_named(on_vllm: BucketPlan) -> None:
    judgement = judge(on_vllm, "steps", measure(on_vllm, slope(0.01, 0.0, 0.0, 0.0), ("steps",), (16, 32, 64)), 16)
    assert judgement.detail.missing == (16,)
    assert judgement.verdict.reason == "flat inside 16; jump to the next bucket absent: x1.00"


def test_another_declared_set_than_the_plans(on_vllm: BucketPlan) -> None:
    """Steps are held against what vLLM declares; LENS is not profiled on buckets that are not there."""
    declared = (16, 28, 32, 64)
    server = stair()
    server.prefill_s = lambda prompts: sum(
        {16: 1.0, 28: 1.5, 32: 2.0, 64: 4.0}[_smallest(declared, n)] for n in prompts
    )
    measured = measure(on_vllm, server, declared=declared)
    judgement = judge(on_vllm, "steps", measured, 32)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.declared == (28, 32)
    assert judgement.detail.observed == (24, 32)  # between 24 and 31, and behind 32
    for kind in ("profile", "prediction", "mean_error"):
        with pytest.raises(MeasurementError, match="vLLM declares the buckets 16, 28, 32, 64, the plan has 16, 32, 64"):
            judge(on_vllm, kind, measured)


def _smallest(buckets: tuple[int, ...], tokens: int) -> int:
    return min(bucket for bucket in buckets if tokens <= bucket)


def test_canaries_run_where_vllm_does(on_vllm: BucketPlan) -> None:
    measured = measure(on_vllm, stair(), ("canary",))
    assert {kernel: judge(on_vllm, "canary", measured, kernel).measured_s for kernel in ("matmul", "copy")} == {
        "matmul": 0.002,
        "copy": 0.003,
    }
    for family, included in (("cpu", True), ("cuda", True), ("tpu", False), ("neuron", False)):
        there = replace(on_vllm, spec=replace(on_vllm.spec, family=family))
        assert there.includes("canary") is included
        assert there.includes("profile")
        assert replace(there, engine="reference").includes("canary")


def test_a_bench_ends_its_server(on_vllm: BucketPlan) -> None:
    server = stair()
    bench = make_bench(on_vllm, server)
    assert not server.is_closed
    bench.close()
    assert server.is_closed


def test_a_server_that_fails_fails_the_point(on_vllm: BucketPlan) -> None:
    server = stair()
    bench = make_bench(on_vllm, server)
    server.failed = "the vLLM process 7 was lost"
    with pytest.raises(MeasurementError, match="the vLLM process 7 was lost"):
        bench.sample(points_of(on_vllm, ("steps",))[0], 0)


def test_a_plan_of_vllm_is_another_campaign(plan: BucketPlan, on_vllm: BucketPlan) -> None:
    assert (on_vllm.key, on_vllm.framework) == (f"{plan.key}-vllm", "vllm")
    assert on_vllm.settings == {**plan.settings, "engine": "vllm"}
    assert "engine" not in plan.settings
    points = points_of(on_vllm, ("prediction",))
    assert not any(point.move for point in points)  # a paged cache never moves
    assert {*points} < {*points_of(plan, ("prediction",))}
    assert campaign_digest(on_vllm, points) != campaign_digest(plan, points)
    for kind in ("profile", "steps"):
        ids = [[case.id for case in cases(one, kind)] for one in (plan, on_vllm)]
        assert ids[0] == ids[1]


def test_the_buckets_of_a_tpu_begin_where_vllm_pads_to() -> None:
    specs = load_all([default_directory()])
    for name, beginning in (("tpu-v6e", (16, 32, 64, 128, 256)), ("trainium2", (128, 256)), ("cpu", (128, 256))):
        spec = specs[name]
        size = spec.profile("full")
        plan = BucketPlan(spec=spec, size=size, model="m", batch_size=1, case_error=0.1, mean_error=0.1, engine="vllm")
        assert plan.buckets[: len(beginning)] == beginning
        assert plan.buckets[-1] == size.buckets[-1]
        assert replace(plan, engine="reference").buckets == size.buckets
        assert plan.profile_points(plan.buckets)[0].bucket == beginning[0]


def test_room_for_a_whole_batch_of_the_longest_requests(on_vllm: BucketPlan, tmp_path) -> None:
    """64 tokens in the cache and one more that is not: 65, in blocks of 32 that is 96."""
    settings = engine_settings(on_vllm, tmp_path)
    assert (settings.longest_request, settings.kv_capacity_tokens, settings.max_batch_size) == (96, 192, 2)
    assert (settings.policy, settings.policy_settings, settings.dtype) == ("continuous", (), "fp32")
    assert (settings.model / "config.json").is_file()
    assert settings.model.parent == tmp_path / "models"
    assert engine_settings(with_size(on_vllm, buckets=(16, 31)), tmp_path).longest_request == 32


class FakeProcess:
    def __init__(self, log: list[str]) -> None:
        self._log = log

    def declared(self) -> tuple[DeclaredBuckets, ...]:
        return (
            DeclaredBuckets(kind="tokens", buckets=(16, 32, 64, 128), source="log, line 3"),
            DeclaredBuckets(kind="requests", buckets=(8, 16), source="log, line 4"),
        )

    def time_canary(self, kernel: str) -> float:
        self._log.append(kernel)
        return 0.5


class FakeProcesses:
    """Gives an engine anew each time it is asked, as VllmProcesses does for one that was lost."""

    log: ClassVar[list[str]] = []

    def __init__(self, *, most: int) -> None:
        assert most == 1

    def get(self, settings: EngineSettings) -> FakeProcess:
        assert settings.visible_devices == "3"
        self.log.append("get")
        return FakeProcess(self.log)

    def close(self) -> None:
        self.log.append("close")


def test_a_campaign_starts_one_engine_and_reads_what_it_declares(
    on_vllm: BucketPlan, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_service, "VllmProcesses", FakeProcesses)
    monkeypatch.setattr(FakeProcesses, "log", [])
    bench = BucketBench(SimpleNamespace(), on_vllm, lambda runtime, plan: start_bucket_engine(plan, tmp_path, "3"))
    assert bench._engine.declared == (16, 32, 64)  # type: ignore[attr-defined]  # 128 is beyond the plan
    assert FakeProcesses.log == ["get"]
    canaries = [point for point in points_of(on_vllm, ("canary",)) if point.kernel == "copy"]
    assert bench.load(canaries, (), lambda text: None) == {}
    assert bench.sample(canaries[0], 0) == BucketVisit(seconds=0.5)
    bench.close()
    assert FakeProcesses.log == ["get", "get", "copy", "get", "copy", "close"]
    assert isinstance(bench._engine._server, BucketServer)  # type: ignore[attr-defined]


def records_of(plan: BucketPlan, measured: Measured) -> list[dict[str, object]]:
    """Case records as the journal has them: each says which engine it is of."""
    found = []
    for name in ("profile", "steps", "prediction", "mean_error"):
        for case in cases(plan, name):
            judgement = case_kind(name).judge(case, plan, measured)
            found.append(judged_record(case, replace(judgement, engine=plan.engine)))
    return found


def test_the_summary_says_that_latency_is_continuous(on_vllm: BucketPlan) -> None:
    measured = measure(on_vllm, slope(FIRST_S, TOKEN_S, STEP_S, KV_TOKEN_S))
    errors = [judge(on_vllm, "prediction", measured, name).detail.gate_error for name in ("short", "long")]
    text = " ".join(line.strip() for line in summary_lines(records_of(on_vllm, measured), shown))
    assert (
        f"vLLM on cpu:0 has no buckets: latency is continuous; LENS's error here is {fmean(errors):.2%} "
        "(mean of 2 cases in nominal buckets; no stair found)"
    ) in text
    assert "padding waste" not in text
    declared = records_of(on_vllm, measure(on_vllm, stair(), declared=(16, 32, 64)))
    assert not any("continuous" in line for line in summary_lines(declared, shown))
