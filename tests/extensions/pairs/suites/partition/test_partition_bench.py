"""The bench of a partition campaign on units with made-up times: what it records, checks, decides, and how it ends."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from extensions.pairs.partition.fake_pair import gpu_time_s, npu_time_s
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError, UnitLostError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Split, alone, row_split
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.partition.unit import LastWords
from pytest_npubench.extensions.pairs.suites.partition import bench as bench_module
from pytest_npubench.extensions.pairs.suites.partition.bench import PartitionBench
from pytest_npubench.extensions.pairs.suites.partition.decisions import decision_points
from pytest_npubench.extensions.pairs.suites.partition.kinds.decoder_layer import OPERATORS, LayerPoint, LayerVisit
from pytest_npubench.extensions.pairs.suites.partition.points import (
    SLOWEST,
    DecisionPoint,
    DecisionVisit,
    OverlapPoint,
    OverlapVisit,
    RoundTripPoint,
    RoundTripVisit,
    SplitPoint,
    SplitVisit,
    StreamPoint,
    StreamVisit,
)
from pytest_npubench.suites import case_kind
from pytest_npubench.verdict import VerdictKind

from .conftest import SHAPES, cases, partition_plan, split_visit
from .fake_units import WORDS, FakeUnits

PLAN = partition_plan()
DOWN = Matmul(name="ffn_down", rows=64, cols=128, tokens=20)
QUIET = {"sync_s": 20e-6, "factors": (1.0, 1.0), "copy_s_per_byte": 0.0}


def test_a_split_leaves_its_timing_and_nothing_of_a_unit_without_work(make_bench):
    gpu_only = SplitPoint(matmul=DOWN, split=alone(DOWN, GPU))
    halves = SplitPoint(matmul=DOWN, split=row_split(DOWN))
    bench, _, failures = make_bench(PLAN, [gpu_only, halves], **QUIET)
    assert failures == {}
    gpu_s, npu_s = gpu_time_s(64, 128, 20), npu_time_s(32, 128, 20)
    found = bench.sample(gpu_only, 0)
    assert found == split_visit(pytest.approx(gpu_s), gpu_s=pytest.approx(gpu_s))
    assert list(found.columns()) == ["total_s", "gpu_s", "sync_s", "copy_s", "compile_s"]
    both = bench.sample(halves, 0)
    assert both.npu_s == pytest.approx(npu_s)
    assert both.total_s == pytest.approx(max(gpu_time_s(32, 128, 20), npu_s) + 20e-6)


def test_decisions_and_their_profile_are_in_the_plans_number_format(make_bench):
    plan = replace(PLAN, partition=replace(PLAN.partition, dtype="bf16"))
    _, units, failures = make_bench(plan, decision_points(plan, plan.matmul("ffn_down", 20)))
    assert failures == {}
    assert len({matmul.rows for matmul, _ in units.loads}) > 1
    signals, *others = (matmul.dtype for matmul, _ in units.loads)
    assert (signals, set(others)) == ("fp32", {"bf16"})


def test_the_slowest_mechanism_is_the_pair_s_last(make_bench):
    fast = SplitPoint(matmul=DOWN, split=row_split(DOWN))
    slow = SplitPoint(matmul=DOWN, split=row_split(DOWN), mechanism=SLOWEST)
    bench, _, _ = make_bench(PLAN, [fast, slow], **QUIET)
    sync_s = [bench.sample(point, 0).sync_s for point in (fast, slow)]
    assert sync_s == pytest.approx([20e-6, 200e-6])
    trips = bench.sample(RoundTripPoint(num_trips=3), 0)
    assert trips.columns() == {"flag": (20e-6,) * 3, "pipe": (pytest.approx(200e-6),) * 3}
    assert RoundTripVisit.of_columns(trips.columns()) == (trips,)


def test_streams_are_told_by_unit(make_bench):
    point = StreamPoint(units=(GPU, NPU), num_bytes=1)
    bench, _, _ = make_bench(PLAN, [point])
    assert bench.sample(point, 0) == StreamVisit(gpu=1e10, npu=1e10)
    assert bench.sample(StreamPoint(units=(NPU,), num_bytes=1), 0).columns() == {"npu": (1e10,)}


def test_chains_by_both_mechanisms_and_without_dependencies(make_bench):
    """Eight operators: the slower unit's time, and the signal of 20 or 200 us that is exposed."""
    point = OverlapPoint(matmul=DOWN, gpu_share=0.25)
    bench, _, failures = make_bench(PLAN, [point], **QUIET)
    assert failures == {}
    slower_s = max(gpu_time_s(16, 128, 20), npu_time_s(48, 128, 20))
    assert asdict(bench.sample(point, 0)) == pytest.approx(
        {
            "queued_s": 8 * slower_s,
            "fast_s": 8 * (slower_s + 20e-6),
            "fast_exposed_s": 20e-6,
            "slow_s": 8 * (slower_s + 200e-6),
            "slow_exposed_s": 200e-6,
            "gpu_s": 8 * gpu_time_s(16, 128, 20),
            "npu_s": 8 * npu_time_s(48, 128, 20),
        }
    )


