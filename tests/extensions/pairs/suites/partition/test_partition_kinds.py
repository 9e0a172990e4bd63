"""Every experiment of the partition suite on scripted samples, against figures worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judging import assert_failed_points_are_named, assert_told_apart, judgement_on, metric

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError, RegistryError
from pytest_npubench.extensions.pairs.suites.partition import SUITE
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import LayerVisit
from pytest_npubench.extensions.pairs.suites.partition.points import OverlapVisit, RoundTripVisit, StreamVisit
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.verdict import VerdictKind

from .conftest import SHAPES, cases, decision_visit, partition_plan, scripted, split_visit

PLAN = partition_plan()
DISTINCT = {"attention_q", "attention_k", "attention_qkv", "ffn_gate_up", "ffn_down"}
MS, US = 1e-3, 1e-6


def judged(name, measured, *, axis=None, plan=PLAN):
    """The judgement of the kind's case with this value of an axis, or of its only one."""
    return judgement_on(case_of(name, axis, plan), plan, measured)


def case_of(name, axis, plan):
    (case,) = [case for case in cases(plan, name) if axis is None or axis in dict(case.axes).values()]
    return case


def points_of(name, *, axis=None, plan=PLAN):
    return case_kind(name).points(case_of(name, axis, plan), plan)


def test_every_experiment_of_a_hardware_file_has_its_kind():
    assert set(suite("partition").kinds) == set(SUITE.kinds)


@pytest.mark.parametrize("name", SUITE.kinds)
def test_it_keeps_what_every_kind_does(name):
    assert_told_apart("partition", name, PLAN, cases(PLAN, name), may_repeat=True)
    points = [point for case in cases(PLAN, name) for point in case_kind(name).points(case, PLAN)]
    assert all(1 <= point.visits(1e-6) <= 8 and point.visits(10.0) == 1 for point in points)
    assert_failed_points_are_named(cases(PLAN, name)[0], PLAN)


@pytest.mark.parametrize("name", ["gpu_linear", "npu_stage", "npu_order", "graph_generation"])
def test_operators_of_one_shape_are_measured_once(name):
    assert {case.axis("operator") for case in cases(PLAN, name)} == DISTINCT - (
        {"attention_q", "ffn_down"} if name == "npu_order" else set()  # 64 rows, 64 tokens: both orders are one shape
    )


def test_a_square_weight_has_no_other_shape():
    assert {case.axis("operator") for case in cases(PLAN, "npu_shape")} == DISTINCT - {"attention_q"}


def test_an_unknown_model_is_named_before_anything_runs():
    with pytest.raises(RegistryError, match="no weight shapes of 'llama-9t'; known: llama-8b, llama-8b-div4"):
        cases(partition_plan(model="llama-9t"), "solver")


def of_tokens(points, figure, seconds, num_rounds=2):
    """The same in every round: three visits around seconds(tokens), of which the middle one counts."""
    row = {
        point: [split_visit(**{figure: value}) for value in (seconds(tokens) * 0.9, seconds(tokens), 1.0)]
        for point in points
        for tokens in [point.matmul.tokens]
    }
    return scripted(*[row] * num_rounds)


def test_gpu_linear_past_a_threshold():
    """Flat at 100 us up to 44 tokens, then 1 us a token: 312 us at 256."""
    points = points_of("gpu_linear", axis="ffn_down")
    assert [point.matmul.tokens for point in points] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    found = judged(
        "gpu_linear", of_tokens(points, "gpu_s", lambda tokens: 100 * US + max(tokens - 44, 0) * US), axis="ffn_down"
    )
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.detail.threshold_tokens == pytest.approx(44)
    assert found.detail.floor_s == pytest.approx(100 * US)
    assert found.detail.slope_s_per_token == pytest.approx(1 * US)
    assert found.measured_s == pytest.approx(312 * US)
    assert found.detail.flops_per_s[-1] == pytest.approx(2 * 64 * 128 * 256 / 312e-6)
    assert metric(found, "smallest_s").value == pytest.approx(100 * US)
    assert metric(found, "largest_s").samples == pytest.approx((312 * US,) * 2)


