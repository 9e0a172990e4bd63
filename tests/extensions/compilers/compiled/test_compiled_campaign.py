"""A campaign of binaries in real processes, with a stand-in of the compiler: nothing here is a TPU's.

What the stand-in answers follows from the request by closed forms, so that verdicts and sums are known."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from small_decoders import small_decoder

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines import engine
from pytest_npubench.engines.binary_estimate import attention_flops, estimate
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import CompileRefusedError, DeviceUnavailableError
from pytest_npubench.extensions.compilers.compiled import compiler
from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime
from pytest_npubench.extensions.compilers.suites.compiled.plan import BinaryPoint, BinaryVisit, CompiledPlan
from pytest_npubench.processes.child import Child, hosted
from pytest_npubench.suites import hardware_files, suite
from pytest_npubench.suites.protocol import Choice, Site
from pytest_npubench.verdict import VerdictKind

GB = 1e9


def facts(request: BinaryRequest) -> BinaryFacts:
    """100 cycles a token of the bucket; nothing is copied."""
    is_prefill = request.phase is Phase.PREFILL
    return BinaryFacts(
        cycles=100.0 * request.bucket * (10 if is_prefill else 1),
        flops=1e9,
        argument_bytes=1.25e9,
        output_bytes=0.25e9,
        temporary_bytes=0.1e9 * (2 if is_prefill else 1),
        code_bytes=5e6,
        donated_bytes=0.25e9,
        aliased_bytes=0.25e9,
        cache_copies=0,
        copy_cycles=0,
        kernels=16 if is_prefill else 0,
        collectives=32,
        collective_bytes=1e6,
        unknown_loops=0,
        compile_cpu_s=1.0,
        reference_cpu_s=0.5,
        modules=1,
        module=float(request.bucket * 10 + is_prefill + 3 * (request.larger or 0)),
    )


class StandIn:
    """In the compiler's place, in a process of its own; what it does wrong its topology says."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.what = str(arguments["topology"])

    def facts(self, request: BinaryRequest, num_devices: int) -> tuple[str, BinaryFacts]:
        if "memory" in self.what and request.phase is Phase.PREFILL and request.bucket >= 512:
            raise CompileRefusedError("prefill-512 does not compile for it: RESOURCE_EXHAUSTED: 17 G of 16 G")
        if "dies" in self.what and request.bucket == 256 and request.larger is None:
            os._exit(7)
        return "key", facts(request)


def stand_in(spec: HardwareSpec, topology: str, folder: Path, memory_bytes: int) -> Child:
    return hosted(f"{__name__}:StandIn", {"topology": topology}, name=f"the compiler for {topology}")


def plan_of(**changes: Any) -> CompiledPlan:
    spec = replace(hardware_files.load_all(hardware_files.known_folders())["tpu-v5e"], **changes)
    (plan,) = [
        one for one in suite("compiled").plans(spec, Choice()) if isinstance(one, CompiledPlan) and one.batch_size == 8
    ]
    return plan


@pytest.fixture
def plan() -> CompiledPlan:
    return plan_of()


Measure = Callable[..., Measured]
Change = Callable[[BinaryPoint], Any]
"""Another visit for a point, or None."""


@pytest.fixture
def measure(tmp_path: Path) -> Measure:
    """All binaries of the plan, by the stand-in, in the bench."""

    def run(
        plan: CompiledPlan, topology: str = "v5e:2x2", change: Callable[[BinaryPoint], Any] | None = None
    ) -> Measured:
        device = Device(family="tpu", ordinal=0, name="TPU v5 lite", uuid=f"compiler:{topology}:0")
        runtime = CompilerRuntime(object(), (device,))  # type: ignore[arg-type]  # no backend is asked
        points = plan.binaries(plan.buckets)
        with patch.object(compiler, "compiler_process", stand_in):
            bench = suite("compiled").bench(runtime, plan, Site(folder=tmp_path))
            failures = bench.load(points, (), lambda _: None)
        measured = Measured()
        measured.failures.update(failures)
        row: dict[str, tuple[float, ...]] = {}
        for point in points:
            if point.name not in failures:
                visit = bench.sample(point, 0)
                for column, values in (change(point) if change and change(point) else visit).columns().items():
                    row[f"{point.name}/{column}"] = tuple(values)
        measured.rounds.append(row)
        assert len(runtime.compiles) == len(points) - len(failures)
        return measured

    return run


def case_of(plan: CompiledPlan, kind: str, **axes: Any) -> tuple[Case, Any]:
    found = suite("compiled").kind(kind)
    (chosen,) = [one for one in found.axes(plan) if dict(one) == axes]
    return plan.case("compiled", kind, chosen), found


def judged(plan: CompiledPlan, measured: Measured, kind: str, **axes: Any) -> Any:
    case, found = case_of(plan, kind, **axes)
    return found.judge(case, plan, measured)