def test_a_decision_is_run_beside_its_place_and_what_was_predicted(make_bench):
    """Without noise, company or copies the model is exact but for what it has to interpolate: the best by brute force
    is decided, and its place is that of the split that runs."""
    points = decision_points(PLAN, DOWN)
    bench, units, failures = make_bench(PLAN, points, **QUIET)
    assert failures == {}
    decision = points[0]
    found = bench.sample(decision, 0)
    splits = all_splits(DOWN, PLAN.options)
    decided = splits[found.split_index]
    brute = {split: units.timing(DOWN, split).total_s for split in splits}
    assert units._last[DOWN] == decided
    assert brute[decided] == pytest.approx(min(brute.values()), rel=0.02)
    assert found.predicted_s == pytest.approx(found.total_s, rel=0.05)
    assert list(found.columns())[-2:] == ["split_index", "predicted_s"]


def test_cold_weights_are_read_from_memory_at_every_visit(make_bench):
    """Three times as slow there; the visits in between read the same weight from the cache, and the profile by which
    one token is decided is a cold one."""
    one = PLAN.matmul("ffn_down", 1)
    cold, warm = (SplitPoint(matmul=one, split=alone(one, GPU), is_cold=is_cold) for is_cold in (True, False))
    decided = DecisionPoint(matmul=one, is_cold=True)
    bench, _, failures = make_bench(PLAN, [cold, warm, decided], cold=3.0, **QUIET)
    assert failures == {}
    gpu_s = gpu_time_s(64, 128, 1)
    times_s = [bench.sample(point, 0).total_s for point in (cold, warm, cold, cold, warm)]
    assert times_s == pytest.approx([3 * gpu_s, gpu_s, 3 * gpu_s, 3 * gpu_s, gpu_s])
    found = bench.sample(decided, 0)
    assert found.predicted_s == pytest.approx(found.total_s, rel=0.01)


SPLIT = ("total_s", "gpu_s", "npu_s", "sync_s", "copy_s", "compile_s")


@pytest.mark.parametrize(
    ("of", "columns"),
    [
        (SplitVisit, SPLIT),
        (DecisionVisit, (*SPLIT, "split_index", "predicted_s")),
        (StreamVisit, ("gpu", "npu")),
        (OverlapVisit, ("queued_s", "fast_s", "fast_exposed_s", "slow_s", "slow_exposed_s", "gpu_s", "npu_s")),
        (
            LayerVisit,
            tuple(
                f"{start}{arm}{end}"
                for arm in ("decided", "whole", "npu")
                for start, end in (("", "_s"), ("", "_sync_s"), ("gpu_beside_", "_s"))
            ),
        ),
    ],
)
def test_columns_of_journals_keep_their_names(of, columns):
    """A renamed field would make a journal of before unreadable."""
    kept = {name: (float(index),) for index, name in enumerate(columns)}
    (visit,) = of.of_columns(kept)
    assert visit.columns() == kept
    assert tuple(visit.columns()) == columns