def test_gpu_linear_without_a_threshold():
    points = points_of("gpu_linear", axis="ffn_down")
    found = judged("gpu_linear", of_tokens(points, "gpu_s", lambda tokens: (10 + 2 * tokens) * US), axis="ffn_down")
    assert found.detail.threshold_tokens is None
    assert found.detail.floor_s == pytest.approx(10 * US)
    assert found.detail.slope_s_per_token == pytest.approx(2 * US)


def test_visits_without_the_figure_make_a_case_invalid():
    """As of a journal whose splits ran on the other unit."""
    points = points_of("gpu_linear", axis="ffn_down")
    with pytest.raises(MeasurementError, match="no visit has the figure that is asked of it"):
        judged("gpu_linear", of_tokens(points, "npu_s", lambda tokens: tokens * US), axis="ffn_down")


def test_npu_stages_of_32():
    points = points_of("npu_stage", axis="ffn_down")
    found = judged("npu_stage", of_tokens(points, "npu_s", lambda tokens: -(-tokens // 32) * 10 * US), axis="ffn_down")
    assert (found.detail.stage_tokens, found.detail.step_s) == (32, pytest.approx(10 * US))
    assert found.measured_s == pytest.approx(30 * US)
    straight = judged("npu_stage", of_tokens(points, "npu_s", lambda tokens: (5 + tokens) * US), axis="ffn_down")
    assert (straight.detail.stage_tokens, straight.detail.step_s) == (None, pytest.approx(1 * US))


@pytest.mark.parametrize(
    ("name", "axis", "shapes"),
    [
        ("npu_order", "ffn_gate_up", [(256, 64, 64), (64, 64, 256)]),
        ("npu_shape", "ffn_down", [(128, 64, 64), (64, 128, 64)]),
    ],
)
def test_ratios_are_taken_round_by_round(name, axis, shapes):
    """2 / 1, 12 / 3, 6 / 2, 5 / 1: a median of 3.5, where the ratio of the medians is 5.5 / 1.5 = 3.7."""
    faster, slower = points = points_of(name, axis=axis)
    assert [(one.matmul.rows, one.matmul.cols, one.matmul.tokens) for one in points] == shapes
    times = [(1.0, 2.0), (3.0, 12.0), (2.0, 6.0), (1.0, 5.0)]
    measured = scripted(*({faster: split_visit(npu_s=a), slower: split_visit(npu_s=b)} for a, b in times))
    found = judged(name, measured, axis=axis)
    (ratio,) = [one for one in found.metrics if one.name.endswith("_ratio")]
    assert ratio.samples == pytest.approx((2, 4, 3, 5))
    assert ratio.value == pytest.approx(3.5)
    assert (
        getattr(found.detail, f"{name.removeprefix('npu_')}_ratio_interval") is None
    )  # four rounds are too few for one
    assert found.verdict.kind is VerdictKind.PASSED


def test_rounds_that_lack_a_point_are_left_out_of_ratios():
    """A resumed campaign: its first session had lost the slower shape."""
    faster, slower = points_of("npu_order", axis="ffn_gate_up")
    rounds = [
        {faster: split_visit(npu_s=9.0)},
        *[{faster: split_visit(npu_s=1.0), slower: split_visit(npu_s=2.0)}] * 2,
    ]
    found = judged("npu_order", scripted(*rounds), axis="ffn_gate_up")
    assert metric(found, "order_ratio").samples == (2.0, 2.0)
    with pytest.raises(MeasurementError, match="no round visited all of"):
        judged("npu_order", scripted(*rounds[:1]), axis="ffn_gate_up")


def test_bandwidth_gain_over_the_better_unit():
    """Both 30 + 30, 33 + 33, 28 + 35 over 40, 44, 42: 1.5 in every round."""
    gpu, npu, both = points_of("bandwidth")
    rows = zip((40e9, 44e9, 42e9), (30e9, 33e9, 28e9), (30e9, 33e9, 35e9), strict=True)
    measured = scripted(
        *(
            {gpu: StreamVisit(gpu=a), npu: StreamVisit(npu=31e9), both: StreamVisit(gpu=one, npu=other)}
            for a, one, other in rows
        )
    )
    found = judged("bandwidth", measured)
    assert metric(found, "bandwidth_gain").value == pytest.approx(1.5)
    assert found.detail.together_bytes_per_s == pytest.approx((60e9, 66e9, 63e9))
    assert metric(found, "npu_alone_bytes_per_s").value == pytest.approx(31e9)
    assert metric(found, "together_bytes_per_s").better == "higher"


def test_graph_generation_by_size():
    """0.1 s and 1 us an output: 256 rows x 261 tokens take 0.1668 s."""
    points = points_of("graph_generation", axis="ffn_gate_up")
    assert all(point.split.prepares_online for point in points)
    grows = judged(
        "graph_generation", of_tokens(points, "compile_s", lambda tokens: 0.1 + 256e-6 * tokens), axis="ffn_gate_up"
    )
    assert grows.detail.base_s == pytest.approx(0.1)
    assert grows.detail.slope_s_per_output == pytest.approx(1e-6)
    assert metric(grows, "compile_s").value == pytest.approx(0.166816)
    flat = judged("graph_generation", of_tokens(points, "compile_s", lambda tokens: 0.4), axis="ffn_gate_up")
    assert (flat.detail.base_s, flat.detail.slope_s_per_output) == (pytest.approx(0.4), None)


def sync_round(fast_trip_s=3 * US, **seconds):
    trips, gpu, npu, fast, slow = points_of("sync_cost")
    known = {"gpu": 100 * US, "npu": 120 * US, "fast": 80 * US, "slow": 400 * US, **seconds}
    return {
        trips: RoundTripVisit(trips_s={"flag": (fast_trip_s,) * 100, "pipe": (400 * US,) * 100}),
        **{point: split_visit(known[name]) for name, point in zip(known, (gpu, npu, fast, slow), strict=True)},
    }


def test_sync_cost_against_the_better_unit():
    """100 / 80 = 1.25 by the flag, 100 / 400 = 0.25 by the pipe."""
    found = judged("sync_cost", scripted(sync_round(), sync_round()))
    assert found.verdict.kind is VerdictKind.PASSED
    assert (metric(found, "fast_speedup").value, metric(found, "slow_speedup").value) == pytest.approx((1.25, 0.25))
    assert found.detail.operator == (32, 64, 1)
    assert [one.mechanism for one in found.detail.mechanisms] == ["flag", "pipe"]
    assert found.detail.mechanisms[0].num_trips == 200
    assert metric(found, "flag_round_trip_s").value == pytest.approx(3 * US)
    npu_better = judged("sync_cost", scripted(sync_round(npu=60 * US)))
    assert metric(npu_better, "fast_speedup").value == pytest.approx(60 / 80)


def test_a_fast_mechanism_that_is_slow_fails():
    found = judged("sync_cost", scripted(sync_round(fast_trip_s=500 * US)))
    assert found.verdict.kind is VerdictKind.FAILED
    assert "fastest / slowest round trip 1.25 > 1" in found.verdict.reason


def overlap(fast_s, slow_s):
    row = OverlapVisit(
        queued_s=0.9 * MS,
        fast_s=fast_s,
        fast_exposed_s=US,
        slow_s=slow_s,
        slow_exposed_s=9 * US,
        gpu_s=MS,
        npu_s=MS,
    )
    decode, prefill = points_of("overlap")
    assert (decode.gpu_share, prefill.gpu_share, decode.matmul.tokens, prefill.matmul.tokens) == (0.75, 0.25, 1, 16)
    return judged("overlap", scripted({decode: row, prefill: replace(row, fast_s=2 * MS, slow_s=2.5 * MS)}))


def test_overlap_by_mechanism():
    found = overlap(1 * MS, 4 * MS)
    assert metric(found, "decode_fast_speedup").value == pytest.approx(4)
    assert metric(found, "prefill_fast_speedup").value == pytest.approx(1.25)
    assert found.detail.decode.slow_exposed_s == pytest.approx(9 * US)
    assert found.detail.prefill.queued_s == pytest.approx(0.9 * MS)
    assert found.verdict.kind is VerdictKind.PASSED
    slower = overlap(4 * MS, 2 * MS)
    assert slower.verdict.kind is VerdictKind.FAILED
    assert "decode: fast / slow chain 2 > 1" in slower.verdict.reason


def test_a_decoder_layer_against_the_better_unit_alone():
    """GPU 6, 8 ms; NPU 9, 7 ms; decided 4, 4: over the GPU (median 7 of both is no more than 8) 1.5 and 2."""
    for phase, tokens, context in (("prefill", 64, 0), ("decode", 1, 64)):
        (point,) = points_of("decoder_layer", axis=phase)
        assert (point.tokens, point.context) == (tokens, context)
        row = LayerVisit(
            decided_s=4 * MS,
            decided_sync_s=1 * MS,
            gpu_beside_decided_s=6 * MS,
            whole_s=5 * MS,
            whole_sync_s=1 * MS,
            gpu_beside_whole_s=6 * MS,
            npu_s=9 * MS,
            npu_sync_s=2 * MS,
            gpu_beside_npu_s=1 * MS,
        )
        measured = scripted({point: row}, {point: replace(row, npu_s=7 * MS, gpu_beside_decided_s=8 * MS)})
        found = judged("decoder_layer", measured, axis=phase)
        prefix = {"prefill": "", "decode": "cold_"}[phase]
        names = [f"{prefix}{name}" for name in ("gpu_alone_s", "npu_alone_s", "decided_s", "speedup", "whole_speedup")]
        assert [each.name for each in found.metrics] == names
        assert metric(found, f"{prefix}speedup").samples == pytest.approx((1.5, 2))
        assert metric(found, f"{prefix}whole_speedup").samples == pytest.approx((1.2, 1.6))
        assert found.detail.whole_s == pytest.approx(5 * MS)
        assert found.detail.weights == ("cold" if prefix else "warm")
        assert found.detail.gpu_s == pytest.approx(7 * MS)
        assert found.detail.sync_s == pytest.approx(1 * MS)
        assert found.measured_s == pytest.approx(4 * MS)


def edge_rounds(padding_s):
    points = points_of("bucket_edges")
    decided_s = {point.name: 1 * MS for point in points if point.name.startswith("decision/")}
    assert [int(name.rpartition("x")[2]) for name in decided_s] == [16, 18, 25]  # the edge, 5 and 50 % past it, and 1
    row = {}
    for point in points:
        if point.name in decided_s:
            row[point] = decision_visit(1 * MS, place=0, predicted_s=1 * MS)
        else:
            tokens, split = point.matmul.tokens, point.split
            is_padding = len(split.parts) == 1 and not split.prepares_online and tokens > 16
            row[point] = split_visit(padding_s if is_padding else 2 * MS)
    return scripted(row, row)


def test_bucket_edges_against_padding_and_the_others():
    found = judged("bucket_edges", edge_rounds(3 * MS))
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.detail.tokens == (16, 18, 25)
    assert found.detail.seconds("online prepare") == pytest.approx((2 * MS,) * 3)
    assert found.detail.speedups == pytest.approx({"padding": 3, "pipe": 2, "online prepare": 2, "chunked": 2})
    assert metric(found, "padding_speedup").samples == pytest.approx((2, 3, 3))
    slower = judged("bucket_edges", edge_rounds(0.5 * MS))
    assert slower.verdict.kind is VerdictKind.FAILED
    assert "solver's split / padding 2 > 1" in slower.verdict.reason


def test_one_standard_size_has_no_edges():
    with pytest.raises(MeasurementError, match=r"standard sizes \(16,\); want two or more"):
        judged("bucket_edges", Measured(rounds=[{}]), plan=partition_plan(standard_sizes=(16,)))


def solver_rounds(points, decided, choosing_s, reporting_s, predicted_s=0.99 * MS, num_rounds=4):
    """Every split in 5 ms but for those told, in the rounds that choose and in those that report."""
    decision, *splits = points
    rounds = []
    for index in range(num_rounds):
        told = (choosing_s, reporting_s)[index % 2]
        row = {point: split_visit(told.get(point.split.strategy, 5 * MS)) for point in splits}
        place = [point.split.strategy for point in splits].index(decided)
        row[decision] = decision_visit(7 * MS, place=place, predicted_s=predicted_s)
        rounds.append(row)
    return rounds


def test_the_solver_s_decision_against_the_best():
    """Chosen by 1.0 (NPU) against 1.1 (GPU), reported as 1.2 and 1.1: regret 1.1 / 1.2 - 1, prediction 10 % short."""
    plan = partition_plan(lengths=(20,))
    points = points_of("solver", axis="ffn_down", plan=plan)
    assert {point.split.strategy for point in points[1:]} == {"gpu_only", "npu_only", "hybrid", "activation_centric"}
    rounds = solver_rounds(
        points, "gpu_only", {"gpu_only": 1.1 * MS, "npu_only": 1.0 * MS}, {"gpu_only": 1.1 * MS, "npu_only": 1.2 * MS}
    )
    found = judged("solver", scripted(*rounds), axis="ffn_down", plan=plan)
    assert found.verdict.kind is VerdictKind.PASSED
    assert (found.measured_s, found.predicted_s) == pytest.approx((1.1 * MS, 0.99 * MS))
    assert found.error == pytest.approx(-0.1)
    assert metric(found, "regret").value == pytest.approx(1.1 / 1.2 - 1)
    assert metric(found, "speedup").value == pytest.approx(1.2 / 1.1)
    assert (found.detail.strategy, found.detail.best_strategy) == ("gpu_only", "npu_only")
    assert found.detail.shape == (64, 128, 20)


def test_three_rounds_are_too_few_for_two_halves():
    kind, plan = case_kind("solver"), partition_plan(lengths=(20,))
    points = points_of("solver", axis="ffn_down", plan=plan)
    few = scripted(*solver_rounds(points, "gpu_only", {}, {}, num_rounds=3))
    (case,) = [case for case in cases(plan, "solver") if case.axis("operator") == "ffn_down"]
    assert not kind.settled(case, plan, few)
    with pytest.raises(MeasurementError, match="3 rounds; want 4 or more"):
        kind.judge(case, plan, few)
    assert kind.settled(case, plan, scripted(*solver_rounds(points, "gpu_only", {}, {})))


def regrets(num_wrong):
    """Ten shapes, of which so many are decided 40 % slower than the best."""
    kind = case_kind("solver_regret")
    (case,) = cases(PLAN, "solver_regret")
    rounds = [{} for _ in range(4)]
    points = kind.points(case, PLAN)
    starts = [index for index, point in enumerate(points) if point.name.startswith("decision/")]
    assert len(starts) == len(DISTINCT) * len(PLAN.size.lengths) == 10
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], len(points)], strict=True)):
        gpu_s = (1.4 if number < num_wrong else 1.0) * MS
        told = {"gpu_only": gpu_s, "npu_only": 1.0 * MS}
        for row, one in zip(rounds, solver_rounds(points[start:end], "gpu_only", told, told), strict=True):
            row.update(one)
    return judged("solver_regret", scripted(*rounds))


