"""A whole campaign on the stand-in: graphs exported, jobs run by the unmodified client, cases judged, runs resumed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import judged_record

pytest.importorskip("onnx", reason="onnx is not installed: pip install pytest-npubench[qaihub]")

from pytest_npubench.backends import backend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import Progress
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.measurement import CacheState, Phase
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.extensions.compilers.hub.backend import AiHubRuntime
from pytest_npubench.extensions.compilers.hub.jobs import JobOptions
from pytest_npubench.extensions.compilers.hub.profile import GraphProfile
from pytest_npubench.extensions.compilers.suites.graphs.kinds.profile import GraphProfileDetail
from pytest_npubench.extensions.compilers.suites.graphs.phone_bench import GraphBench, visit
from pytest_npubench.extensions.compilers.suites.graphs.phone_lens import bucket_profile
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import GraphPoint, PhonePlan
from pytest_npubench.extensions.compilers.suites.graphs.report import lines, parts
from pytest_npubench.predictors.lens import LensPredictor
from pytest_npubench.store.fingerprint import collect_host
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.suites import suite
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Judgement

MakePlan = Callable[..., PhonePlan]


class Bed:
    """One journal and one folder of jobs; each campaign is a new process's view of them."""

    def __init__(self, folder: Path, spec: HardwareSpec, quick: Callable[..., JobOptions]) -> None:
        self.folder, self.journal, self._spec, self._quick = folder, folder / "journal.jsonl", spec, quick

    def open(self) -> tuple[Device, AiHubRuntime]:
        """Without the probing process, which test_service.py has."""
        from pytest_npubench.extensions.compilers.hub import backend as qualcomm
        from pytest_npubench.extensions.compilers.hub.service import AiHubService

        found = [qualcomm._device(n, item) for n, item in enumerate(qualcomm.choose(AiHubService().devices()))]
        device = next(item for item in found if self._spec.matches(item.name))
        runtime = backend("qualcomm").open((device,), None)
        assert isinstance(runtime, AiHubRuntime)
        return device, runtime

    def campaign(self, plan: PhonePlan, points: Sequence[Any], *, resume: bool = False, **options: Any) -> Campaign:
        device, runtime = self.open()
        return Campaign(
            plan,
            points,
            site=CampaignSite(devices=(device,), runtime=runtime, fingerprint="f"),
            make_bench=lambda runtime: GraphBench(runtime, plan, self.folder / "aihub-jobs", self._quick(**options)),
            settled=lambda measured: True,
            journal=JournalWriter.open(self.journal, host=collect_host(self.folder), settings={}),
            earlier=read_journal(self.journal) if resume else None,
            progress=Progress(),
        )


@pytest.fixture
def bed(hub: Any, tmp_path: Path, spec: HardwareSpec, quick: Callable[..., JobOptions]) -> Bed:
    return Bed(tmp_path, spec, quick)


def judged(plan: PhonePlan, kind: str, measured: Measured, **axes: Any) -> Judgement:
    """The case of these axes, whose points must have been measured."""
    used = suite("graphs").kind(kind)
    case = next(
        case
        for case in (plan.case("graphs", kind, found) for found in used.axes(plan))
        if all(case.axis(name) == value for name, value in axes.items())
    )
    assert {point.name for point in used.points(case, plan)} <= {*measured.failures, *measured.rounds[0]}
    return used.judge(case, plan, measured)