def test_one_profile_serves_all_decisions_and_is_forgotten_before_the_rounds(make_bench, monkeypatch):
    profiled = []
    measure = bench_module.measure_profile
    monkeypatch.setattr(
        bench_module,
        "measure_profile",
        lambda pair, shapes, lengths, **known: (
            profiled.append((list(shapes), tuple(lengths))) or measure(pair, shapes, lengths, **known)
        ),
    )
    points = [DecisionPoint(matmul=PLAN.matmul("ffn_down", tokens)) for tokens in (1, 20, 33)]
    bench, units, failures = make_bench(PLAN, points)
    assert failures == {}
    ((shapes, lengths),) = profiled
    assert [shape.name for shape in shapes] == ["ffn_down"]
    assert lengths == (1, 16, 64)
    assert set(units._loaded) == {point.matmul for point in points}
    for point in points:
        assert bench.sample(point, 0).total_s > 0


def test_nothing_is_profiled_where_nothing_is_decided(make_bench, monkeypatch):
    monkeypatch.setattr(bench_module, "measure_profile", None)
    _, _, failures = make_bench(PLAN, [SplitPoint(matmul=DOWN, split=alone(DOWN, GPU))])
    assert failures == {}


def test_where_nothing_can_be_priced_the_decisions_fail_alone(make_bench, monkeypatch):
    """No time at all for a profile: no part was measured."""
    monkeypatch.setattr(bench_module, "PROFILE_SHARE", 1e-12)
    monkeypatch.setattr(bench_module, "MIN_PROFILE_S", 1e-12)
    points = decision_points(PLAN, DOWN)
    bench, _, failures = make_bench(PLAN, points)
    assert failures.keys() == {points[0].name}
    assert "ffn_down [64, 128] x 20: no split: " in failures[points[0].name]
    assert bench.warm_up(points[1])[1]


def test_an_operator_without_memory_takes_its_own_points_along(make_bench):
    """Gate and up are larger than what is free; the profile of all operators wants them too, and then each has its
    own."""
    small = SplitPoint(matmul=DOWN, split=alone(DOWN, NPU))
    decided = DecisionPoint(matmul=DOWN)
    large = PLAN.matmul("ffn_gate_up", 20)
    points = [small, decided, SplitPoint(matmul=large, split=alone(large, NPU)), DecisionPoint(matmul=large)]
    bench, units, failures = make_bench(PLAN, points, largest=64 * 128)
    assert failures.keys() == {point.name for point in points[2:]}
    assert all("takes 9 MiB; 1 MiB of memory are free" in reason for reason in failures.values())
    assert bench.warm_up(small)[1]
    assert bench.warm_up(decided)[1]
    assert set(units._loaded) == {DOWN}


@pytest.mark.parametrize("unit", [GPU, NPU])
def test_a_wrong_split_is_found_when_it_is_loaded_and_its_unit_is_blamed(make_bench, unit):
    """Also the GPU's own: the reference is no unit's. Whoever reads the same rows rightly is not blamed."""
    points = decision_points(PLAN, DOWN)[1:]
    _, units, failures = make_bench(PLAN, points, wrong="hybrid", wrong_unit=unit)
    assert failures.keys() == {point.name for point in points if point.split.strategy == "hybrid"}
    expected = f"hybrid of ffn_down [64, 128] x 20 computes something else: 640 of the {unit}'s 640 outputs are wrong, "
    assert all(reason.startswith(expected) for reason in failures.values())
    assert not any(f"the {other}'s" in reason for other in {GPU, NPU} - {unit} for reason in failures.values())
    assert units.num_runs == 2 * len(points) - len(failures)  # by both mechanisms, until an output is wrong


