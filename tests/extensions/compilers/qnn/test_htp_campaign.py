"""A campaign of graphs in real processes, with a stand-in of the compiler: nothing here is Qualcomm's.

What the stand-in answers follows from the request by closed forms, so that verdicts and sums are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines import engine
from pytest_npubench.errors import CompileRefusedError, ConfigError
from pytest_npubench.extensions.compilers import compiled
from pytest_npubench.extensions.compilers.compiled.runtime import PackageRuntime
from pytest_npubench.extensions.compilers.qnn import compiler
from pytest_npubench.extensions.compilers.qnn.facts import GraphFacts, GraphRequest, Part
from pytest_npubench.extensions.compilers.suites.compiler_bench import SHARE
from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan, HtpPoint, HtpVisit
from pytest_npubench.processes.child import Child, hosted
from pytest_npubench.suites import hardware_files, suite
from pytest_npubench.suites.protocol import Choice, Site
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.observations import Rule

MB = 1e6


class StandIn:
    """In the compiler's place, in a process of its own; what it does wrong its topology says. A layer's weights are 100
    MB, a prefill graph has 1 MB and 10 kB a token beside them, a decode graph 1 MB; attention alone has no weights."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.what, self.memory_bytes = str(arguments["topology"]), arguments["memory_bytes"]

    def facts(self, request: GraphRequest, num_devices: int) -> tuple[str, GraphFacts]:
        assert num_devices == 1
        is_prefill = request.phase is Phase.PREFILL
        if request.part is Part.WHOLE:
            raise ConfigError(f"needs about 15 GB of this machine, and may take {self.memory_bytes}")
        if "sinh" in self.what and is_prefill and request.bucket == 512:
            raise CompileRefusedError("layer of prefill-512 does not compile for it: the NPU does not take Sinh (n1)")
        if "dies" in self.what and request.bucket == 256 and is_prefill and request.part is Part.LAYER:
            os._exit(7)
        if request.part is Part.PRODUCT:
            return "", GraphFacts(
                context_bytes=50 * MB,
                num_contexts=1,
                weight_bytes=50 * MB,
                compile_cpu_s=1.0,
                fp16_context_bytes=100 * MB,
                fp16_error=0.0004,
                max_min_error=0.126,
                clip_error=0.86,
                shadow_error=0.86 if "unshadowed" in self.what else 0.01,
                levels_off=2.0 if "inexact" in self.what else 1.0,
            )
        is_answers = request.part is Part.ANSWERS
        weights = {Part.HEAD: 500 * MB, Part.ATTENTION: 0}.get(request.part, 100 * MB)
        beside = 0.0 if request.part is Part.HEAD else 1 * MB + is_prefill * 0.01 * MB * request.bucket
        return "", GraphFacts(
            context_bytes=weights + beside,
            num_contexts=2 if is_answers or ("split" in self.what and is_prefill) else 1,
            weight_bytes=weights,
            compile_cpu_s=0.02 * request.bucket,
            answer_error=(0.2 if "mask" in self.what else 0.003) if is_answers else None,
        )


def stand_in(topology: str, memory_bytes: int) -> Child:
    arguments = {"topology": topology, "memory_bytes": memory_bytes}
    return hosted(f"{__name__}:StandIn", arguments, name=f"the compiler for {topology}")


def plan_of(**changes: Any) -> HtpPlan:
    spec = replace(hardware_files.load_all(hardware_files.known_folders())["snapdragon-8-gen3"], **changes)
    (plan,) = [one for one in suite("graphs").plans(spec, Choice()) if isinstance(one, HtpPlan)]
    return plan


@pytest.fixture
def plan() -> HtpPlan:
    return plan_of()


Measure = Callable[..., Measured]


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """All graphs of the plan, by the stand-in, in the bench."""

    def run(plan: HtpPlan, topology: str = "soc57-v75", stage: Callable[[str], object] = lambda _: None) -> Measured:
        device = Device(family="qualcomm", ordinal=0, name="SM8650", uuid=f"compiler:{topology}:0")
        runtime = PackageRuntime(object(), (device,), "onnxruntime-qnn")  # type: ignore[arg-type]  # no backend is asked
        answers = (plan.answers(bucket) for bucket in plan.buckets)
        chunks = dict.fromkeys(point for bucket in plan.buckets for point in plan.chunks(bucket))
        products = (point for bucket in plan.buckets for point in plan.products(bucket))
        points = (*plan.layers(plan.buckets), plan.head, plan.whole, *answers, *chunks, *products)
        with patch.object(compiler, "htp_process", stand_in):
            bench = suite("graphs").bench(runtime, plan, Site(folder=tmp_path))
            failures = bench.load(points, (), stage)
        measured = Measured()
        measured.failures.update(failures)
        row: dict[str, tuple[float, ...]] = {}
        for point in points:
            if point.name not in failures:
                for column, values in bench.sample(point, 0).columns().items():
                    row[f"{point.name}/{column}"] = tuple(values)
        measured.rounds.append(row)
        return measured

    return run