def test_regret_over_all_shapes():
    """The 90th percentile of ten lies between the ninth and the tenth: one of 40 % makes it 4 %, two 40 %."""
    one, two, most = regrets(1), regrets(2), regrets(6)
    assert one.verdict.kind is VerdictKind.PASSED
    assert metric(one, "p90_regret").value == pytest.approx(0.04)
    assert metric(one, "median_prediction_error").value == pytest.approx(0.01)
    assert len(one.detail.shapes) == 10
    assert two.verdict.kind is VerdictKind.FAILED
    assert "90th percentile of regret 0.4 > 0.15" in two.verdict.reason
    assert "median" not in two.verdict.reason
    assert "median regret 0.4 > 0.05" in most.verdict.reason


def test_a_decision_taken_anew_counts_from_the_latest_round():
    plan = partition_plan(lengths=(20,))
    points = points_of("solver", axis="ffn_down", plan=plan)
    told = {"gpu_only": 2 * MS, "npu_only": 1 * MS}
    before = solver_rounds(points, "gpu_only", told, told, num_rounds=2)
    after = solver_rounds(points, "npu_only", told, told, predicted_s=1 * MS, num_rounds=2)
    found = judged("solver", scripted(*before, *after), axis="ffn_down", plan=plan)
    assert found.detail.strategy == "npu_only"
    assert metric(found, "regret").value == pytest.approx(0)


def test_experiments_of_a_profile_are_all_or_those_named():
    assert all(PLAN.includes(name) for name in SUITE.kinds)
    few = replace(PLAN, size=replace(PLAN.size, experiments=("solver",)))
    assert [name for name in SUITE.kinds if few.includes(name)] == ["solver"]
    assert set(SHAPES) >= DISTINCT