def test_a_layer_is_run_in_all_ways_and_checked(make_bench):
    point = LayerPoint(tokens=20, context=0)
    gpu_s = sum(1e-8 * rows * cols for rows, cols in map(SHAPES.get, OPERATORS))
    made_up = {"gpu_s": lambda rows, cols, _: 1e-8 * rows * cols, "npu_s": lambda rows, cols, _: 1.5e-8 * rows * cols}
    bench, _, failures = make_bench(PLAN, [point], **{**QUIET, "sync_s": 1e-6}, **made_up)
    assert failures == {}
    visit = bench.sample(point, 0)
    alone_s = (visit.gpu_beside_decided_s, visit.gpu_beside_whole_s, visit.gpu_beside_npu_s)
    assert alone_s == pytest.approx((gpu_s,) * 3)
    assert (visit.npu_s, visit.npu_sync_s) == pytest.approx((1.5 * gpu_s + 4e-6, 4e-6))
    assert (visit.whole_s, visit.whole_sync_s) == pytest.approx((gpu_s, 0.0))
    assert visit.decided_s < visit.whole_s
    assert visit.decided_sync_s > 0
    for strategy, unit in (("npu_only", NPU), ("gpu_only", GPU)):
        wrong, units, _ = make_bench(PLAN, [point])
        units.wrong = strategy  # behind the profile, which would fail
        with pytest.raises(MeasurementError, match=rf"{strategy} of layer.attention_qkv .* of the {unit}'s 2560 outp"):
            wrong.warm_up(point)


@pytest.fixture
def campaign(make_campaign, monkeypatch):
    """A whole campaign on made-up units: the units, and the campaign with these arguments of theirs."""

    def made(points, earlier=False, plan=PLAN, **known):
        units = FakeUnits(**known)
        monkeypatch.setattr(bench_module, "open_pair", lambda name, **keywords: units)
        return units, make_campaign(plan, points, PartitionBench, earlier=earlier)

    return made


def solver_case():
    kind = case_kind("solver")
    plan = partition_plan(lengths=(20,), min_rounds=4, max_rounds=4)
    (case,) = [case for case in cases(plan, "solver") if case.axis("operator") == "ffn_down"]
    return kind, plan, case


def test_a_campaign_from_its_points_to_a_verdict(campaign):
    kind, plan, case = solver_case()
    units, running = campaign(kind.points(case, plan), plan=plan, noise=0.01)
    measured = running.measured()
    assert measured.failures == {}
    assert len(measured.rounds) == 4
    judgement = kind.judge(case, plan, measured)
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert abs(judgement.detail.regret) < 0.1
    assert abs(judgement.error) < 0.1
    assert units.num_closed == 1


def test_a_wrong_split_fails_alone(campaign):
    kind, plan, case = solver_case()
    wrong = [point for point in kind.points(case, plan)[1:] if point.split.strategy == "activation_centric"]
    units, running = campaign(kind.points(case, plan), plan=plan, wrong="activation_centric")
    measured = running.measured()
    assert measured.failures.keys() - {f"decision/{DOWN.rows}x{DOWN.cols}x{DOWN.tokens}"} == {
        point.name for point in wrong
    }
    assert all(len(row) > 4 for row in measured.rounds)
    with pytest.raises(MeasurementError, match=r"activation_centric of ffn_down \[64, 128\] x 20 computes some"):
        kind.judge(case, plan, measured)
    assert units.num_closed == 1


@pytest.mark.parametrize("dies_after", [0, 9, 60, 150])
def test_a_unit_that_dies_leaves_its_last_words_with_every_case(campaign, dies_after):
    """While loading, warming up and in a round; also the points that come after it say how it was lost."""
    gpu = case_kind("gpu_linear")
    by_case = [gpu.points(case, PLAN) for case in cases(PLAN, "gpu_linear")[:2]]
    points = [point for each in by_case for point in each]
    units, running = campaign(points, dies_after=dies_after)
    measured = running.measured()
    assert measured.failures.keys() == {point.name for point in points}
    assert all(WORDS in reason for reason in measured.failures.values()), measured.failures
    for case in cases(PLAN, "gpu_linear")[:2]:
        with pytest.raises(MeasurementError, match="its last words: the unit is on fire"):
            gpu.judge(case, PLAN, measured)
    assert units.num_closed == 1


