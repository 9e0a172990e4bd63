"""Intel's compiler for NPUs, with stand-ins: folders for installed wheels of openvino, and OpenVINO's CPU plugin, which
really compiles the same graphs, for the NPU's."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest
from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import CompileRefusedError
from pytest_npubench.extensions.compilers import npu_compiler
from pytest_npubench.extensions.compilers.compiled import ENGINE
from pytest_npubench.extensions.compilers.compiled.runtime import PackageRuntime
from pytest_npubench.extensions.compilers.npu_compiler import ENVIRONMENT, NpuCompiler, npu_process
from pytest_npubench.extensions.compilers.suites.compiled.plan import CompiledPlan
from pytest_npubench.processes.child import Child, hosted
from pytest_npubench.suites import suite
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.protocol import Choice, Site
from pytest_npubench.verdict import VerdictKind

SMALL = replace(dense_shape("llama-3.2-1b"), name="small", num_layers=2, hidden=256, intermediate=512, vocab_size=512)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (None, r"openvino is not installed: pip install pytest-npubench\[openvino\]"),
        (["libopenvino_intel_npu_plugin.so"], "without its compiler for Intel's NPUs .* wheels for Linux do not carry"),
        (["openvino_intel_npu_compiler.dll"], r"\A\Z"),
        (["libopenvino_intel_npu_compiler_loader.so"], r"\A\Z"),
    ],
)
def test_the_reason(files: list[str] | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "openvino", raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    if files is not None:
        libs = tmp_path / "openvino" / "libs"
        libs.mkdir(parents=True)
        (tmp_path / "openvino" / "__init__.py").touch()
        for name in files:
            (libs / name).touch()
    assert re.search(why, ENGINE.why_not_here("openvino"))


class OnCpuPlugin(NpuCompiler):
    """OpenVINO's CPU plugin in the NPU's place; what it does wrong its topology says."""

    device = "CPU"

    def settings(self) -> dict[str, str]:
        return {}

    def facts(self, request: BinaryRequest, num_devices: int) -> tuple[str, BinaryFacts]:
        if "small" in self._topology:
            request = replace(request, shape=SMALL)
        self.device = "NO_SUCH_PLUGIN" if "never" in self._topology and request.phase is Phase.DECODE else "CPU"
        return super().facts(request, num_devices)


def stand_in(topology: str, memory_bytes: int) -> Child:
    arguments = {"topology": topology, "memory_bytes": memory_bytes}
    return hosted(f"{__name__}:OnCpuPlugin", arguments, name="the stand-in", environment=ENVIRONMENT, timeout_s=300.0)


def judged(topology: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Each case's judgement, of two buckets compiled by the stand-in."""
    pytest.importorskip("openvino")
    spec = replace(load_all([default_directory()])["intel-core-ultra"], buckets=(128, 256))
    (plan,) = suite("compiled").plans(spec, Choice())
    assert isinstance(plan, CompiledPlan)
    monkeypatch.setattr(npu_compiler, "npu_process", stand_in)
    device = Device(family="openvino", ordinal=0, name="Intel(R) AI Boost", uuid=f"compiler:{topology}:0")
    runtime = PackageRuntime(object(), (device,), "openvino")  # type: ignore[arg-type]  # no backend is asked
    bench = suite("compiled").bench(runtime, plan, Site(folder=folder))
    measured = Measured()
    measured.failures.update(bench.load(plan.binaries(plan.buckets), (), lambda _: None))
    row: dict[str, tuple[float, ...]] = {}
    for point in plan.binaries(plan.buckets):
        if point.name not in measured.failures:
            visit = bench.sample(point, 0)
            row |= {f"{point.name}/{column}": tuple(values) for column, values in visit.columns().items()}
    measured.rounds.append(row)

    def judge(kind: str, **axes: Any) -> Any:
        return suite("compiled").kind(kind).judge(plan.case("compiled", kind, tuple(axes.items())), plan, measured)

    return judge


def test_a_bucket_needs_its_blobs_and_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judged("small", tmp_path, monkeypatch)
    found, smaller = judge("profile", bucket=256), judge("profile", bucket=128)
    assert found.verdict.kind is VerdictKind.PASSED, found.verdict.reason
    assert "compiled, not run" in found.verdict.reason
    figures = {metric.name: metric.value for metric in found.metrics}
    assert not {"decode_cycles", "decode_temporary_bytes"} & set(figures)
    weights = weight_bytes(SMALL, "fp16", 1)
    assert figures["decode_code_bytes"] > weights  # they are constants of each binary
    code = sum(figures[f"{phase.value}_code_bytes"] for phase in Phase)
    caches = cache_bytes(SMALL, 256, 1, "fp16", 1)
    beside = caches  # a prefill's keys and values, which the plugin writes beside its input
    more = found.detail.need_bytes - smaller.detail.need_bytes
    assert more == pytest.approx(code + caches + beside, rel=0.01)
    assert found.detail.steps["decode"].estimated_s is None


def test_what_does_not_compile_fails_with_the_compilers_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judged("small, never", tmp_path, monkeypatch)
    found = judge("profile", bucket=128)
    assert found.verdict.kind is VerdictKind.FAILED
    assert re.search("does not compile for small, never: .*NO_SUCH_PLUGIN", found.verdict.reason)
    assert judge("steps", bucket=128).verdict.kind is VerdictKind.PASSED  # prefill alone


def test_openvino_has_no_compiler_for_npus_here() -> None:
    """The real plugin: where its wheel lacks the compiler, that is what the child says."""
    pytest.importorskip("openvino")
    if not ENGINE.why_not_here("openvino"):
        pytest.skip("the compiler is here")
    child = npu_process("4000", 4 * 10**9)
    try:
        child.started()
        request = BinaryRequest(shape=SMALL, dtype="fp16", batch_size=1, phase=Phase.PREFILL, bucket=128)
        with pytest.raises(CompileRefusedError, match=r"does not compile for 4000.*openvino_intel_npu_compiler"):
            child.call("facts", request, 1)
    finally:
        child.close()