def test_a_campaign(bed: Bed, hub: Any, make_plan: MakePlan) -> None:
    plan = make_plan()
    campaign = bed.campaign(plan, plan.graph_points(plan.buckets))
    measured = campaign.measured()
    assert not measured.failures
    assert len(measured.rounds) == 1
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 4, "inference_job": 12}
    assert sum(hub.uploaded.values()) > 4 * 2 * plan.graph(plan.graph_points((8,))[0]).shape.num_parameters
    assert [record.cache for record in measured.compiles] == [CacheState.COLD] * 4

    found = judged(plan, "profile", measured, bucket=8)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason == "measured; prefill 9 of 10 layers on the NPU; decode 9 of 10 layers on the NPU"
    values = {metric.name: metric.value for metric in found.metrics}
    assert values == pytest.approx(
        {
            "ttft_s": 82e-6,
            "tbt_s": 510e-6,
            "ttft_gpu_s": 162e-6,
            "tbt_gpu_s": 1018e-6,
            "ttft_cpu_s": 402e-6,
            "tbt_cpu_s": 2542e-6,
        }
    )
    assert all(len(metric.samples) == 20 for metric in found.metrics)
    units: Any = found.detail.units
    assert units["gpu"]["decode"].layers == {"npu": 0, "gpu": 9, "cpu": 1}
    assert units["npu"]["prefill"].layer_s == pytest.approx({"npu": 63e-6, "gpu": 0, "cpu": 11e-6})
    assert units["npu"]["prefill"].peak_bytes == 123_456_789

    reports = [json.loads(path.read_text()) for path in (bed.folder / "aihub-jobs" / "reports").iterdir()]
    assert len(reports) == 12
    assert all(report["stand_in"] and len(report["layers"]) == 10 for report in reports)


def test_a_stand_in_is_barred_from_baselines(bed: Bed, make_plan: MakePlan) -> None:
    """Nothing of it is compared or accepted: every metric says so, and so does what is journalled."""
    plan = make_plan(units=("npu",))
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    for kind in ("profile", "steps"):
        found = judged(plan, kind, measured, bucket=8)
        assert {metric.gate for metric in found.metrics} == {"none"}
    rounds = [record for record in read_journal(bed.journal).records if record["record"] == "round"]
    assert rounds[0]["points"]["graph/prefill/8/npu/stand_in"] == [1.0]
    real = {name: values for name, values in measured.rounds[0].items() if not name.endswith("stand_in")}
    found = judged(plan, "profile", replace(measured, rounds=[real]), bucket=8)
    assert {metric.gate for metric in found.metrics} == {"ratio"}


def test_what_graphs_tell_is_read_back_and_shown(bed: Bed, make_plan: MakePlan) -> None:
    """Judged, written as text, read, shown: a record of graphs is of the classes that a report knows."""
    plan = make_plan()
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    judged_kinds = map(suite("graphs").kind, plan.kinds)
    planned = [(kind, plan.case("graphs", kind.name, axes)) for kind in judged_kinds for axes in kind.axes(plan)]
    cases = Cases.read([judged_record(case, kind.judge(case, plan, measured)) for kind, case in planned])
    profiles = cases.of("profile", GraphProfileDetail)
    assert {case.detail.bucket: case.detail.ttft_s for case in profiles} == pytest.approx({8: 82e-6, 16: 162e-6})
    assert all(case.detail.units["npu"]["decode"].layers["npu"] == 9 for case in profiles)
    charts, tables, remarks = parts(cases, ())
    assert [chart.title for chart in charts] == ["TTFT_b by bucket", "TBT_b by bucket", "Latency steps by length"]
    assert [row[:2] for row in charts[0].table.rows] == [("8", "0.082"), ("16", "0.162")]
    assert (any(tables), remarks, cases.unread) == (False, (), [])
    assert lines(cases) == []


def test_steps(bed: Bed, make_plan: MakePlan) -> None:
    plan = make_plan(units=("npu",))
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    found = judged(plan, "steps", measured, bucket=8)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason == "one graph for every length of bucket 8; jump to the next bucket observed: x1.98"
    assert found.detail.lengths_s == pytest.approx({"8": 82e-6, "16": 162e-6})
    assert judged(plan, "steps", measured, bucket=16).verdict.reason.endswith("bucket 16, the largest")