def test_a_bucket_that_fits_passes_with_what_it_needs(plan: CompiledPlan, measure: Measure) -> None:
    """Bucket 512 with 128 and 256: weights 1 GB, three caches of 0.25, the largest temporary, 6 steps and 2 moves."""
    found = judged(plan, measure(plan), "profile", bucket=512)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert found.detail.need_bytes == pytest.approx(1 * GB + 3 * 0.25 * GB + 0.2 * GB + 8 * 5e6)
    assert {metric.name: metric.value for metric in found.metrics if metric.gate == "exact"}["decode_cycles"] == 51_200
    assert "compiled, not run" in found.verdict.reason
    assert found.error is None
    assert found.predicted_s is found.measured_s is None


def test_what_does_not_fit_fails_with_the_numbers(measure: Measure) -> None:
    small = plan_of()
    memory = small.spec.peak.memory_bytes
    assert memory is not None
    tight = plan_of(peak=replace(small.spec.peak, memory_bytes=replace(memory, value=1.9 * GB)))
    measured = measure(tight)
    kinds = [judged(tight, measured, "profile", bucket=bucket).verdict.kind for bucket in tight.buckets]
    assert [kind is VerdictKind.PASSED for kind in kinds] == [True, True, False, False, False, False]
    assert "are more than a device's 1.90 GB" in judged(tight, measured, "profile", bucket=512).verdict.reason


def test_copies_and_buffers_that_are_not_written_in_place_fail(plan: CompiledPlan, measure: Measure) -> None:
    def bad(point: BinaryPoint) -> Any:
        if point.name != "binary/decode/256":
            return None
        own = facts(plan.request(point))
        return BinaryVisit.of(
            replace(own, cache_copies=64, copy_cycles=own.cycles * 0.86, aliased_bytes=0.0, modules=2)
        )

    found = judged(plan, measure(plan, change=bad), "profile", bucket=256)
    assert found.verdict.kind is VerdictKind.FAILED
    assert "64 copies of a layer's keys or values, 86% of the cycles" in found.verdict.reason
    assert "0.25 GB of caches and donated buffers are not written in place" in found.verdict.reason
    assert "lowers to 2 modules for the same bucket" in found.verdict.reason


def test_a_cache_that_is_not_donated_fails_and_counts_twice(plan: CompiledPlan, measure: Measure) -> None:
    """Nothing is held against a baseline. A bucket's caches are bytes of the shape, whatever was donated."""
    caches = plan.batch_size * 256 * dense_shape(plan.model).kv_bytes_per_token(2) / plan.spec.tensor_parallel

    def bad(point: BinaryPoint) -> Any:
        if point.bucket != 256 or point.larger is not None:
            return None
        own = replace(facts(plan.request(point)), donated_bytes=0.0, aliased_bytes=0.0)
        return BinaryVisit.of(replace(own, argument_bytes=1 * GB + caches, output_bytes=caches + 64.0))

    found = judged(plan, measure(plan, change=bad), "profile", bucket=256)
    assert found.verdict.kind is VerdictKind.FAILED
    for step in ("prefill", "decode"):
        assert f"{step}: {caches / GB:.2f} GB of caches and donated buffers are not" in found.verdict.reason
    # weights once, the caches of 128 and 256, what is written beside them, the largest temporary, all code
    assert found.detail.need_bytes == pytest.approx(1 * GB + 0.25 * GB + caches + (caches + 64 + 0.2 * GB) + 5 * 5e6)


def test_a_few_bytes_that_are_written_anew_are_no_fault(plan: CompiledPlan, measure: Measure) -> None:
    """libtpu writes the lengths of 8 rows, 32 bytes, beside what they were."""

    def lengths(point: BinaryPoint) -> Any:
        own = facts(plan.request(point))
        return BinaryVisit.of(replace(own, aliased_bytes=own.aliased_bytes - 32)) if point.larger is None else None

    assert judged(plan, measure(plan, change=lengths), "profile", bucket=256).verdict.kind is VerdictKind.PASSED


def test_a_weight_of_another_dtype_is_named() -> None:
    import jax

    from pytest_npubench.engines.jax_dense.binaries import DecoderBinaries

    shape = small_decoder("small")
    binary = DecoderBinaries(shape, jax.devices()[:1], batch_size=1, dtype="bf16").decode(128)
    compiler._check_dtypes(binary, "bf16")
    layer = binary.arguments[0]["layers"][1]
    layer["w_down"] = jax.ShapeDtypeStruct(layer["w_down"].shape, "float32")
    with pytest.raises(
        CompileRefusedError, match=r"not compiled: \['layers'\]\[1\]\['w_down'\] is float32; want bfloat16"
    ):
        compiler._check_dtypes(binary, "bf16")


def test_what_the_compiler_refuses_fails_and_larger_buckets_are_not_tried(plan: CompiledPlan, measure: Measure) -> None:
    measured = measure(plan, "out of memory")
    assert judged(plan, measured, "profile", bucket=256).verdict.kind is VerdictKind.PASSED
    for bucket in (512, 1024):
        found = judged(plan, measured, "profile", bucket=bucket)
        assert found.verdict.kind is VerdictKind.FAILED
        assert "17 G of 16 G" in found.verdict.reason