def test_a_unit_that_dies_while_profiling_fails_the_campaign(campaign):
    kind, plan, case = solver_case()
    units, running = campaign(kind.points(case, plan), plan=plan, dies_after=500)
    assert set(running.measured().failures.values()) == {f"{plan.key}: {WORDS}"}
    assert units.num_closed == 1


def test_a_pair_that_does_not_open_is_every_point_s_reason(campaign, monkeypatch):
    point = SplitPoint(matmul=DOWN, split=alone(DOWN, GPU))
    _, running = campaign([point, RoundTripPoint()])

    def refuse(name, **keywords):
        raise DeviceUnavailableError("a pair of units needs 2 cores; this process may use 1 ([0])")

    monkeypatch.setattr(bench_module, "open_pair", refuse)
    found = running.measured().failures
    assert found.keys() == {point.name, "round_trip"}
    assert all("needs 2 cores" in reason for reason in found.values())


def test_a_resumed_campaign_tries_again_what_was_lost(campaign):
    """The first session loses the unit in its second round, of which nothing is left; the second adds a whole one."""
    kind = case_kind("npu_order")
    (case,) = [case for case in cases(PLAN, "npu_order") if case.axis("operator") == "attention_k"]
    points = kind.points(case, PLAN)
    _, running = campaign(points, dies_after=30)
    first = running.measured()
    assert set(first.failures) == {point.name for point in points}
    units, again = campaign(points, earlier=True)
    measured = again.measured()
    assert measured.failures == {}
    assert measured.num_resumed_rounds >= 1
    judgement = kind.judge(case, PLAN, measured)
    ratio = npu_time_s(64, 64, 32) / npu_time_s(32, 64, 64)
    assert judgement.detail.order_ratio == pytest.approx(ratio, rel=0.01)
    assert units.num_closed == 1


def test_a_complete_campaign_is_taken_over_without_a_pair(campaign):
    kind, plan, case = solver_case()
    _, running = campaign(kind.points(case, plan), plan=plan)
    first = kind.judge(case, plan, running.measured())
    units, again = campaign(kind.points(case, plan), earlier=True, plan=plan)
    second = kind.judge(case, plan, again.measured())
    assert units.num_runs == 0
    assert second.detail == first.detail


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError("gone"), MeasurementError("no samples")])
def test_the_pair_is_closed_however_a_campaign_ends(campaign, error):
    point = SplitPoint(matmul=DOWN, split=alone(DOWN, GPU))
    units, running = campaign([point])
    run, count = units.run, []

    def fail(*arguments, **keywords):
        count.append(1)
        if len(count) > 4:
            raise error
        return run(*arguments, **keywords)

    units.run = fail
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            running.measured()
    else:
        assert running.measured().failures.keys() == {point.name}
    assert units.num_closed == 1


def test_points_of_one_shape_are_one():
    """Whatever operator or strategy asked for it; another mechanism or a graph made in the run is another."""
    one = SplitPoint(matmul=DOWN, split=alone(DOWN, NPU))
    renamed = SplitPoint(
        matmul=Matmul(name="other", rows=DOWN.rows, cols=DOWN.cols, tokens=DOWN.tokens),
        split=Split(strategy="mine", parts=alone(DOWN, NPU).parts),
    )
    slow = SplitPoint(matmul=DOWN, split=one.split, mechanism=SLOWEST)
    online = SplitPoint(matmul=DOWN, split=Split(strategy="mine", parts=one.split.parts, prepares_online=True))
    assert len({one, renamed}) == 1
    assert len({one, slow, online}) == 3
    assert one != "64x128x20"


def test_the_first_loss_is_remembered():
    words = LastWords()
    with words.kept():
        pass
    with pytest.raises(UnitLostError, match="on fire"), words.kept():
        raise UnitLostError("on fire")
    entered = []
    with pytest.raises(UnitLostError, match="on fire"), words.kept():
        entered.append(1)
    assert not entered
