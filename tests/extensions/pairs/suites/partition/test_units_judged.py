"""What cases of both units say of each: which one became slower, number formats, weights from memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judging import judgement_on, metric

from extensions.pairs.partition.fake_pair import gpu_time_s, npu_time_s
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU
from pytest_npubench.extensions.pairs.partition.number_formats import DTYPES
from pytest_npubench.extensions.pairs.suites.partition.points import OverlapPoint, RoundTripPoint
from pytest_npubench.plugin.regression import overall
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict import VerdictKind, judge

from .conftest import cases, decision_visit, partition_plan, scripted, split_visit

MS = 1e-3
BOTH_UNITS = ("solver", "sync_cost", "overlap", "bucket_edges", "precision", "ablation", "decoder_layer")


@pytest.mark.parametrize("slow", [GPU, NPU])
@pytest.mark.parametrize("name", BOTH_UNITS)
def test_a_case_of_both_units_blames_the_one_that_became_slower(make_bench, name, slow):
    """By x1.3, after eight nights with noise of 1 %; splits are decided anew each night."""
    plan = partition_plan(lengths=(20,), min_rounds=4, max_rounds=4)
    kind, case = case_kind(name), cases(plan, name)[0]
    points = tuple(dict.fromkeys(kind.points(case, plan)))

    def night(seed, **times):
        bench, _, failures = make_bench(plan, points, noise=0.01, seed=seed, sync_s=1e-6, **times)
        assert failures == {}
        rounds = ({point: [bench.sample(point, index) for _ in range(3)] for point in points} for index in range(4))
        only_once = (RoundTripPoint, OverlapPoint)
        return kind.judge(
            case,
            plan,
            scripted(
                *({p: visits[0] if isinstance(p, only_once) else visits for p, visits in row.items()} for row in rounds)
            ),
        )

    time_s = {GPU: gpu_time_s, NPU: npu_time_s}[slow]
    slower = {f"{slow}_s": lambda rows, cols, tokens: 1.3 * time_s(rows, cols, tokens)}
    nights, tonight = [night(seed) for seed in range(8)], night(8, **slower)
    now = {each.name: list(each.processes) for each in tonight.metrics if each.gate == "ratio" and each.unit == "s"}
    then = {key: [[metric(each, key).samples or (metric(each, key).value,)] for each in nights] for key in now}
    verdicts = judge(then, now)
    metrics = tuple(replace(each, verdict=verdicts.get(each.name)) for each in tonight.metrics)
    verdict = overall(replace(tonight, metrics=metrics))
    assert verdict.kind is VerdictKind.REGRESSED
    assert verdict.reason.partition(":")[0].endswith((f"{slow}_alone_s", f"{slow}_parts_s")), verdict.reason
    others = [verdicts[key].ratio for key in now if f"{({GPU, NPU} - {slow}).pop()}_" in key]
    assert others
    assert max(others) < 1.03, "what keeps company with the slower unit is hardly slower itself"


def test_one_token_is_judged_on_cold_weights_and_shown_on_warm_ones():
    """Cold 7 against 5 ms, a regret of 40 %; warm 2 ms beside the better unit's 3 ms."""
    plan = partition_plan(lengths=(1,))
    (case,) = [case for case in cases(plan, "solver") if case.axis("operator") == "ffn_down"]
    decided, *others = case_kind("solver").points(case, plan)
    warm, *singles = (point for point in others if not point.is_cold)
    splits = [point for point in others if point.is_cold]
    assert decided.is_cold
    assert {warm.name, *(point.name for point in singles)}.isdisjoint(point.name for point in splits)
    assert [split.split.strategy for split in singles] == ["gpu_only", "npu_only"]
    told = {"hybrid": 5 * MS, "gpu_only": 7 * MS}
    row = {point: split_visit(told.get(point.split.strategy, 9 * MS)) for point in splits}
    place = [point.split.strategy for point in splits].index("gpu_only")
    row[decided] = decision_visit(7 * MS, place=place, predicted_s=7 * MS)
    row[warm] = decision_visit(2 * MS, place=place, predicted_s=7 * MS)
    row |= {single: split_visit(time_s) for single, time_s in zip(singles, (3 * MS, 4 * MS), strict=True)}
    found = judgement_on(case, plan, scripted(*[row] * 4))
    assert found.what == "gpu_only: all on gpu, cold weights"
    assert metric(found, "cold_decided_s").value == pytest.approx(7 * MS)
    assert metric(found, "cold_regret").value == pytest.approx(0.4)
    assert metric(found, "decided_s").value == found.detail.warm_decided_s == pytest.approx(2 * MS)
    assert found.detail.warm_speedup == pytest.approx(1.5)


def test_number_formats_are_held_against_fp32_and_what_pays_nothing_says_so():
    """The fastest way of each: fp32 6 ms, bf16 3 ms, 4-bit weights 12 ms."""
    plan = partition_plan()
    names = [case.axis("operator") for case in cases(plan, "precision")]
    assert names == ["ffn_down"] * 2, "64 columns fill no group of 128"
    for phase, weights in (("prefill", "warm"), ("decode", "cold")):
        (case,) = [case for case in cases(plan, "precision") if case.axis("phase") == phase]
        points = case_kind("precision").points(case, plan)
        assert len({point.name for point in points}) == 9
        assert {point.is_cold for point in points} == {phase == "decode"}
        times_s = (8, 9, 6, 3, 4, 5, 12, 14, 13)
        row = {point: split_visit(value * MS) for point, value in zip(points, times_s, strict=True)}
        found = judgement_on(case, plan, scripted(row, row))
        assert found.what == f"fp32 / other number formats, {weights} weights: bf16 x2, w4a16 x0.5"
        assert [metric(found, f"{dtype}_npu_alone_s").value for dtype in DTYPES] == pytest.approx(
            [9 * MS, 4 * MS, 14 * MS]
        )
        assert [each.says.split()[0:2] for each in found.detail.formats[1:]] == [["pays"], ["pays", "nothing"]]
        assert [each.split_s for each in found.detail.formats] == pytest.approx([6 * MS, 5 * MS, 13 * MS])
    assert cases(replace(plan, pair="openvino:NPU,GPU"), "precision") == []
