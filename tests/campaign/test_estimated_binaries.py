"""Estimates of a run's own binaries: cycles of a module's text, priced by hand, beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.estimated_binaries import estimated, estimated_profile
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.hardware_files import load_all

from .conftest import MOVE_S, TBT_S, TTFT_S, cases, measured

KIND, PROFILE = case_kind("prediction"), case_kind("profile")
MODULE = """
ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %fusion = f32[8]{0} fusion(%p), kind=kLoop, calls=%f, backend_config={"estimated_cycles":"CYCLES"}
}
"""


class Told(Engine):
    name = "told"

    def __init__(self, text: Callable[[str], str]) -> None:
        self._text = text

    def module(self, name: str) -> str:
        return self._text(name)


@pytest.fixture
def asked(plan: BucketPlan) -> BucketPlan:
    """Of a device whose compiler tells cycles at 1.5 GHz, with that rival asked for."""
    compiler = load_all([default_directory()])["tpu-v5e"].compiler
    return replace(plan, spec=replace(plan.spec, compiler=compiler), rivals=("compiler",))


def beside(plan: BucketPlan, factor: float) -> Measured:
    """Measured rounds without noise, and estimates that are `factor` of the true times."""
    kinds = (KIND, PROFILE)
    points = dict.fromkeys(
        point for kind in kinds for case in cases(plan, kind.name) for point in kind.points(case, plan)
    )
    found = measured(tuple(points), plan)
    true = {f"prefill-m-b2-{b}": s for b, s in TTFT_S.items()} | {f"decode-m-b2-{b}": s for b, s in TBT_S.items()}
    true |= {"move-m-b2-16-32": MOVE_S[32], "move-m-b2-32-64": MOVE_S[64]}
    records = (
        CompileRecord(name=name, compile_s=0.5, cache=CacheState.COLD, estimated_s=factor * seconds)
        for name, seconds in true.items()
    )
    return replace(found, compiles=tuple(records))


def detail(plan: BucketPlan, own: Measured, kind: Any = KIND) -> Any:
    return kind.judge(cases(plan, kind.name)[-1], plan, own).detail


@pytest.mark.parametrize("factor", [1.0, 0.78, 1.139])
def test_the_error_of_a_batch_is_that_of_its_estimates(asked: BucketPlan, factor: float) -> None:
    own = beside(asked, factor)
    rival = detail(asked, own).predictors["compiler"]
    assert rival.error == pytest.approx(factor - 1, abs=1e-12)
    assert rival.basis == "compiled, not run"
    assert (rival.cost.binaries, rival.cost.points, rival.cost.measure_s) == (6, 0, 0)
    stair = detail(asked, own, PROFILE)
    assert (stair.estimated_ttft_s, stair.estimated_tbt_s) == pytest.approx((factor * TTFT_S[64], factor * TBT_S[64]))
    assert (stair.ttft_s, stair.tbt_s) == pytest.approx((TTFT_S[64], TBT_S[64])), "nothing estimated is measured"


def test_estimates_change_no_metric(asked: BucketPlan) -> None:
    own = beside(asked, 5.0)
    for kind in (KIND, PROFILE):
        case = cases(asked, kind.name)[0]
        with_them, without = (kind.judge(case, plan, own) for plan in (asked, replace(asked, rivals=())))
        assert with_them.metrics == without.metrics
        assert with_them.verdict == without.verdict


def test_cycles_over_the_clock(asked: BucketPlan) -> None:
    """3,000 cycles at 1.5 GHz are 2 us; what is no bucket's binary has none, nor a module that tells no cycles."""
    names = ("prefill-m-b2-16", "decode-m-b2-16", "move-m-b2-16-32", "weights-m", "decode-m-b2-32")
    records = [CompileRecord(name=name, compile_s=1.0, cache=CacheState.COLD) for name in names]

    def text(name: str) -> str:
        return MODULE.replace("CYCLES", "" if name.endswith("b2-32") else "3000")

    found = {record.name: record.estimated_s for record in estimated(records, Told(text), asked)}
    assert found == {**dict.fromkeys(names[:3], pytest.approx(2e-6)), **dict.fromkeys(names[3:])}


def test_why_there_is_none(asked: BucketPlan, plan: BucketPlan) -> None:
    records = [CompileRecord(name="decode-m-b2-16", compile_s=1.0, cache=CacheState.COLD)]
    on_cpu = replace(plan, rivals=("compiler",))
    assert estimated(records, Told(lambda name: MODULE), on_cpu) == records
    own = beside(on_cpu, 1.0)
    reason = detail(on_cpu, own).predictors["compiler"].reason
    assert reason == (
        "unavailable: the compiler for this device tells no cycles, and operations that it counts are no time"
    )
    assert detail(on_cpu, own, PROFILE).estimated_ttft_s is None
    assert estimated_profile(asked, records, (16,)) == (
        None,
        "the compiler told no cycles of 2 of 2 binaries, prefill-16 first",
    )


def test_an_engine_that_tells_no_module_has_no_estimate(asked: BucketPlan) -> None:
    class Silent(Engine):
        name = "silent"

    records = [CompileRecord(name="decode-m-b2-16", compile_s=1.0, cache=CacheState.COLD)]
    assert estimated(records, Silent(), asked) == records