def test_lens_from_graphs(bed: Bed, make_plan: MakePlan) -> None:
    """TTFT_b and TBT_b are the means of the two graphs; the prediction is LENS over them, held against nothing."""
    plan = make_plan(units=("npu",), buckets=(128, 2048))
    times = {128: (1.0, 0.1), 2048: (9.0, 0.4)}
    rounds = {
        GraphPoint(phase=phase, bucket=bucket, unit="npu").name: (value * 0.9, value * 1.1)
        for bucket, pair in times.items()
        for phase, value in zip((Phase.PREFILL, Phase.DECODE), pair, strict=True)
    }
    measured = Measured(rounds=[rounds])
    profile = bucket_profile(plan, measured, plan.buckets, "npu")
    assert {b: (t.ttft_s, t.tbt_s) for b, t in profile.buckets.items()} == {
        b: pytest.approx(pair) for b, pair in times.items()
    }
    assert profile.buckets[128].ttft_error_s == pytest.approx(0.1)  # s = 0.1414 of 2 samples, over the root of 2
    assert LensPredictor(profile).predict(100, 60).e2e_s == pytest.approx(1 + 28 * 0.1 + 31 * 0.4)
    found = judged(plan, "prediction", measured, workload="lens-sharegpt")
    requests = [batch.requests[0] for batch in plan.batches("lens-sharegpt")]
    want = sum(LensPredictor(profile).predict(item.input_tokens, item.output_tokens).e2e_s for item in requests)
    assert found.predicted_s == pytest.approx(want)
    assert (found.measured_s, found.error, found.metrics) == (None, None, ())
    assert found.verdict.kind is VerdictKind.INCONCLUSIVE
    assert found.verdict.reason.startswith("no end-to-end run on AI Hub")


def test_a_failed_unit_leaves_the_npu_alone(bed: Bed, hub: Any, make_plan: MakePlan) -> None:
    plan = make_plan()
    hub.script.failing["b1-8-gpu"] = "GPU delegate refused"
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    found = judged(plan, "profile", measured, bucket=8)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason.endswith("gpu not measured")
    failed: Any = found.detail.failed_units
    assert "failed: GPU delegate refused" in failed["gpu"]
    assert {metric.name for metric in found.metrics} == {"ttft_s", "tbt_s", "ttft_cpu_s", "tbt_cpu_s"}


def test_a_failed_compile_is_that_of_its_graph(bed: Bed, hub: Any, make_plan: MakePlan) -> None:
    plan = make_plan()
    hub.script.failing["decode-tiny-llama-b1-16"] = "unsupported op"
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    assert set(measured.failures) == {f"graph/decode/16/{unit}" for unit in ("npu", "gpu", "cpu")}
    assert judged(plan, "profile", measured, bucket=8).verdict.kind is VerdictKind.PASSED
    with pytest.raises(MeasurementError, match=r"compiling decode-tiny-llama-b1-16: job j\d failed: unsupported op"):
        judged(plan, "profile", measured, bucket=16)


def test_no_service_after_the_probe(bed: Bed, hub: Any, make_plan: MakePlan) -> None:
    """Every point fails with the reason; nothing hangs."""
    plan = make_plan(units=("npu",))
    campaign = bed.campaign(plan, plan.graph_points(plan.buckets))
    hub.script.expired = True
    measured = campaign.measured()
    assert len(measured.failures) == 4
    assert all("refused the token" in reason for reason in measured.failures.values())


class Killed(BaseException):
    """What a kill looks like from inside: nothing catches it."""