def judged(plan: HtpPlan, measured: Measured, kind: str, **axes: Any) -> Any:
    found = suite("graphs").kind(kind)
    (chosen,) = [one for one in found.axes(plan) if dict(one) == axes]
    return found.judge(plan.case("graphs", kind, chosen), plan, measured)


def test_a_bucket_passes_with_what_it_needs(plan: HtpPlan, measure: Measure) -> None:
    """16 layers of 100 MB; beside them 2 + 0.01 x bucket MB a layer and bucket; head 500 MB; table 128,256 x 2048 x 2;
    a token's keys and values 16 x 2 x 512 x 2 bytes."""
    found = judged(plan, measure(plan), "layers", bucket=256)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    beside = 16 * (2 + 1.28 + 2 + 2.56) * MB
    assert found.detail.need_bytes == pytest.approx(
        1600 * MB + beside + 500 * MB + 128_256 * 2048 * 2 + 384 * 16 * 2 * 512 * 2
    )
    exact = {metric.name: metric.value for metric in found.metrics if metric.gate == "exact"}
    assert exact["prefill_context_bytes"] == pytest.approx(103.56 * MB)
    assert found.verdict.reason.startswith("compiled, not run: ")
    assert found.error is None
    assert found.predicted_s is found.measured_s is None


def test_more_than_the_devices_memory_fails(measure: Measure) -> None:
    source = hardware_files.load_all(hardware_files.known_folders())["tpu-v5e"].peak.memory_bytes
    assert source is not None
    small = plan_of(peak=replace(plan_of().spec.peak, memory_bytes=replace(source, value=2.75e9)))
    measured = measure(small)
    kinds = [judged(small, measured, "layers", bucket=bucket).verdict.kind for bucket in small.buckets]
    assert kinds == [VerdictKind.PASSED, VerdictKind.FAILED, VerdictKind.FAILED, VerdictKind.FAILED]


def test_an_operator_that_the_npu_does_not_take_fails_its_cases_alone(plan: HtpPlan, measure: Measure) -> None:
    measured = measure(plan, "sinh")
    assert judged(plan, measured, "layers", bucket=256).verdict.kind is VerdictKind.PASSED
    for kind in ("layers", "making"):
        found = judged(plan, measured, kind, bucket=512)
        assert found.verdict.kind is VerdictKind.FAILED
        assert "the NPU does not take Sinh (n1)" in found.verdict.reason


def test_how_exact_answers_are_is_held_against_what_was_accepted(plan: HtpPlan, measure: Measure) -> None:
    (error,) = (one for one in judged(plan, measure(plan), "layers", bucket=128).metrics if one.name == "answer_error")
    assert (error.value, error.gate) == (0.003, "accuracy")


def test_wrong_answers_fail(plan: HtpPlan, measure: Measure) -> None:
    found = judged(plan, measure(plan, "mask"), "layers", bucket=128)
    assert found.verdict.kind is VerdictKind.FAILED
    assert "the emulated NPU's answers are off by 0.2, more than 0.0078" in found.verdict.reason


def test_a_graph_that_is_split_fails(plan: HtpPlan, measure: Measure) -> None:
    measured = measure(plan, "split")
    for kind, axes in (("layers", {"bucket": 128}), ("batches", {"workload": plan.size.workloads[0]})):
        found = judged(plan, measured, kind, **axes)
        assert found.verdict.kind is VerdictKind.FAILED
        assert "layer/prefill/128 is 2 context binaries" in found.verdict.reason


def test_a_compiler_that_dies_takes_its_graph_along_and_no_other(plan: HtpPlan, measure: Measure) -> None:
    measured = measure(plan, "dies")
    assert sorted(measured.failures) == ["binary/layer/prefill/256", "binary/whole/decode/1024"]
    with pytest.raises(Exception, match="was lost"):  # no verdict of the compiler's: the case is invalid
        judged(plan, measured, "layers", bucket=512)
    assert judged(plan, measured, "layers", bucket=128).verdict.kind is VerdictKind.PASSED


def test_a_machine_that_is_too_small_for_the_whole_says_so_and_passes(plan: HtpPlan, measure: Measure) -> None:
    found = judged(plan, measure(plan), "layers", bucket=1024)
    assert found.verdict.kind is VerdictKind.PASSED
    assert "needs about 15 GB of this machine" in found.detail.whole


