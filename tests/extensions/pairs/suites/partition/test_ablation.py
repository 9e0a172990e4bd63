"""The ablation: what each of its 32 ways runs, that each is checked, and effects that were planted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from judging import judgement_on, metric

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, GraphForm, check_split
from pytest_npubench.extensions.pairs.suites.partition.kinds.ablation import (
    CELLS,
    FACTORS,
    AblationPoint,
    AblationVisit,
)
from pytest_npubench.suites import case_kind

from .conftest import cases, partition_plan, scripted

PLAN = partition_plan()
(CASE,) = cases(PLAN, "ablation")
POINTS = case_kind("ablation").points(CASE, PLAN)


def of(*names: str) -> AblationPoint:
    (point,) = [point for point in POINTS if point.cell == tuple(name in names for name in FACTORS)]
    return point


def test_what_each_technique_changes():
    """57 tokens are one into the last stage of 8 of a graph for 64."""
    assert len({point.name for point in POINTS}) == len(CELLS) == 32
    matmul = PLAN.matmul("ffn_down", 57)
    splits = {name: of(*([] if name == "none" else [name])).split(matmul, PLAN.options) for name in ("none", *FACTORS)}
    for split in splits.values():
        check_split(matmul, split)
    (none,), (stage,) = splits["none"].parts, splits["stage"].parts
    assert (none.unit, none.num_rows, none.padded_tokens, stage.padded_tokens) == (NPU, 64, 57, 64)
    assert splits["none"].form == GraphForm(activation_first=True, is_tall=False)
    assert splits["order"].form == GraphForm(activation_first=False, is_tall=False)
    assert splits["shape"].form == GraphForm(activation_first=True, is_tall=True)
    assert splits["sync"].parts == (none,)
    assert [(part.unit, part.num_rows) for part in splits["split"].parts] == [(GPU, 32), (NPU, 32)]


def test_each_way_is_checked_and_run_by_its_mechanism(make_bench):
    bench, units, failures = make_bench(PLAN, POINTS)
    assert failures == {}
    asked, call = [], units.call

    def watched(method, *arguments):
        asked.extend(arguments if method == "run_layer" else ())
        return call(method, *arguments)

    units.call = watched
    for point, mechanism in ((of("sync", "split"), "flag"), (of("split"), "pipe")):
        asked.clear()
        bench.warm_up(point)
        assert set(asked) == {mechanism}
    wrong, _, _ = make_bench(PLAN, POINTS, wrong="stage+split", wrong_unit=NPU)
    with pytest.raises(MeasurementError, match=r"stage\+split of layer.attention_qkv .* of the npu's"):
        wrong.warm_up(of("stage", "split"))


def test_planted_effects_come_out_with_their_intervals():
    """stage x0.9, order x0.5, split x0.6; sync x0.8 in splits alone, so x0.894 on average, as is its need of split."""

    def seconds(cell, drift):
        on = dict(zip(FACTORS, cell, strict=True))
        factors = (0.9 if on["stage"] else 1, 0.5 if on["order"] else 1, 0.6 if on["split"] else 1)
        return drift * math.prod(factors) * (0.8 if on["sync"] and on["split"] else 1)

    def visit(cell, drift):
        return AblationVisit(total_s=seconds(cell, drift), gpu_s=0.1, npu_s=0.2)

    rounds = [{point: visit(point.cell, drift) for point in POINTS} for drift in (1, 1.1, 1.3)]
    found = judgement_on(CASE, PLAN, scripted(*rounds))
    effects = {row.technique: row for row in found.detail.effects}
    assert len(effects) == 5 + 10
    wanted = {
        "stage": 0.9,
        "order": 0.5,
        "shape": 1.0,
        "sync": 0.8**0.5,
        "split": 0.6 * 0.8**0.5,
        "sync x split": 0.8**0.5,
    }
    for name, row in effects.items():
        assert row.ratio == pytest.approx(wanted.get(name, 1.0)), name
        assert row.low <= row.ratio * (1 + 1e-9), "drift that hits a whole round alike widens nothing"
        assert row.high == pytest.approx(row.low)
    assert found.what.endswith("order x0.5 of the time")
    assert metric(found, "none_s").value == pytest.approx(1.1)
    assert found.measured_s == pytest.approx(1.1 * 0.9 * 0.5 * 0.6 * 0.8)


@pytest.mark.parametrize("kind", ["ablation", "decoder_layer"])
def test_only_a_pair_that_runs_layers_has_cases_of_layers(kind):
    pairs = ("host", "cuda-streams", "cuda-devices", "cuda-host", "openvino:NPU,GPU")
    planned = [pair for pair in pairs if cases(replace(PLAN, pair=pair), kind)]
    assert planned == (["host"] if kind == "ablation" else ["host", "cuda-streams"])