def test_killed_while_waiting_and_resumed(
    bed: Bed, hub: Any, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three of four results were in when the run died. All jobs are taken up again, whether it is resumed or not."""
    plan = make_plan(units=("npu",))
    points = plan.graph_points(plan.buckets)
    inner, seen = GraphBench.sample, []

    def dying(self: GraphBench, point: GraphPoint, round_index: int) -> Any:
        seen.append(point)
        if len(seen) == 4:
            raise Killed
        return inner(self, point, round_index)

    with monkeypatch.context() as patch:
        patch.setattr(GraphBench, "sample", dying)
        with pytest.raises(Killed):
            bed.campaign(plan, points).measured()
    num_jobs = len(hub.jobs)
    assert num_jobs == 8
    measured = bed.campaign(plan, points, resume=True).measured()
    assert not measured.failures
    assert len(hub.jobs) == num_jobs
    assert {record.cache for record in measured.compiles} == {CacheState.WARM}
    bed.campaign(plan, points, resume=True).measured()  # the round is in the journal
    assert len(hub.jobs) == num_jobs
    bed.campaign(plan, points).measured()  # a new session: old samples would not be new ones
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 4, "inference_job": 8}


def test_a_hung_job_is_taken_up_by_the_next_run(bed: Bed, hub: Any, make_plan: MakePlan) -> None:
    plan = make_plan(units=("npu",))
    points = plan.graph_points(plan.buckets)
    hub.script.hanging.add("decode-tiny-llama-b1-8-npu")
    hub.script.polls = 0  # the others are done when first asked for, also after the wait for the one that hangs
    measured = bed.campaign(plan, points, timeout_s=1.0).measured()
    assert list(measured.failures) == ["graph/decode/8/npu"]
    assert "a later run takes it up again" in measured.failures["graph/decode/8/npu"]
    hub.script.hanging.clear()
    again = bed.campaign(plan, points, resume=True).measured()
    assert not again.failures
    assert len(again.rounds) == 2
    assert all(len(again.samples(point.name).samples_s) == 20 for point in points)
    assert Counter(job.kind for job in hub.jobs.values()) == {"compile_job": 4, "inference_job": 4}


def test_without_onnx(bed: Bed, make_plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "onnx",
        "pytest_npubench.extensions.compilers.hub.decoder",
        "pytest_npubench.extensions.compilers.hub.onnx_file",
    ):
        monkeypatch.setitem(sys.modules, name, None)
    plan = make_plan(units=("npu",))
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    assert len(measured.failures) == 4
    assert all("pip install pytest-npubench[qaihub]" in reason for reason in measured.failures.values())


def test_wrong_dtype_fails_by_itself(bed: Bed, make_plan: MakePlan, spec: HardwareSpec) -> None:
    plan = make_plan(spec=replace(spec, dtype="int8"))
    measured = bed.campaign(plan, plan.graph_points(plan.buckets)).measured()
    assert "dtype 'int8': AI Hub graphs are exported in fp32 or fp16" in measured.failures["graph/prefill/8/npu"]


def test_other_runtimes_are_refused(make_plan: MakePlan, tmp_path: Path) -> None:
    runtime: Any = object()
    with pytest.raises(DeviceUnavailableError, match="on Qualcomm AI Hub alone"):
        GraphBench(runtime, make_plan(), tmp_path)


def test_only_what_is_known_is_journalled() -> None:
    bare = GraphProfile(
        times_s=(1.0, 2.0),
        first_load_s=None,
        warm_load_s=None,
        compile_s=None,
        peak_memory_bytes=None,
        layers=(),
        tool_versions=(),
    )
    assert visit(bare, stand_in=False).columns() == {"": (1.0, 2.0)}


def test_plans(make_plan: MakePlan, spec: HardwareSpec) -> None:
    """The batch is the decode graph's alone, and units are part of what is measured."""
    plan = make_plan(batch_size=4)
    prefill, decode = (plan.graph(GraphPoint(phase=phase, bucket=8, unit="npu")) for phase in Phase)
    assert (prefill.batch_size, decode.batch_size, decode.dtype) == (1, 4, "fp16")
    assert (plan.size.min_rounds, plan.size.max_rounds) == (1, 1)
    assert plan.settings != replace(plan, units=("npu",)).settings