def test_the_whole_decoder_is_compiled_last_with_the_memory_of_all_processes(plan: HtpPlan, measure: Measure) -> None:
    all_bytes = int(SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    said: list[str] = []
    measured = measure(plan, stage=said.append)
    assert measured.failures[plan.whole.name].endswith(f"and may take {all_bytes}")
    assert [line for line in said if "whole" in line] == said[-1:]
    assert said[-1].startswith(f"compiled {len(said) - 1} of {len(said) - 1}, ")


@pytest.mark.parametrize(
    ("topology", "problem"),
    [
        ("soc57-v75", ""),
        ("inexact", "the emulated NPU's INT8 is off integer arithmetic by 2 levels, more than 1; "),
        ("unshadowed", "the shadow path is off by 0.86, INT8 alone by 0.13; "),
    ],
)
def test_a_product_with_outliers_is_one_bucket_s_and_fails_where_int8_or_its_shadow_is_off(
    plan: HtpPlan, measure: Measure, topology: str, problem: str
) -> None:
    measured = measure(plan, topology)
    with_product = judged(plan, measured, "making", bucket=256)
    assert with_product.verdict.kind is (VerdictKind.FAILED if problem else VerdictKind.PASSED)
    assert with_product.verdict.reason.startswith(f"{problem}compiled, not run: ")
    assert with_product.verdict.reason.endswith("fp16 by 0.0004, in 50.0 MB for 100.0")
    metrics = {one.name: (one.value, one.gate) for one in with_product.metrics}
    assert metrics["int8_context_bytes"] == (50 * MB, "exact")
    assert metrics["product_max_min_error"] == (0.126, "none")
    for bucket in (one for one in plan.buckets if one != 256):
        assert judged(plan, measured, "making", bucket=bucket).detail.product is None


@pytest.mark.parametrize("kind", ["layers", "making"])
def test_the_gate_takes_every_metric(plan: HtpPlan, measure: Measure, kind: str) -> None:
    """A margin that it refuses would make a case invalid only in a whole run."""
    judgement = judged(plan, measure(plan), kind, bucket=plan.buckets[0])
    for metric in judgement.metrics:
        Rule(margin=metric.margin or 0.0)
    assert next(one for one in judgement.metrics if one.name == "compile_cpu_s").gate == "none"


def test_visits_are_kept_with_what_the_compiler_does_not_tell() -> None:
    own = HtpVisit.of(GraphFacts(context_bytes=1.0, num_contexts=1.0, weight_bytes=2.0, compile_cpu_s=3.0, vtcm_s=0.5))
    columns = {name: tuple(values) for name, values in own.columns().items()}
    assert HtpVisit.of_columns(columns) == (own,)


def test_devices_and_keys_are_the_hardware_files(plan: HtpPlan) -> None:
    specs: Mapping[str, HardwareSpec] = hardware_files.load_all(hardware_files.known_folders())
    for name, topology in (("snapdragon-8-gen3", "soc57-v75"), ("snapdragon-8-elite", "soc69-v79")):
        probe = engine("compiled").probe(specs[name])
        assert probe is not None
        (device,) = probe.devices
        assert specs[name].matches(device.name)
        assert PackageRuntime(object(), (device,), "onnxruntime-qnn").topology == topology  # type: ignore[arg-type]
    others = [one for name, one in specs.items() if not name.endswith("gen3") and one.family == "qualcomm"]
    assert not any(one.matches("Snapdragon 8 Gen 3 (SM8650)") for one in others)
    (measured,) = (one for one in suite("graphs").plans(plan.spec, Choice()) if not isinstance(one, HtpPlan))
    assert [one.key.rpartition("-") for one in (measured, plan)] == [
        ("snapdragon-8-gen3-llama-3.2-1b-b1", "-", engine) for engine in ("aihub", "compiled")
    ]
    assert HtpPoint(phase=Phase.DECODE, bucket=128).name == "binary/layer/decode/128"


def test_without_the_package_the_family_says_what_to_install() -> None:
    with patch.object(compiled, "find_spec", lambda _: None):
        assert "pytest-npubench[qualcomm-compiler]" in engine("compiled").why_not_here("qualcomm")
        assert "pytest-npubench[tpu-compiler]" in engine("compiled").why_not_here("tpu")
        assert "pytest-npubench[cuda-compiler]" in engine("compiled").why_not_here("cuda")


def test_a_prompt_in_chunks_has_its_weights_once_where_graphs_are_shared(plan: HtpPlan, measure: Measure) -> None:
    """Of 1,024 tokens in four chunks, by hand: four graphs of 100 MB and 1 MB + 10 kB a token, against one of 100 MB
    and four of attention. llm.npu's closed form: C graphs; L (k - d) + C L d, two of three subgraphs shared."""
    measured = measure(plan)
    chunks = judged(plan, measured, "making", bucket=1024).detail.chunks
    ends = (256, 512, 768, 1024)
    beside = [1 + 0.01 * end for end in ends]
    assert chunks.num_chunks == 4
    assert chunks.per_chunk_bytes == pytest.approx(sum(100 + one for one in beside) * MB)
    assert chunks.sharing_bytes == pytest.approx((100 + beside[0] + sum(beside)) * MB)
    assert (chunks.per_chunk_graphs, chunks.sharing_graphs) == (4, 16 * 2 + 4 * 16)
    assert chunks.saved_fraction == pytest.approx(1 - chunks.sharing_bytes / chunks.per_chunk_bytes)
    assert chunks.per_chunk_cpu_s == pytest.approx(0.02 * sum(ends))
    assert judged(plan, measured, "making", bucket=256).detail.chunks is None
    names = {metric.name for metric in judged(plan, measured, "making", bucket=512).metrics if metric.gate == "exact"}
    assert names == {"prefill_context_bytes", "per_chunk_bytes", "sharing_bytes"}