def test_a_compiler_that_dies_takes_its_binary_along_and_no_other(plan: CompiledPlan, measure: Measure) -> None:
    measured = measure(plan, "dies")
    assert sorted(measured.failures) == ["binary/decode/256", "binary/prefill/256"]
    assert all("was lost" in reason for reason in measured.failures.values())
    with pytest.raises(Exception, match="was lost"):  # no verdict of the compiler's: the case is invalid
        judged(plan, measured, "profile", bucket=512)
    assert judged(plan, measured, "profile", bucket=128).verdict.kind is VerdictKind.PASSED


def test_one_module_for_two_buckets_is_found(plan: CompiledPlan, measure: Measure) -> None:
    def same(point: BinaryPoint) -> Any:
        return BinaryVisit.of(replace(facts(plan.request(point)), module=1.0))

    workload = plan.size.workloads[0]
    assert judged(plan, measure(plan), "prediction", workload=workload).verdict.kind is VerdictKind.PASSED
    found = judged(plan, measure(plan, change=same), "prediction", workload=workload)
    assert found.verdict.kind is VerdictKind.FAILED


def test_times_are_cycles_over_the_clock_and_what_has_none(plan: CompiledPlan) -> None:
    spec: HardwareSpec = replace(plan.spec, peak=replace(plan.spec.peak, interconnect_bandwidth_bytes_per_s=None))
    point = BinaryPoint(phase=Phase.PREFILL, bucket=1024)
    request = plan.request(point)
    found = estimate(facts(request), spec, request.shape, Phase.PREFILL, 1024)
    assert found.cycles_s == pytest.approx(1_024_000 / 1.5e9)
    assert found.kernels_s == pytest.approx(attention_flops(request.shape, 1024) / 4 / 197e12)
    # by hand: 16 layers x 32 heads x 64 wide, half of 4 x 1024 x 1024 products and sums
    assert attention_flops(request.shape, 1024) == 16 * 32 * 64 * 2 * 1024 * 1024
    assert found.unpriced == ("collectives: no interconnect bandwidth in the hardware file",)


def test_a_compiler_that_tells_no_cycles_judges_bytes_and_says_so(plan: CompiledPlan, measure: Measure) -> None:
    def silent(point: BinaryPoint) -> Any:
        return BinaryVisit.of(replace(facts(plan.request(point)), cycles=None))

    measured = measure(plan, change=silent)
    workload = plan.size.workloads[0]
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("profile", {"bucket": 512}),
        ("steps", {"bucket": 512}),
        ("prediction", {"workload": workload}),
    ]
    for kind, axes in kinds:
        found = judged(plan, measured, kind, **axes)
        assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
        assert "no estimate: XLA's GPU cost model" in found.verdict.reason
        assert not any("cycles" in metric.name for metric in found.metrics)
        assert not found.detail.estimated_s
    steps = judged(plan, measured, "profile", bucket=512).detail.steps.values()
    assert {step.estimated_s for step in steps} == {step.cycles for step in steps} == {None}


def test_keys_and_digests_are_not_those_of_a_device(plan: CompiledPlan) -> None:
    (measured,) = [one for one in suite("buckets").plans(plan.spec, Choice()) if getattr(one, "batch_size", 0) == 8]
    case, _ = case_of(plan, "profile", bucket=128)
    assert plan.key == f"{measured.key}-compiled"
    assert case.digest(plan.settings) != case.digest(measured.settings)
    device = Device(family="tpu", ordinal=0, name="TPU v5 lite", uuid="compiler:v5e:2x2:0")
    assert "compiled, not run" in CompilerRuntime(object(), (device,)).stack().device_class  # type: ignore[arg-type]


def test_devices_are_those_that_hardware_files_name() -> None:
    specs = hardware_files.load_all(hardware_files.known_folders())
    gpus = ("nvidia-a100", "nvidia-h100", "nvidia-h200")
    for name in ("tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7x", *gpus):
        probe = engine("compiled").probe(specs[name])
        assert probe is not None
        assert len(probe.devices) == specs[name].tensor_parallel
        assert all(specs[name].matches(device.name) for device in probe.devices)
    bare = engine("compiled").probe(replace(specs["tpu-v5e"], compiler=None))
    assert bare is not None
    assert "[compiler.topologies]" in bare.reason


def test_a_topology_that_is_not_known_ends_the_campaign_with_those_that_are(
    plan: CompiledPlan, measure: Measure
) -> None:
    class Unknown:
        is_open = True

        def started(self) -> None:
            from pytest_npubench.errors import ConfigError

            raise ConfigError("libtpu does not take the topology 'v9:2x2'; it knows v5e:2x2")

        def close(self) -> None:
            return

    device = Device(family="tpu", ordinal=0, name="TPU v5 lite", uuid="compiler:v9:2x2:0")
    runtime = CompilerRuntime(object(), (device,))  # type: ignore[arg-type]
    assert runtime.topology == "v9:2x2"
    with patch.object(compiler, "compiler_process", lambda *_: Unknown()):
        bench = suite("compiled").bench(runtime, plan, Site(folder=Path("never")))
        with pytest.raises(DeviceUnavailableError, match="v9:2x2"):
            bench.load(plan.binaries((128,)), (), lambda _: None)
